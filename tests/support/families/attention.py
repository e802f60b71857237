"""Attention: cases and formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from families.batch_norm import of_the_output_alone
from families.indexing import between
from operator_row import Objective, Reference, Row

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


def arguments(p: Any, inputs: list[Array]) -> tuple[list[Array], Array | None, Array | None]:
    """Return query, key and value, the mask and the lengths."""
    rest = list(inputs)
    if p.packed:
        size = rest[0].shape[-1] // (p.num_heads + 2 * p.kv_heads)
        places = (p.num_heads * size, (p.num_heads + p.kv_heads) * size)
        projections = np.split(rest.pop(0), places, axis=-1)
    else:
        projections, rest = rest[:3], rest[3:]
    mask = rest.pop(0) if p.use_mask else None
    return projections, mask, rest[0] if p.use_lengths else None


def attention(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute one query of one head at a time, over the keys that it reads."""
    if p.use_position:
        return cached_attention(p, *inputs)
    (query, key, value), mask, lengths = arguments(p, inputs)
    batch, steps, _ = query.shape
    size, width = query.shape[2] // p.num_heads, value.shape[2] // p.kv_heads
    scale = 1 / math.sqrt(size) if p.scale is None else p.scale
    output = np.zeros((batch, steps, p.num_heads * width), query.dtype)
    sums = np.full((batch, p.num_heads, steps), -np.inf, query.dtype)
    for n, h, i in np.ndindex(batch, p.num_heads, steps):
        other = h * p.kv_heads // p.num_heads
        count = key.shape[1] if lengths is None else int(lengths[n])
        read = range(min(count, i + 1) if p.causal else count)
        scores = np.array(
            [
                scale
                * query[n, i, h * size : h * size + size]
                @ key[n, j, other * size : other * size + size]
                + (0 if mask is None else mask[n % len(mask), h % mask.shape[1], i, j])
                for j in read
            ]
        )
        if len(scores):
            sums[n, h, i] = np.logaddexp.reduce(scores)
            part = value[n, : len(scores), other * width : other * width + width]
            output[n, i, h * width : h * width + width] = np.exp(scores - sums[n, h, i]) @ part
    return [output, sums]


def cached_attention(p: Any, *inputs: Array) -> list[Array]:
    """Attend to the positions of the caches and to those of the arguments, then store these."""
    *given, position, keys, values = inputs
    (query, key, value), _, _ = arguments(p, given)
    first, (batch, count, _) = int(position[0]), query.shape
    # [batch, groups, blocks, size, 16] -> [batch, positions, groups * size]
    old = keys.transpose(0, 2, 4, 1, 3).reshape(batch, -1, key.shape[2])[:, :first]
    earlier = values.transpose(0, 2, 1, 3).reshape(batch, -1, value.shape[2])[:, :first]
    before = np.zeros((batch, first, query.shape[2]), query.dtype)
    plain = p.model_copy(update={"use_position": False, "packed": False})
    pairs = ((before, query), (old, key), (earlier, value))
    output, _ = attention(plain, [np.concatenate(pair, axis=1) for pair in pairs])
    keys, values = keys.copy(), values.copy()
    for t in range(first, first + count):
        each = key[:, t - first].reshape(batch, p.kv_heads, -1)
        keys[:, :, t // 16, :, t % 16] = each
        values[:, :, t] = value[:, t - first].reshape(batch, p.kv_heads, -1)
    return [output[:, first:], keys, values]


def case(
    shape: Shape,
    key: Shape | None = None,
    value: Shape | None = None,
    *,
    mask: Shape = (),
    lengths: tuple[int, int] | tuple[()] = (),
    position: int | None = None,
    **parameters: object,
) -> Row:
    """Return a row; lengths are drawn from [low, high). A peer has no state in its plan."""
    shapes = {"key": key or shape, "value": value or key or shape}
    if mask:
        shapes, parameters = {**shapes, "mask": mask}, {**parameters, "use_mask": True}
    values = {}
    if lengths:
        values, parameters = {"lengths": between(*lengths)}, {**parameters, "use_lengths": True}
    if position is not None:
        values, parameters = (
            {"position": between(position, position + 1)},
            {**parameters, "use_position": True},
        )
    if parameters.get("packed"):
        del shapes["key"], shapes["value"]
    return Row(
        "scaled_dot_product_attention",
        parameters,
        shape,
        shapes,
        values,
        peers=("PyTorch",) if position is None else (),
        # Gradients of queries and keys are differences of numbers that nearly cancel.
        agreement=5e-5,
        no_peer="MXNet 1.9.1 has no such operator; its products are those of the interleaved ones.",
    )


GROUPED: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "scale": 0.3, "causal": True}
ROWS: list[Row] = [
    case((2, 3, 4), num_heads=1),
    case((2, 5, 12), num_heads=3, causal=True),
    case((1, 4, 8), (1, 7, 8), num_heads=2),
    case((2, 6, 8), (2, 4, 8), num_heads=2, causal=True),
    case((2, 3, 12), (2, 5, 6), (2, 5, 10), num_heads=4, num_kv_heads=2),
    case((2, 5, 6), num_heads=2, scale=0.5, mask=(1, 1, 5, 5)),
    case((2, 3, 4), (2, 6, 4), num_heads=2, mask=(2, 2, 3, 6), causal=True),
    case((3, 6, 4), num_heads=2, lengths=(1, 7)),
    case((3, 6, 4), num_heads=1, lengths=(1, 7), causal=True),
    case((2, 5, 24), num_heads=2, packed=True, causal=True),
    case((2, 5, 24), num_heads=4, num_kv_heads=2, packed=True, lengths=(1, 6)),
    case((1, 70, 36), num_heads=2, packed=True, num_kv_heads=2, causal=True),
    case((1, 67, 34), (1, 83, 34), (1, 83, 20), num_heads=2, mask=(1, 2, 67, 83)),
    case((3, 5, 8), (3, 6, 4), num_heads=4, num_kv_heads=2, mask=(3, 1, 5, 6), lengths=(1, 7)),
    case((3, 5, 24), num_heads=4, num_kv_heads=2, packed=True, mask=(1, 4, 5, 5), causal=True),
    case((2, 67, 6), (2, 67, 2), num_heads=3, num_kv_heads=1, mask=(1, 1, 67, 67), causal=True),
    case((1, 1, 4), (1, 33, 4), num_heads=2),
    case((1, 3, 8), (1, 530, 8), num_heads=2),
    case((2, 1, 8), num_heads=2, causal=True, position=0, max_length=1),
    case((2, 4, 8), num_heads=2, position=3, max_length=9),
    case((3, 1, 8), num_heads=2, scale=0.5, position=12),
    case((2, 17, 24), num_heads=2, causal=True, packed=True, position=3, max_length=33),
    *(
        case(*shapes, **GROUPED, position=position, max_length=length)
        for *shapes, position, length in (
            ((2, 1, 36), (2, 1, 18), (2, 1, 10), 20, 21),
            ((1, 5, 132), (1, 5, 66), (1, 5, 34), 14, 40),
        )
    ),
    case((3, 2, 136), **GROUPED, packed=True, position=40, max_length=64),
]


