"""One door for what runs code: child interpreters and the files of users."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from structure.test_layers import MODULES
from syntax import nodes, syntax_tree

# By name that runs code or starts a program, the only modules that use it.
DOORS = {
    "sys.executable": {
        "mxrun.base.child_python",
        # These only report it, or look whether there is one.
        "mxrun.commands.info",
        "mxrun.peers.baseline",
        "mxrun.run.data_workers",
    },
    "subprocess.Popen": {
        "mxrun.commands.launch",
        "mxrun.io.loading.process_transforms",
        "mxrun.peers.process",
        "mxrun.runtime.child_processes",
    },
    "subprocess.run": {"mxrun.peers.baseline"},
    "library.load_plugin": {"mxrun.preparation.plugins"},
    "library.load_unchanged": {"mxrun.run.transform_process"},
    "exec()": {"mxrun.base.child_start", "mxrun.library"},
    "eval()": {"mxrun.codegen.sequential.expressions"},
}
# Other ways to start programs or to run code.
FORBIDDEN = {
    "os.system",
    "os.popen",
    "os.execv",
    "os.execve",
    "os.execvp",
    "os.posix_spawn",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "runpy.run_path",
    "runpy.run_module",
    "pickle.load",
    "pickle.loads",
    "yaml.load",
}


def used_names(path: Path) -> Iterator[str]:
    """Yield what a file uses, as `module.name`, and the functions that it calls, as `name()`."""
    for node in nodes(syntax_tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield f"{node.func.id}()"
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").removeprefix("mxrun.")
            yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.fixture(scope="module")
def used() -> dict[str, set[str]]:
    return {module: set(used_names(path)) for module, path in MODULES.items()}


@pytest.mark.parametrize("name", DOORS)
def test_what_runs_code_has_one_door(name: str, used: dict[str, set[str]]) -> None:
    assert {module for module, names in used.items() if name in names} == DOORS[name]


def test_nothing_else_starts_programs_or_runs_code(used: dict[str, set[str]]) -> None:
    found = {(module, name) for module, names in used.items() for name in names & FORBIDDEN}
    assert not found
