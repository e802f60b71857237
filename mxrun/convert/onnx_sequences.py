"""ONNX translators of operators on sequences of different lengths."""

from __future__ import annotations

import numpy as np

from mxrun.convert.onnx_model import ELEMENT_TYPES
from mxrun.convert.onnx_writer import OperatorWriter, translates

_INT64 = ELEMENT_TYPES["int64"]


@translates("SequenceMask")
def sequence_mask(place: OperatorWriter) -> str:
    """Translate to Where of step numbers below the lengths; without lengths to Identity."""
    data, *lengths = place.inputs
    axis, shape = place.prop.parameters.axis, place.shapes[0]
    if not lengths:
        return place.node("Identity", data)
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    numbers = place.array(np.arange(shape[axis], dtype=np.int64).reshape(sizes))
    others = place.integers([other for other in range(len(shape)) if other != 1 - axis])
    ends = place.node("Unsqueeze", place.node("Cast", lengths[0], to=_INT64), others)
    valid = place.node("Less", numbers, ends)
    return place.node("Where", valid, data, place.numbers(place.prop.parameters.value))


@translates("SequenceLast")
def sequence_last(place: OperatorWriter) -> str:
    """Translate to GatherND of one step of each sequence; without lengths to Gather."""
    data, *lengths = place.inputs
    axis, shape = place.prop.parameters.axis, place.shapes[0]
    if not lengths:
        return place.node("Gather", data, place.array(np.array(-1, np.int64)), axis=axis)
    if axis == 0:
        data = place.node("Transpose", data, perm=(1, 0, *range(2, len(shape))))
    one = place.array(np.array(1, np.int64))
    most = place.array(np.array(shape[axis], np.int64))
    whole = place.node("Clip", place.node("Cast", lengths[0], to=_INT64), one, most)
    places = place.node("Unsqueeze", place.node("Sub", whole, one), place.integers((1,)))
    return place.node("GatherND", data, places, batch_dims=1)


@translates("SequenceReverse")
def sequence_reverse(place: OperatorWriter) -> str:
    """Translate to ReverseSequence; without lengths to Slice with a step of -1."""
    data, *lengths = place.inputs
    axis = place.prop.parameters.axis
    if not lengths:
        last, first = place.integers((-1,)), place.integers((np.iinfo(np.int64).min,))
        return place.node("Slice", data, last, first, place.integers((axis,)), last)
    most = place.array(np.array(place.shapes[0][axis], np.int64))
    least = place.array(np.array(0, np.int64))
    whole = place.node("Clip", place.node("Cast", lengths[0], to=_INT64), least, most)
    return place.node("ReverseSequence", data, whole, batch_axis=1 - axis, time_axis=axis)
