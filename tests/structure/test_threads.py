"""Locks and threads: one way to make each, which forks and limits of the process know."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from syntax import nodes, syntax_tree

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for folder in ("mxrun", "ops", "datasets") for path in (ROOT / folder).rglob("*.py")]
# Names, and the files that may use them. An engine renews its state at a fork itself.
ONLY_IN = {
    "threading.Lock": "mxrun/runtime/engine/",
    "threading.RLock": "mxrun/base/locks.py mxrun/runtime/engine/",
    "threading.Condition": "mxrun/runtime/engine/",
    "threading.Semaphore": "",
    "threading.BoundedSemaphore": "",
    "threading.Barrier": "",
    "threading.Thread": "mxrun/base/threads.py",
    "threading.Timer": "",
    "_thread.start_new_thread": "mxrun/base/threads.py",
    "functools.cached_property": "mxrun/base/once.py",
}


def called(tree: ast.AST) -> set[str]:
    """Return the names that code calls, inherits or decorates with, as in `module.name`."""
    names = {
        f"{node.module}.{alias.name}"
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in nodes(tree):
        if isinstance(node, ast.Call):
            names.add(ast.unparse(node.func))
        elif isinstance(node, ast.ClassDef):
            names.update(map(ast.unparse, node.bases))
    return names


def forbidden(path: str, tree: ast.AST) -> set[str]:
    """Return what a file may not use."""
    return {
        name
        for name in called(tree) & set(ONLY_IN)
        if not any(path.startswith(allowed) for allowed in ONLY_IN[name].split())
    }


def test_locks_and_threads_are_made_in_one_way() -> None:
    assert len(FILES) > 800
    found = {
        path: names
        for path in (file.relative_to(ROOT).as_posix() for file in FILES)
        if (names := forbidden(path, syntax_tree(ROOT / path)))
    }
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "import threading\n_guard = threading.Lock()",
        "from threading import Thread\nThread().start()",
        "from functools import cached_property",
        "import functools\nclass A(functools.cached_property): ...",
    ],
)
def test_another_way_is_found(code: str) -> None:
    assert forbidden("mxrun/io/any.py", ast.parse(code))
