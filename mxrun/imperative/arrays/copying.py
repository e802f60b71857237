"""Copies between arrays, contexts and the host, as functions of the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import Diagnostic, UserError
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.creation import empty, numbers_of
from mxrun.imperative.arrays.indexing import GatherKey, values_of
from mxrun.runtime.engine.interface import EngineOperator, Pool

# Copies of at most this many bytes run on the calling thread if nothing has to be awaited: handing
# them to a worker takes longer.
_MAX_INLINE_BYTES = 1 << 16

Values = npt.NDArray[Any]


def push(
    name: str,
    function: Callable[[], None],
    reads: Sequence[NDArrayBase],
    target: NDArrayBase,
    *,
    replaces: bool,
) -> None:
    """Push a function that reads arrays and changes one.

    replaces: whether it writes all elements of the target, and does not read them.
    """
    chunk = target.chunk
    variables = {each.chunk.variable for each in reads}
    changed = [chunk.variable]
    is_whole = replaces and target.nbytes >= chunk.nbytes and chunk.variable not in variables
    operator = EngineOperator(
        lambda context: function(),
        tuple(variables - {chunk.variable}),
        changed if is_whole else (),
        () if is_whole else changed,
        name=name,
        context=target.context,
        pool=Pool.COPY,
    )
    if target.nbytes <= _MAX_INLINE_BYTES:
        chunk.engine.run_or_push(operator)
    else:
        chunk.engine.push(operator)


def copy_to(source: NDArrayBase, target: NDArrayBase) -> None:
    """Copy an array to another of the same shape, on any context, converted to its data type."""
    if source.shape != target.shape:
        expected, got = str(target.shape), str(source.shape)
        raise UserError(Diagnostic("copyto: another shape", expected=expected, got=got))

    def copied() -> None:
        store(target, values_of(source))

    push("copyto", copied, [source], target, replaces=True)


def store(target: NDArrayBase, values: Values, key: Any = ...) -> None:
    """Write values to the elements of an array that a NumPy index selects: for pushed functions."""
    device, spec = target.chunk.device, target.spec
    with np.errstate(invalid="ignore"):
        converted = values.astype(numpy_dtype(target.dtype), copy=False)
    mirror = device.tensor(target.handle, spec).mirror()
    mirror.array[key] = converted
    mirror.store()


def copied_selection(source: NDArrayBase, key: Any, shape: tuple[int, ...]) -> Any:
    """Return a new array with the elements that a NumPy index selects.

    key: the index, or a GatherKey, whose arrays are read when the function runs.
    """
    target = empty(shape, source.context, source.dtype)
    arrays = list(key.arrays.values()) if isinstance(key, GatherKey) else []

    def gathered() -> None:
        index = key.evaluated() if isinstance(key, GatherKey) else key
        store(target, values_of(source)[index].reshape(shape))

    push("getitem", gathered, [source, *arrays], target, replaces=True)
    return target


def assign(target: NDArrayBase, key: Any, value: Any, selected: tuple[int, ...]) -> None:
    """Write an array, values or a number to the elements that a NumPy index selects.

    key: as in `copied_selection`. selected: shape of the selection, to which the value is
    broadcast. Raises UserError if it does not fit.
    """
    arrays = list(key.arrays.values()) if isinstance(key, GatherKey) else []
    shape, read = _operand(value, target)
    _require_broadcast(shape, selected)
    sources = [value, *arrays] if isinstance(value, NDArrayBase) else arrays

    def assigned() -> None:
        index = key.evaluated() if isinstance(key, GatherKey) else key
        found = read()
        # Leading axes of size 1 may be more than the selection has.
        store(target, found.reshape(found.shape[max(0, found.ndim - len(selected)) :]), index)

    is_basic = not isinstance(key, GatherKey)
    push(
        "setitem",
        assigned,
        sources,
        target,
        replaces=is_basic and math.prod(selected) == target.size,
    )


def _operand(value: Any, target: NDArrayBase) -> tuple[tuple[int, ...], Callable[[], Values]]:
    """Return the shape of a value, and the function that gives its elements later."""
    if isinstance(value, NDArrayBase):
        if value.chunk is target.chunk:
            # Its elements may be overwritten while they are read.
            return value.shape, lambda: np.array(values_of(value))
        return value.shape, lambda: values_of(value)
    # A copy, because the caller may change the values before they are written.
    values = np.array(numbers_of(value, target.dtype))
    return values.shape, lambda: values


def _require_broadcast(shape: tuple[int, ...], selected: tuple[int, ...]) -> None:
    extra = max(0, len(shape) - len(selected))
    try:
        fits = np.broadcast_shapes(shape[extra:], selected) == selected
    except ValueError:
        fits = False
    if not fits or any(size != 1 for size in shape[:extra]):
        expected, got = f"{selected} or a shape that is broadcast to it", str(shape)
        raise UserError(Diagnostic("cannot assign a value of another shape", None, expected, got))
