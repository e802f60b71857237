"""Arguments of native functions: declared once with names, and read only by name."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import get_type_hints

import pytest

import mxrun
import mxrun.ops
from mxrun.codegen.arguments import Arguments, Integer
from mxrun.codegen.jit import InlinedFunction, NativeFunction, native
from mxrun.codegen.sequential.syntax import tree_of
from mxrun.device.cpu.call import loop_call

# Every source file is checked in every tier.
pytestmark = pytest.mark.whole

# Processes and programs of their own.
_NOT_IMPORTED = ("mxrun.peers.", "mxrun.__main__")


def functions() -> Iterator[NativeFunction | InlinedFunction]:
    for package in (mxrun, mxrun.ops):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith(_NOT_IMPORTED):
                module = importlib.import_module(found.name)
                for value in vars(module).values():
                    of_code = isinstance(value, (NativeFunction, InlinedFunction))
                    if of_code and value.body.__module__ == found.name:
                        yield value


FUNCTIONS = {f"{each.body.__module__}.{each.body.__qualname__}": each for each in functions()}
NATIVE = {name: each for name, each in FUNCTIONS.items() if isinstance(each, NativeFunction)}


def uses(tree: ast.FunctionDef, parameter: str) -> Iterator[str]:
    """Yield each use of a parameter other than an attribute and an argument of an inlined call."""
    fine: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            fine.add(node.value)
        elif isinstance(node, ast.Call):
            fine.update(node.args)
        elif isinstance(node, ast.Name) and node.id == parameter and node not in fine:
            yield f"line {node.lineno}"


def test_the_native_functions_are_found() -> None:
    assert len(NATIVE) > 50
    assert len(FUNCTIONS) > len(NATIVE) + 20


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_function_declares_its_arguments(name: str) -> None:
    function = NATIVE[name]
    assert issubclass(function.declared, Arguments)
    assert len(inspect.signature(function.body).parameters) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_are_read_by_name(name: str) -> None:
    body = FUNCTIONS[name].body
    hints = {key: hint for key, hint in get_type_hints(body).items() if key != "return"}
    blocks = {
        key for key, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Arguments)
    }
    # By convention, so that none of an inlined function is missed for lack of an annotation.
    assert blocks == {"call"} & set(inspect.signature(body).parameters)
    for block in blocks:
        assert not list(uses(tree_of(body.__code__), block))


class Counting(Arguments):
    count: Integer


class Others(Arguments):
    count: Integer


@native
def counting_loop(call: Counting) -> None:
    pass


@pytest.mark.parametrize("given", [(3,), Others(count=3)])
def test_only_the_declared_arguments_are_bound(given: Arguments | tuple[int, ...]) -> None:
    with pytest.raises(
        TypeError, match=f"counting_loop takes Counting, not {type(given).__name__}"
    ):
        loop_call(counting_loop, given, threads=1)
