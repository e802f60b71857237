"""Arguments of native functions: declared once with names, and read only by name."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from typing import get_type_hints

import pytest
from object_symbols import undefined_symbols

import mxrun
import mxrun.ops
from mxrun.codegen.arguments import Arguments, Integer
from mxrun.codegen.block_function import BlockFunction
from mxrun.codegen.jit import InlinedFunction, NativeFunction, native
from mxrun.codegen.sequential.arithmetic import Untyped
from mxrun.codegen.sequential.syntax import tree_of
from mxrun.device.cpu.call import loop_call

# Processes and programs of their own.
_NOT_IMPORTED = ("mxrun.peers.", "mxrun.__main__")


@pytest.fixture(scope="module")
def functions() -> Mapping[str, NativeFunction | InlinedFunction]:
    """Native and inlined functions of all modules by their full names."""
    found = {}
    for package in (mxrun, mxrun.ops):
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not each.name.startswith(_NOT_IMPORTED):
                module = importlib.import_module(each.name)
                for value in vars(module).values():
                    of_code = isinstance(value, (NativeFunction, InlinedFunction))
                    if of_code and value.body.__module__ == each.name:
                        found[f"{each.name}.{value.body.__qualname__}"] = value
    return found


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


def test_a_native_function_declares_its_arguments(
    functions: Mapping[str, NativeFunction | InlinedFunction],
) -> None:
    native = {key: each for key, each in functions.items() if isinstance(each, NativeFunction)}
    assert len(functions) > len(native) + 20 > 70
    for name, function in native.items():
        assert issubclass(function.declared, Arguments), name
        assert len(inspect.signature(function.body).parameters) == 1, name


def test_arguments_are_read_by_name(
    functions: Mapping[str, NativeFunction | InlinedFunction],
) -> None:
    for name, function in functions.items():
        body = function.body
        hints = {key: hint for key, hint in get_type_hints(body).items() if key != "return"}
        blocks = {
            key
            for key, hint in hints.items()
            if isinstance(hint, type) and issubclass(hint, Arguments)
        }
        # By convention, so that none of an inlined function is missed for lack of an annotation.
        assert blocks == {"call"} & set(inspect.signature(body).parameters), name
        for block in blocks:
            assert not list(uses(tree_of(body.__code__), block)), name


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
        loop_call(counting_loop, given)


@pytest.mark.full
def test_native_functions_need_the_c_library_for_memory_alone(
    functions: Mapping[str, NativeFunction | InlinedFunction],
) -> None:
    for name, function in functions.items():
        if isinstance(function, NativeFunction) and not isinstance(function, BlockFunction):
            objects = []
            for variant in (function, function.bfloat16):
                # Some functions are of bfloat16 elements alone.
                with contextlib.suppress(Untyped):
                    objects.append(variant._compile())
            assert objects, name
            for each in objects:
                assert undefined_symbols(each.code) <= {"memcpy", "memmove", "memset"}, name
