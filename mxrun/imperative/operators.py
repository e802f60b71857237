"""`mxrun.nd`: arrays, their creation, and every registered operator as a function on them.

The functions of operators are made when they are first used, from the registry, so that those of
plugins are here as well. `operators.pyi` declares them for editors; it is generated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxrun.base.errors import UserError
from mxrun.imperative.arrays import sampling as random
from mxrun.imperative.arrays.array_files import load, save
from mxrun.imperative.arrays.binary import (
    add,
    divide,
    equal,
    greater,
    greater_equal,
    lesser,
    lesser_equal,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    modulo,
    multiply,
    not_equal,
    power,
    subtract,
)
from mxrun.imperative.arrays.creation import arange, array, empty, eye, full, linspace, ones, zeros
from mxrun.imperative.arrays.dlpack import from_dlpack
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.calls.composites import (
    broadcast_like,
    broadcast_to,
    concatenate,
    flip,
    one_hot,
    pick,
    repeat,
    slice_axis,
    stack,
    take,
    tile,
)
from mxrun.imperative.calls.composites import slice_ as slice
from mxrun.imperative.calls.functions import operator_function, public_names
from mxrun.operator.register import OPERATORS
from mxrun.runtime.engine.default import engine

__all__ = [
    "NDArray",
    "add",
    "arange",
    "array",
    "broadcast_like",
    "broadcast_to",
    "concatenate",
    "divide",
    "empty",
    "equal",
    "eye",
    "flip",
    "from_dlpack",
    "full",
    "greater",
    "greater_equal",
    "lesser",
    "lesser_equal",
    "linspace",
    "load",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "modulo",
    "multiply",
    "not_equal",
    "one_hot",
    "ones",
    "pick",
    "power",
    "random",
    "repeat",
    "save",
    "slice",
    "slice_axis",
    "stack",
    "subtract",
    "take",
    "tile",
    "true_divide",
    "waitall",
    "zeros",
]
true_divide = divide


def waitall() -> None:
    """Wait until nothing is pending; raises JobError with the failures that no wait has raised."""
    engine().wait_for_all()


def __getattr__(name: str) -> Callable[..., Any]:
    try:
        function = operator_function(name)
    except UserError as error:
        # AttributeError for `hasattr`; a plugin may register the name later.
        raise AttributeError(f"module 'mxrun.nd' has no attribute {name!r}: {error}") from None
    if OPERATORS.get(name).__module__.startswith("mxrun.ops."):
        globals()[name] = function
    return function


def __dir__() -> list[str]:
    return sorted({*__all__, *public_names()})
