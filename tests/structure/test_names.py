"""Names of classes: each has one meaning in the entire package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

# Every source file is checked in every tier.
pytestmark = pytest.mark.whole

ROOT = Path(__file__).resolve().parents[2]

# Face for programs, whose classes have MXNet's names, as classes of other layers do: a Symbol with
# methods that bind it, the Executor that computes in arrays, and autograd's Function.
FACE = "mxrun/imperative"
MXNETS_NAMES = {"Executor", "Function", "Symbol"}


def test_a_class_name_is_defined_once() -> None:
    places = defaultdict(list)
    for folder in ("mxrun", "ops", "datasets"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            is_face = path.is_relative_to(ROOT / FACE)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not (is_face and node.name in MXNETS_NAMES):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
