"""Creation of arrays: from values, filled, and sequences of numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.context import Context, current_context
from mxrun.base.dtype import BFLOAT16, FLOAT32, item_size, numpy_dtype
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.imperative.arrays import array as array_module
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.chunk import allocate

DType = str | npt.DTypeLike | None
ShapeLike = int | Sequence[int]


def dtype_name(dtype: DType, default: str = FLOAT32) -> str:
    """Return the name of a data type given as a name or in NumPy's forms; `default` for None.

    Raises UserError for a type that arrays cannot have.
    """
    if dtype is None:
        return default
    name: str = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    numpy_dtype(name)
    return name


def shape_of(shape: ShapeLike) -> Shape:
    """Return a shape given as a size or sizes; UserError for sizes that are none."""
    try:
        sizes = tuple(map(operator.index, [shape] if not _is_sequence(shape) else shape))  # type: ignore[arg-type]
    except TypeError:
        sizes = (-1,)
    if any(size < 0 for size in sizes):
        raise UserError(Diagnostic("invalid shape", expected="sizes from 0", got=repr(shape)))
    return sizes


def _is_sequence(shape: object) -> bool:
    return isinstance(shape, (tuple, list))


def empty(shape: ShapeLike, ctx: Context | None = None, dtype: DType = None) -> Any:
    """Return an array with undefined values; dtype: float32 unless given."""
    name, sizes = dtype_name(dtype), shape_of(shape)
    chunk = allocate(ctx or current_context(), math.prod(sizes) * item_size(name))
    return array_module.make(chunk, sizes, name)


def array(source: Any, ctx: Context | None = None, dtype: DType = None) -> Any:
    """Return an array with the values of a list, a number, a NumPy array or another array.

    dtype: that of another NDArray, else float32, as in MXNet, whatever a NumPy array has.
    Raises UserError for values that are no numbers in the form of an array.
    """
    if isinstance(source, NDArrayBase):
        name = dtype_name(dtype, source.dtype)
        return from_numpy(source.asnumpy(), ctx or source.context, name)
    return from_numpy(source, ctx, dtype_name(dtype))


def from_numpy(values: npt.ArrayLike, ctx: Context | None, dtype: str) -> Any:
    """Return a new array with a copy of NumPy's values, converted to `dtype`."""
    given = _checked(values)
    return _computed(given.shape, lambda: given, ctx, dtype)


def _computed(
    shape: ShapeLike, values: Callable[[], npt.NDArray[Any]], ctx: Context | None, dtype: str
) -> Any:
    """Return a new array with NumPy's values, which are computed once it has its memory.

    Raises UserError if there is too little memory for it, or for the computation.
    """
    made = empty(shape, ctx, dtype)
    try:
        # No function knows the new array yet, so nothing has to be ordered with it.
        made.chunk.device.write(made.handle, numbers_of(values(), dtype))
    except MemoryError as error:
        problem = f"out of memory: the values of {made.nbytes:,} bytes need more to be computed"
        hint = "delete arrays that are not needed any more, or make a smaller array"
        raise UserError(Diagnostic(problem, got=str(error), hint=hint)) from error
    return made


def numbers_of(values: npt.ArrayLike, dtype: str) -> npt.NDArray[Any]:
    """Return values as a contiguous NumPy array of a data type, without a copy if they are one.

    Raises UserError for values that are no numbers in the form of an array.
    """
    # NaN has no integer, as in MXNet.
    with np.errstate(invalid="ignore"):
        return _checked(values).astype(numpy_dtype(dtype), order="C", copy=False)


def _checked(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return values as a NumPy array; raises UserError for those that are no numbers."""
    try:
        given = np.asarray(values)
    except ValueError as error:
        got = str(error)[:200]
        raise UserError(Diagnostic("the values are not an array of numbers", got=got)) from error
    if given.dtype.kind not in "biuf" and given.dtype.name != BFLOAT16:
        got = str(given.dtype)
        raise UserError(Diagnostic("the values are not an array of numbers", got=got))
    return given


def full(
    shape: ShapeLike,
    val: float,
    ctx: Context | None = None,
    dtype: DType = None,
    out: Any = None,
) -> Any:
    """Return an array with the same value everywhere; out: an array that is filled instead."""
    if out is not None:
        out[...] = val
        return out
    name, sizes = dtype_name(dtype), shape_of(shape)
    return _computed(sizes, lambda: np.broadcast_to(_checked(val), sizes), ctx, name)


def zeros(shape: ShapeLike, ctx: Context | None = None, dtype: DType = None) -> Any:
    """Return an array of zeros; dtype: float32 unless given."""
    made = empty(shape, ctx, dtype)
    start = made.chunk.block.offset
    made.chunk.device.fill(made.chunk.block.memory, start, start + made.nbytes, 0)
    return made


def ones(shape: ShapeLike, ctx: Context | None = None, dtype: DType = None) -> Any:
    """Return an array of ones; dtype: float32 unless given."""
    return full(shape, 1, ctx, dtype)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    ctx: Context | None = None,
    dtype: DType = None,
) -> Any:
    """Return start, start + step, ... below stop, each `repeat` times; 0 to start without stop.

    Raises UserError if step is 0, a limit is not finite, or repeat is below 1.
    """
    if stop is None:
        start, stop = 0, start
    if step == 0 or repeat < 1 or not math.isfinite(stop - start) or math.isnan(step):
        expected, got = "numbers, step not 0 and repeat from 1", f"{start} to {stop}"
        got += f", step {step}, repeat {repeat}"
        raise UserError(Diagnostic("arange", expected=expected, got=got))
    count = max(0, math.ceil((stop - start) / step))

    def values() -> npt.NDArray[Any]:
        return np.repeat(start + step * np.arange(count), repeat)

    return _computed(count * repeat, values, ctx, dtype_name(dtype))


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: Context | None = None,
    dtype: DType = None,
) -> Any:
    """Return `num` evenly spaced numbers from start to stop, which is the last with `endpoint`."""
    return _computed(
        num, lambda: np.linspace(start, stop, num, endpoint=endpoint), ctx, dtype_name(dtype)
    )


def eye(
    N: int,  # noqa: N803 (MXNet's names)
    M: int = 0,  # noqa: N803
    k: int = 0,
    ctx: Context | None = None,
    dtype: DType = None,
) -> Any:
    """Return an N x M matrix with ones on diagonal `k`; M is N unless given."""
    name, columns = dtype_name(dtype), M or N
    return _computed(
        (N, columns), lambda: np.eye(N, columns, k, dtype=numpy_dtype(name)), ctx, name
    )
