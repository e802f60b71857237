"""Names: each class has one meaning in the entire package; labels of tests are documented."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from syntax import nodes, syntax_tree

ROOT = Path(__file__).resolve().parents[2]

# Face for programs, whose classes have MXNet's names, as classes of other layers do: a Symbol with
# methods that bind it, the Executor that computes in arrays, and the Function that a program
# differentiates by itself.
FACE = "mxrun/imperative"
MXNETS_NAMES = {"Executor", "Function", "Symbol"}


def test_a_class_name_is_defined_once() -> None:
    places = defaultdict(list)
    for folder in ("mxrun", "ops", "datasets"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            is_face = path.is_relative_to(ROOT / FACE)
            for node in nodes(syntax_tree(path)):
                if isinstance(node, ast.ClassDef) and not (is_face and node.name in MXNETS_NAMES):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_labels_of_tests_are_those_of_the_table() -> None:
    page = (ROOT / "mxrun" / "docs" / "promises.md").read_text()
    used = {
        label
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for labels in re.findall(r"def test((?:_[A-Z]\d+)+)_", path.read_text())
        for label in labels.split("_")[1:]
    }
    assert len(used) > 100
    assert sorted(re.findall(r"^\| ([A-Z]\d+) \|", page, re.M)) == sorted(used)
