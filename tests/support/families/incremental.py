"""Operators that compute some positions of a sequence: cases and formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from families.attention import attention
from operator_row import Reference, Row

from mxrun.operator.register import create

Array = npt.NDArray[Any]


def at(position: int) -> Callable[..., Array]:
    """Return the values of the argument `position`."""
    return lambda random, shape, dtype: np.full(shape, position, "int32")


def row(operator: str, position: int, shape: tuple[int, ...], **given: Any) -> Row:
    """Return a case at some positions."""
    shapes = given.pop("shapes", {})
    return Row(
        operator,
        given,
        shape,
        shapes,
        values={"position": at(position)},
        peers=(),
        no_peer="a peer has no operator whose state is in the plan",
    )


def of(batch: int, positions: int, keys: int, values: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of key and value."""
    return {"key": (batch, positions, keys), "value": (batch, positions, values)}


def cached_attention(p: Any, inputs: list[Array]) -> list[Array]:
    """Attend as scaled_dot_product_attention, to the positions of the caches and the run's own."""
    *given, position, keys, values = inputs
    first, groups = int(position[0]), p.num_kv_heads
    if p.packed:
        size = given[0].shape[2] // (p.num_heads + 2 * groups)
        places = (p.num_heads * size, (p.num_heads + groups) * size)
        given = np.split(given[0], places, axis=2)
    query, key, value = given
    batch, count, _ = query.shape
    # [batch, groups, blocks, size, 16] -> [batch, positions, groups * size]
    old = keys.transpose(0, 2, 4, 1, 3).reshape(batch, -1, key.shape[2])[:, :first]
    earlier = values.transpose(0, 2, 1, 3).reshape(batch, -1, value.shape[2])[:, :first]
    before = np.zeros((batch, first, query.shape[2]), query.dtype)
    parameters = {"num_heads": p.num_heads, "num_kv_heads": groups, "scale": p.scale}
    whole = create("scaled_dot_product_attention", {**parameters, "causal": True}).parameters
    pairs = ((before, query), (old, key), (earlier, value))
    output, _ = attention(whole, [np.concatenate(pair, axis=1) for pair in pairs])
    keys, values = keys.copy(), values.copy()
    for t in range(first, first + count):
        each = key[:, t - first].reshape(batch, groups, -1)
        keys[:, :, t // 16, :, t % 16] = each
        values[:, :, t] = value[:, t - first].reshape(batch, groups, -1)
    return [output[:, first:], keys, values]


HEADS = {"num_heads": 2, "num_kv_heads": 2, "scale": 0.5}
GROUPED = {"num_heads": 4, "num_kv_heads": 2, "scale": 0.3}

ROWS: list[Row] = [
    row("_cached_attention", 0, (2, 1, 8), shapes=of(2, 1, 8, 8), length=1, **HEADS),
    row("_cached_attention", 20, (2, 1, 36), shapes=of(2, 1, 18, 10), length=21, **GROUPED),
    row("_cached_attention", 14, (1, 5, 132), shapes=of(1, 5, 66, 34), length=40, **GROUPED),
    row("_cached_attention", 3, (2, 17, 24), length=33, packed=True, **HEADS),
    row("_cached_attention", 40, (3, 2, 136), length=64, packed=True, **GROUPED),
]

REFERENCES: dict[str, Reference] = {
    "_cached_attention": cached_attention,
}
