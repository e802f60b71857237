"""Arrays that share the memory of another one."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.imperative.array import NDArrayBase, make_array
from mxrun.imperative.copying import copied_selection
from mxrun.imperative.indexing import Selection, offset_of
from mxrun.operator.register import create
from mxrun.operator.shape import ShapeContradiction, require_complete

_MAX_SHAPES = 1024


def view(array: NDArrayBase, shape: Shape, offset: int) -> Any:
    """Return an array of this shape whose first byte has an offset in the array's chunk."""
    return make_array(array.chunk, shape, array.dtype, offset)


def flat_view(array: NDArrayBase, selection: Selection) -> Any:
    """Return the selected elements: a view if they lie one behind the other, else a copy."""
    first = selection.first(array.shape)
    if first is None:
        return copied_selection(array, selection.key, selection.shape)
    return view(array, selection.shape, offset_of(array, first))


def reshaped(array: NDArrayBase, shape: tuple[int, ...], reverse: bool) -> Any:
    """Return a view in another shape, with MXNet's special sizes; UserError if none fits."""
    return view(array, _target(array.shape, shape, reverse), array.offset)


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
