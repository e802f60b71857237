"""ONNX translators of attention, by operators of opset 17, which has no attention."""

from __future__ import annotations

import math

import numpy as np

from mxrun.convert.onnx_model import ELEMENT_TYPES
from mxrun.convert.onnx_writer import NotInOnnx, OperatorWriter, translates

_INT64 = ELEMENT_TYPES["int64"]
_LOWEST = float(np.finfo(np.float32).min)
# Axes of heads [sequence, kv_head, head of its group, step, element] in [sequence, step, ...].
_HEADS_FIRST = (0, 2, 3, 1, 4)
_STEPS_FIRST = (0, 3, 1, 2, 4)


@translates("scaled_dot_product_attention")
def attention(place: OperatorWriter) -> str:
    """Translate to two products of each head and a Softmax between them.

    The scores of keys that are not read are the lowest number, and their probabilities 0.
    """
    p = place.prop.parameters
    if p.use_position:
        raise NotInOnnx("use_position")
    groups, rest = p.kv_heads, list(place.inputs)
    together = p.num_heads // groups
    steps, columns = place.shapes[0][1:]
    size = columns // (p.num_heads + 2 * groups if p.packed else p.num_heads)
    if p.packed:
        parts = place.integers([heads * size for heads in (p.num_heads, groups, groups)])
        projections, rest = place.split("Split", (rest[0], parts), 3, axis=-1), rest[1:]
        keys, width = steps, size
    else:
        projections, rest = rest[:3], rest[3:]
        keys, width = place.shapes[2][1], place.shapes[2][2] // groups

    def heads(index: int, count: int, length: int, number: int, order: tuple[int, ...]) -> str:
        split = place.reshape(projections[index], (-1, length, groups, count, number))
        return place.node("Transpose", split, perm=order)

    query = heads(0, together, steps, size, _HEADS_FIRST)
    key = heads(1, 1, keys, size, (0, 2, 3, 4, 1))
    value = heads(2, 1, keys, width, _HEADS_FIRST)
    scale = 1 / math.sqrt(size) if p.scale is None else p.scale
    scores = place.node("Mul", place.node("MatMul", query, key), place.numbers(scale))
    if p.use_mask:
        split = (groups, together) if place.shapes[-1 - p.use_lengths][1] > 1 else (1, 1)
        mask = place.reshape(rest.pop(0), (-1, *split, steps, keys))
        scores = place.node("Add", scores, mask)
    if p.causal:
        later = np.arange(keys) > np.arange(steps)[:, None]
        scores = place.node("Where", place.array(later), place.numbers(_LOWEST), scores)
    if not p.use_lengths:
        probabilities = place.node("Softmax", scores, axis=-1)
    else:
        lengths = place.reshape(place.node("Cast", rest[0], to=_INT64), (-1, 1, 1, 1, 1))
        read = place.node("Less", place.array(np.arange(keys, dtype=np.int64)), lengths)
        scores = place.node("Where", read, scores, place.numbers(_LOWEST))
        probabilities = place.node("Softmax", scores, axis=-1)
        probabilities = place.node("Where", read, probabilities, place.numbers(0))
    output = place.node("MatMul", probabilities, value)
    return place.reshape(
        place.node("Transpose", output, perm=_STEPS_FIRST), (-1, steps, p.num_heads * width)
    )


def _part(place: OperatorWriter, tensor: int, part: int, parts: int) -> str:
    """Write one part of a projection [T, N, heads * parts * D] as [T, N * heads, D]."""
    _, batch, columns = place.shapes[tensor]
    heads = place.prop.parameters.heads
    split = (-1, batch * heads, parts, columns // (heads * parts))
    index = place.array(np.array(part, np.int64))
    return place.node("Gather", place.reshape(place.inputs[tensor], split), index, axis=2)


def _scores(place: OperatorWriter, query: str, key: str) -> str:
    """Write the scaled product of queries and keys [T, N * heads, D]."""
    scale = place.numbers(1 / math.sqrt(_size(place)))
    left = place.node("Mul", place.node("Transpose", query, perm=(1, 0, 2)), scale)
    return place.node("MatMul", left, place.node("Transpose", key, perm=(1, 2, 0)))


def _size(place: OperatorWriter) -> int:
    return place.prop.flops(place.shapes, []) // (2 * math.prod(place.output_shapes[0]))


def _values(place: OperatorWriter, value: str) -> str:
    """Write the product of attention weights and values, with the heads side by side."""
    turned = place.node("Transpose", value, perm=(1, 0, 2))
    product = place.node("MatMul", place.inputs[1], turned)
    sides = place.output_shapes[0][1:]
    return place.reshape(place.node("Transpose", product, perm=(1, 0, 2)), (-1, *sides))


@translates("_contrib_interleaved_matmul_selfatt_qk")
def self_scores(place: OperatorWriter) -> str:
    """Translate to a product of two parts."""
    return _scores(place, _part(place, 0, 0, 3), _part(place, 0, 1, 3))


@translates("_contrib_interleaved_matmul_selfatt_valatt")
def self_values(place: OperatorWriter) -> str:
    """Translate to a product with the last part."""
    return _values(place, _part(place, 0, 2, 3))


@translates("_contrib_interleaved_matmul_encdec_qk")
def cross_scores(place: OperatorWriter) -> str:
    """Translate to a product with the first part."""
    return _scores(place, _part(place, 0, 0, 1), _part(place, 1, 0, 2))


@translates("_contrib_interleaved_matmul_encdec_valatt")
def cross_values(place: OperatorWriter) -> str:
    """Translate to a product with the last part."""
    return _values(place, _part(place, 0, 1, 2))
