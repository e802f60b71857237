"""MXNet's functions that are made of other operators, whose gradients they have.

Their results are copies. An index out of range is the nearest one, as in MXNet's mode `clip`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.imperative.arrays import binary
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.creation import DType, arange, dtype_name, ones
from mxrun.imperative.arrays.indexing import select
from mxrun.imperative.arrays.views import part
from mxrun.imperative.calls.functions import operator_function

_INDEX = "int32"


def concatenate(arrays: Sequence[NDArrayBase], axis: int = 0) -> Any:
    """Return arrays joined along an axis, on which alone their sizes may differ."""
    return operator_function("Concat")(*arrays, dim=axis)


def stack(*data: NDArrayBase, axis: int = 0) -> Any:
    """Return arrays of one shape joined along a new axis."""
    expand = operator_function("expand_dims")
    return concatenate([expand(each, axis=axis) for each in data], axis)


def slice_axis(data: NDArrayBase, axis: int, begin: int, end: int | None) -> Any:
    """Return the elements from `begin` to `end` on one axis."""
    return _indexed(data, (*_all(axis, data), slice(begin, end)))


def slice_(
    data: NDArrayBase,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    step: Sequence[int | None] | None = None,
) -> Any:
    """Return the elements from `begin` to `end`, which have a number for each leading axis."""
    steps = step or (None,) * len(begin)
    return _indexed(data, tuple(map(slice, begin, end, steps)))


def flip(data: NDArrayBase, axis: int) -> Any:
    """Return the elements in reverse order on one axis."""
    return _indexed(data, (*_all(axis, data), slice(None, None, -1)))


def _indexed(data: NDArrayBase, key: tuple[Any, ...]) -> Any:
    return part(data, select(data.shape, key), is_copy=True)


def _all(axis: int, data: NDArrayBase) -> list[slice]:
    """Return the parts of an index before an axis."""
    return [slice(None)] * _axis(axis, len(data.shape))


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        got = f"axis {axis} of {rank}"
        raise UserError(Diagnostic("axis out of range", expected="one of the array's", got=got))
    return axis % rank


def broadcast_to(data: NDArrayBase, shape: Sequence[int]) -> Any:
    """Return the elements repeated to a shape of as many axes, in which 0 keeps a size."""
    sizes = tuple(size or own for size, own in zip(shape, data.shape, strict=False))
    fits = len(shape) == len(data.shape) and all(
        own in (1, size) for size, own in zip(sizes, data.shape, strict=True)
    )
    if not fits:
        expected, got = f"{data.shape} but for sizes of 1", str(tuple(shape))
        raise UserError(Diagnostic("broadcast_to", expected=expected, got=got))
    return binary.multiply(data, ones(sizes, data.context, data.dtype))


def broadcast_like(lhs: NDArrayBase, rhs: NDArrayBase) -> Any:
    """Return the elements of `lhs` repeated to the shape of `rhs`."""
    return binary.multiply(lhs, ones(rhs.shape, lhs.context, lhs.dtype))


def repeat(data: NDArrayBase, repeats: int, axis: int | None = None) -> Any:
    """Return each element `repeats` times in succession, on one axis or in one row of all."""
    shape = (_size(data.shape),) if axis is None else data.shape
    place = 0 if axis is None else _axis(axis, len(shape))
    before, after = shape[: place + 1], shape[place + 1 :]
    wide = broadcast_to(_reshape(data, (*before, 1, *after)), (*before, repeats, *after))
    return _reshape(wide, (*shape[:place], shape[place] * repeats, *after))


def tile(data: NDArrayBase, reps: int | Sequence[int]) -> Any:
    """Return the array repeated `reps` times on each of its last axes."""
    given = (reps,) if isinstance(reps, int) else tuple(reps)
    rank = max(len(given), len(data.shape))
    times = (*(1,) * (rank - len(given)), *given)
    shape = (*(1,) * (rank - len(data.shape)), *data.shape)
    narrow = [size for own in shape for size in (1, own)]
    wide = [size for each, own in zip(times, shape, strict=True) for size in (each, own)]
    tiled = broadcast_to(_reshape(data, tuple(narrow)), wide)
    return _reshape(tiled, tuple(each * own for each, own in zip(times, shape, strict=True)))


def _reshape(data: NDArrayBase, shape: Shape) -> Any:
    return operator_function("Reshape")(data, shape=shape)


def _size(shape: Shape) -> int:
    size = 1
    for each in shape:
        size *= each
    return size


def one_hot(
    indices: NDArrayBase,
    depth: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    dtype: DType = None,
) -> Any:
    """Return `on_value` at each index of a new last axis of size `depth`, else `off_value`."""
    cast = operator_function("Cast")
    column = operator_function("expand_dims")(cast(indices, dtype=_INDEX), axis=-1)
    mask = binary.equal(column, arange(depth, ctx=indices.context, dtype=_INDEX))
    found = cast(mask, dtype=dtype_name(dtype))
    if (on_value, off_value) == (1, 0):
        return found
    return binary.add(binary.multiply(found, on_value - off_value), off_value)


def pick(data: NDArrayBase, index: NDArrayBase, axis: int = -1, keepdims: bool = False) -> Any:
    """Return one element along an axis for each index; index has the other axes."""
    axis = _axis(axis, len(data.shape))
    others = (*data.shape[:axis], *data.shape[axis + 1 :])
    nearest = operator_function("clip")(index, a_min=0, a_max=data.shape[axis] - 1)
    mask = one_hot(_reshape(nearest, others), data.shape[axis], dtype=data.dtype)
    last = len(others)
    order = (*range(axis), last, *range(axis, last))
    mask = operator_function("transpose")(mask, axes=order)
    kept = operator_function("where")(mask, data, operator_function("zeros_like")(data))
    return operator_function("sum")(kept, axis=axis, keepdims=keepdims)


def take(a: NDArrayBase, indices: NDArrayBase, axis: int = 0) -> Any:
    """Return the parts of an array at indices along an axis, whose place their axes take."""
    axis, rank = _axis(axis, len(a.shape)), len(a.shape)
    transpose = operator_function("transpose")
    first = transpose(a, axes=(axis, *range(axis), *range(axis + 1, rank))) if axis else a
    rest = first.shape[1:]
    rows = _reshape(first, (first.shape[0], _size(rest)))
    table = operator_function("Embedding")
    parameters = {"input_dim": rows.shape[0], "output_dim": rows.shape[1], "dtype": a.dtype}
    found = _reshape(table(indices, rows, **parameters), (*indices.shape, *rest))
    if not axis:
        return found
    count = len(indices.shape)
    order = (*range(count, count + axis), *range(count), *range(count + axis, count + rank - 1))
    return transpose(found, axes=order)
