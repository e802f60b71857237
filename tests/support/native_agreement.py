"""Native functions, compiled and run by Python, which must agree."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import InlinedFunction, NativeFunction


def copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def compiled(function: NativeFunction, arguments: Any) -> Any:
    """Run the machine code on copies of the arguments, which are returned."""
    own = arguments.with_values(copied)
    HostLoop(function, own)()
    return own


def interpreted(function: NativeFunction, arguments: Any) -> Any:
    """Let Python run the same source, with NumPy's numbers."""
    own = arguments.with_values(copied)
    numbers = {"int64": np.int64, "float32": np.float32}
    call = types.SimpleNamespace(
        **{
            name: numbers.get(kind, lambda array: array)(getattr(own, name))
            for name, kind in type(arguments).kinds().items()
        }
    )
    scope = dict(function.body.__globals__)
    for name, value in scope.items():
        if isinstance(value, InlinedFunction):
            scope[name] = types.FunctionType(value.body.__code__, scope)
    scope["each"] = range
    with np.errstate(all="ignore"):
        types.FunctionType(function.body.__code__, scope)(call)
    return own


def agree(function: NativeFunction, arguments: Any) -> None:
    ours, pythons = compiled(function, arguments), interpreted(function, arguments)
    for name in type(arguments).kinds():
        np.testing.assert_array_equal(getattr(ours, name), getattr(pythons, name))
