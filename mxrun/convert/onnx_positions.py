"""ONNX translators of operators that add positions to sequences."""

from __future__ import annotations

import numpy as np

from mxrun.convert.onnx_writer import NotInOnnx, OperatorWriter, translates


@translates("position_embedding")
def position_embedding(place: OperatorWriter) -> str:
    """Translate to Add of the weight's first rows, which Slice selects."""
    _require_zero(place)
    data, weight = place.inputs
    first, last, axis = (place.integers((number,)) for number in (0, place.shapes[0][1], 0))
    return place.node("Add", data, place.node("Slice", weight, first, last, axis))


def _require_zero(place: OperatorWriter) -> None:
    if place.prop.parameters.use_position:
        raise NotInOnnx("use_position")


@translates("rotary_embedding")
def rotary_embedding(place: OperatorWriter) -> str:
    """Translate to products with cosines and sines, which are constants."""
    _require_zero(place)
    p, (batch, positions, channels) = place.prop.parameters, place.free_shapes[0]
    pairs = channels // (2 * p.num_heads)
    heads = place.reshape(place.inputs[0], (batch, positions, p.num_heads, 2, pairs))
    kept: list[str] = []
    if p.rotated < p.num_heads:
        sizes = place.integers((p.rotated, p.num_heads - p.rotated))
        heads, *kept = place.split("Split", (heads, sizes), 2, axis=2)
    x, y = place.split("Split", (heads, place.integers((1, 1))), 2, axis=3)
    angles = np.arange(positions)[:, None] * p.base ** (-np.arange(pairs) / pairs)
    table = angles.reshape(positions, 1, 1, pairs)
    cosine, sine = (place.array(f(table).astype(np.float32)) for f in (np.cos, np.sin))
    left = place.node("Sub", place.node("Mul", x, cosine), place.node("Mul", y, sine))
    right = place.node("Add", place.node("Mul", y, cosine), place.node("Mul", x, sine))
    turned = place.node("Concat", left, right, axis=3)
    if kept:
        turned = place.node("Concat", turned, *kept, axis=2)
    return place.reshape(turned, place.free_output_shapes[0])
