"""Native functions run by the interpreter, where machine code cannot be loaded.

A native function is Python source. Its body is run with other values of its global names: inlined
functions and intrinsics become Python functions, and `math` and `np` those of their functions that
give a C library's results. Numbers are Python's, with `Float32` for float32, so that each operation
has the type that it has in machine code. Host loops need few intrinsics, and only those have a
definition here.

Where machine code has arbitrary results, or 0 for a division by 0, the interpreter raises an
exception. Integers do not wrap at 64 bits, and a variable that is given both float32 and float64
has the type of the last one.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.codegen import jit
from mxrun.codegen.arguments import Arguments, require_row_major
from mxrun.codegen.declaration import only_native

_INTERPRETED: ContextVar[bool] = ContextVar("interpreted", default=False)
_POINTER = "pointer to "


@contextmanager
def interpreted() -> Iterator[None]:
    """Context manager in which the interpreter runs the host loops that are made."""
    before = _INTERPRETED.set(True)
    try:
        yield
    finally:
        _INTERPRETED.reset(before)


def may_load_code() -> bool:
    """Return whether host loops may be made of machine code: not within `interpreted`."""
    return not _INTERPRETED.get()


class InterpretedLoop:
    """Native function with its arguments, run by the interpreter on one thread.

    Raises TypeError for an array that is not in row-major order, and for arguments of bfloat16.
    """

    def __init__(self, function: jit.NativeFunction, arguments: Arguments) -> None:
        self._body = _body(function)
        self._kinds = function.arguments
        self._call = _Call()
        for name in self._kinds:
            self.set(name, getattr(arguments, name))

    def __call__(self) -> None:
        """Run the function."""
        self._body(self._call)

    def set(self, name: str, value: Any) -> None:
        """Replace one argument."""
        setattr(self._call, name, _operand(value, self._kinds[name]))


class Float32(float):
    """float32 number: arithmetic with another one is rounded, all other arithmetic is float64.

    Rounding a float64 result of two float32 numbers gives the float32 result.
    """

    __slots__ = ()

    def __add__(self, other: float) -> float:
        return _rounded(float.__add__(self, other), other)

    def __sub__(self, other: float) -> float:
        return _rounded(float.__sub__(self, other), other)

    def __mul__(self, other: float) -> float:
        return _rounded(float.__mul__(self, other), other)

    def __truediv__(self, other: float) -> float:
        return _rounded(float.__truediv__(self, other), other)

    def __neg__(self) -> Float32:
        return Float32(float.__neg__(self))

    def __abs__(self) -> Float32:
        return Float32(float.__abs__(self))


def _rounded(found: float, other: float) -> float:
    return _float32(found) if isinstance(other, Float32) else found


def _float32(value: float) -> Float32:
    # A C conversion: without warnings, and infinite beyond the range.
    return Float32(ctypes.c_float(value).value)


class Float32View:
    """Elements of a float32 array in row-major order."""

    def __init__(self, array: npt.NDArray[np.float32]) -> None:
        self.array = array
        self._view: Any = array.data

    def __getitem__(self, index: int) -> Float32:
        return Float32(self._view[index])

    def __setitem__(self, index: int, value: float) -> None:
        self._view[index] = value


class _Call:
    """Arguments of a call, as attributes."""


def _operand(value: Any, kind: str) -> Any:
    """Return an argument as a body reads it."""
    if value is None:
        return None
    if kind.startswith(_POINTER):
        return _elements(value, kind.removeprefix(_POINTER))
    if isinstance(value, tuple):
        return value
    return _float32(value) if kind == FLOAT32 else operator.index(value)


def _elements(array: npt.NDArray[Any], dtype: str) -> Float32View | memoryview:
    if dtype == BFLOAT16:
        raise TypeError("only native code reads and writes bfloat16")
    require_row_major(array)
    # Indexing a memoryview takes a third of the time of indexing an array.
    flat = array.reshape(-1).view(dtype)
    return Float32View(flat) if dtype == FLOAT32 else flat.data


@cache
def _body(function: jit.NativeFunction) -> Callable[[Any], None]:
    """Return a function's body with Python definitions of the names that it uses.

    As in machine code, the bodies of inlined functions read the same names, and their own.
    """
    names: dict[str, Any] = {}
    _define(function.body.__globals__, names)
    for each, found in _INTRINSICS.items():
        names.setdefault(each.__name__, found)
    return _with_names(function.body, names)


def _define(scope: Mapping[str, Any], names: dict[str, Any]) -> None:
    """Add the global names of a function, and of those that it inlines, unless they are known."""
    added = {name: value for name, value in scope.items() if name not in names}
    names |= added
    for name, value in added.items():
        names[name] = _defined(value, names)
        if isinstance(value, jit.InlinedFunction):
            _define(value.body.__globals__, names)


def _defined(value: Any, names: dict[str, Any]) -> Any:
    """Return a global value as the interpreter uses it."""
    if isinstance(value, jit.InlinedFunction):
        return _with_names(value.body, names)
    if isinstance(value, FunctionType):
        return _INTRINSICS.get(value, value)
    return _MATH if value is math else _NUMPY if value is np else value


def _with_names(body: Callable[..., Any], names: dict[str, Any]) -> Callable[..., Any]:
    return FunctionType(body.__code__, names, body.__name__)


def _share(count: int) -> tuple[int, int]:
    return 0, count


def _reduced_run(
    kind: int, total: float, data: Float32View, position: int, count: int, shift: float, gap: int
) -> float:
    found = total
    if kind not in _EXTREMES:
        raise only_native(jit.reduced_run)
    if count > 0:
        value = float(_EXTREMES[kind](data.array[position : position + count]))
        if value != value or (value > total if kind == 1 else value < total):
            found = value
    return float(found)


def _entry(dtype: str, table: tuple[Any, ...], index: int) -> Any:
    return _operand(table[index], dtype)


def _log(value: float) -> float:
    if isinstance(value, Float32):
        raise TypeError("only native code computes the logarithm of a float32")
    if value > 0:
        return math.log(value)
    return -math.inf if value == 0 else math.nan


def _sqrt(value: float) -> float:
    root = math.nan if value < 0 else math.sqrt(value)
    return _float32(root) if isinstance(value, Float32) else root


# Maxima and minima by their kind in `reduced_run`; the other kinds depend on an order of sums.
_EXTREMES: Mapping[int, Callable[..., Any]] = {1: np.max, 2: np.min}

_INTRINSICS: Mapping[Any, Callable[..., Any]] = {
    jit.float32s: partial(_entry, f"{_POINTER}float32"),
    jit.float64s: partial(_entry, f"{_POINTER}float64"),
    jit.int32s: partial(_entry, f"{_POINTER}int32"),
    jit.int64s: partial(_entry, f"{_POINTER}int64"),
    jit.integer: partial(_entry, "int64"),
    jit.real: partial(_entry, FLOAT32),
    jit.reduced_run: _reduced_run,
    jit.share: _share,
    jit.uint8s: partial(_entry, f"{_POINTER}uint8"),
}
_MATH = SimpleNamespace(**{**vars(math), "log": _log, "sqrt": _sqrt})
_NUMPY = SimpleNamespace(
    float32=_float32, float64=float, inf=math.inf, int64=int, nan=math.nan, sqrt=_sqrt
)
