"""Arrays that share the memory of another one."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.imperative.arrays import array as array_module
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.copying import copied_selection
from mxrun.imperative.arrays.indexing import IndexRanges, offset_of
from mxrun.imperative.calls.functions import call
from mxrun.imperative.differentiation.tape import MODE, RECORD
from mxrun.operator.register import create
from mxrun.operator.shape import ShapeContradiction, require_complete

_MAX_SHAPES = 1024


def view(array: NDArrayBase, shape: Shape, offset: int) -> Any:
    """Return an array of this shape whose first byte has an offset in the array's chunk."""
    return array_module.make(array.chunk, shape, array.dtype, offset)


def is_recorded(array: NDArrayBase) -> bool:
    """Return whether an operation on the array, now and by this thread, is recorded."""
    entry = array.entry
    if entry is None or not MODE.value & RECORD:
        return False
    live: bool = entry.is_live
    return live


def require_unrecorded(array: NDArrayBase, what: str, hint: str) -> None:
    """Raise UserError if an operation that cannot be differentiated would have to be recorded."""
    if is_recorded(array):
        raise UserError(Diagnostic(f"{what} cannot be recorded", hint=hint))


def part(array: NDArrayBase, selection: IndexRanges, *, is_copy: bool = False) -> Any:
    """Return the selected elements: a view if they lie one behind the other, else a copy.

    While it is recorded, indexing is an operator, and its result a copy. is_copy: always copy.
    """
    if is_recorded(array):
        ranges = {name: getattr(selection, name) for name in ("starts", "steps", "counts", "shape")}
        return call(create("_basic_index", ranges), (array,))
    first = selection.first(array.shape)
    if first is None or is_copy:
        return copied_selection(array, selection.key, selection.shape)
    return view(array, selection.shape, offset_of(array, first))


def reshaped(array: NDArrayBase, shape: tuple[int, ...], reverse: bool) -> Any:
    """Return a view in another shape, with MXNet's special sizes; UserError if none fits.

    While it is recorded, reshaping is an operator, and its result a copy.
    """
    target = _target(array.shape, shape, reverse)
    if is_recorded(array):
        return call(create("Reshape", {"shape": shape, "reverse": reverse}), (array,))
    return view(array, target, array.offset)


@lru_cache(maxsize=_MAX_SHAPES)
def _target(old: Shape, new: tuple[int, ...], reverse: bool) -> Shape:
    if not new:
        # MXNet's Reshape takes () for a shape that is not given.
        inferred: Any = () if old in ((), (1,)) else None
    else:
        prop = create("Reshape", {"shape": new, "reverse": reverse})
        try:
            inferred = require_complete(prop.infer_shape([old], [None]).outputs[0])
        except ShapeContradiction:
            inferred = None
    if inferred is None:
        got = f"{new} for an array of shape {old}"
        raise UserError(Diagnostic("reshape", expected="as many elements", got=got))
    return tuple(inferred)