def heads_of(p: Any, data: Array, parts: int) -> list[Array]:
    """Return each part of a projection [T, N, heads * parts * D] as [N * heads, T, D]."""
    steps, batch, columns = data.shape
    size = columns // (p.heads * parts)
    split = data.reshape(steps, batch, p.heads, parts, size)
    return [
        np.stack([split[:, n, h, i] for n in range(batch) for h in range(p.heads)])
        for i in range(parts)
    ]


def scores(query: Array, key: Array) -> list[Array]:
    """Compute the scaled products."""
    return [np.einsum("nid,njd->nij", query, key) / math.sqrt(query.shape[2])]


def weighted(p: Any, attention: Array, value: Array) -> list[Array]:
    """Compute the sums of values, and put the heads side by side."""
    sums = np.einsum("nij,njd->ind", attention, value)
    return [sums.reshape(len(sums), sums.shape[1] // p.heads, -1)]


SELF_SCORES = "_contrib_interleaved_matmul_selfatt_qk"
SELF_VALUES = "_contrib_interleaved_matmul_selfatt_valatt"
CROSS_SCORES = "_contrib_interleaved_matmul_encdec_qk"
CROSS_VALUES = "_contrib_interleaved_matmul_encdec_valatt"


def interleaved(operator: str, heads: int, shape: Shape, **shapes: Shape) -> Row:
    """Return a row of one of MXNet's products."""
    return Row(operator, {"heads": heads}, shape, shapes)


ROWS += [
    interleaved(SELF_SCORES, 1, (3, 2, 12)),
    interleaved(SELF_SCORES, 2, (5, 2, 30)),
    interleaved(SELF_SCORES, 3, (1, 3, 9)),
    interleaved(SELF_SCORES, 2, (70, 2, 36)),
    interleaved(SELF_SCORES, 1, (17, 1, 51)),
    interleaved(SELF_VALUES, 1, (3, 2, 12), attention=(2, 3, 3)),
    interleaved(SELF_VALUES, 2, (5, 2, 30), attention=(4, 5, 5)),
    interleaved(SELF_VALUES, 3, (1, 3, 9), attention=(9, 1, 1)),
    interleaved(SELF_VALUES, 2, (70, 2, 36), attention=(4, 70, 70)),
    interleaved(SELF_VALUES, 1, (17, 1, 51), attention=(1, 17, 17)),
    interleaved(CROSS_SCORES, 1, (3, 2, 4), keys_values=(5, 2, 8)),
    interleaved(CROSS_SCORES, 2, (6, 2, 10), keys_values=(4, 2, 20)),
    interleaved(CROSS_SCORES, 3, (1, 3, 9), keys_values=(7, 3, 18)),
    interleaved(CROSS_SCORES, 2, (70, 1, 36), keys_values=(33, 1, 72)),
    interleaved(CROSS_SCORES, 1, (17, 1, 17), keys_values=(1, 1, 34)),
    interleaved(CROSS_VALUES, 1, (3, 2, 8), attention=(2, 5, 3)),
    interleaved(CROSS_VALUES, 2, (6, 2, 20), attention=(4, 4, 6)),
    interleaved(CROSS_VALUES, 3, (1, 3, 18), attention=(9, 7, 1)),
    interleaved(CROSS_VALUES, 2, (70, 1, 72), attention=(2, 33, 70)),
    interleaved(CROSS_VALUES, 1, (17, 1, 34), attention=(1, 1, 17)),
]

REFERENCES: dict[str, Reference] = {
    "scaled_dot_product_attention": attention,
    SELF_SCORES: lambda p, x: scores(*heads_of(p, x[0], 3)[:2]),
    SELF_VALUES: lambda p, x: weighted(p, x[1], heads_of(p, x[0], 3)[2]),
    CROSS_SCORES: lambda p, x: scores(heads_of(p, x[0], 1)[0], heads_of(p, x[1], 2)[0]),
    CROSS_VALUES: lambda p, x: weighted(p, x[1], heads_of(p, x[0], 2)[1]),
}
OBJECTIVES: dict[str, Objective] = {"scaled_dot_product_attention": of_the_output_alone}
