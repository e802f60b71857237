"""Scaled-dot-product attention."""

from __future__ import annotations

import math

import torch
from torch import nn

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def attention(parameters: MXNetParameters, *tensors: Tensor) -> Tensor:
    """Return the output."""
    if parameters.flag("use_position", False):
        raise ValueError("attention over a cache overwrites its states")
    rest = list(tensors)
    heads = int(parameters.number("num_heads", 1))
    groups = int(parameters.number("num_kv_heads", heads))
    if parameters.flag("packed", False):
        data = rest.pop(0)
        size = data.shape[-1] // (heads + 2 * groups)
        query, key, value = data.split([heads * size, groups * size, groups * size], -1)
    else:
        (query, key, value), rest = rest[:3], rest[3:]
    split = [
        tensor.unflatten(-1, (count, -1)).transpose(1, 2)
        for tensor, count in ((query, heads), (key, groups), (value, groups))
    ]
    causal = parameters.flag("causal", False)
    mask = _mask(parameters, rest, query, key.shape[1])
    scale = parameters.number("scale", math.nan)
    output = nn.functional.scaled_dot_product_attention(
        *split,
        attn_mask=mask,
        is_causal=causal and mask is None,
        scale=None if math.isnan(scale) else scale,
        enable_gqa=groups != heads,
    )
    return output.transpose(1, 2).flatten(2)


def _mask(parameters: MXNetParameters, given: list[Tensor], query: Tensor, keys: int) -> Tensor:
    """Return the sum of all masks; None without mask and lengths."""
    if not given:
        return None
    rest, queries = list(given), query.shape[1]
    total = torch.zeros(1, 1, queries, keys, dtype=query.dtype)
    if parameters.flag("use_mask", False):
        total = total + rest.pop(0).to(query.dtype)
    if rest:
        padding = torch.arange(keys) >= rest[0][:, None, None, None]
        total = total.masked_fill(padding, -math.inf)
    if parameters.flag("causal", False):
        later = torch.ones(queries, keys, dtype=torch.bool).triu(1)
        total = total.masked_fill(later, -math.inf)
    return total


def _parts(parameters: MXNetParameters, data: Tensor, parts: int) -> list[Tensor]:
    """Return each part of a projection [T, N, heads * parts * D] as [N * heads, T, D]."""
    heads = int(parameters.number("heads", 1))
    split = data.unflatten(-1, (heads, parts, -1)).flatten(1, 2)
    return [split[:, :, part].transpose(0, 1) for part in range(parts)]


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT / math.sqrt(query.shape[-1])


def _values(parameters: MXNetParameters, attention: Tensor, value: Tensor) -> Tensor:
    heads = int(parameters.number("heads", 1))
    return (attention @ value).transpose(0, 1).unflatten(1, (-1, heads)).flatten(2)


def self_scores(parameters: MXNetParameters, data: Tensor) -> Tensor:
    return _scores(*_parts(parameters, data, 3)[:2])


def self_values(parameters: MXNetParameters, data: Tensor, attention: Tensor) -> Tensor:
    return _values(parameters, attention, _parts(parameters, data, 3)[2])


def cross_scores(parameters: MXNetParameters, queries: Tensor, keys_values: Tensor) -> Tensor:
    query = _parts(parameters, queries, 1)[0]
    return _scores(query, _parts(parameters, keys_values, 2)[0])


def cross_values(parameters: MXNetParameters, keys_values: Tensor, attention: Tensor) -> Tensor:
    return _values(parameters, attention, _parts(parameters, keys_values, 2)[1])


OPERATORS: Operators = {
    "_contrib_interleaved_matmul_encdec_qk": cross_scores,
    "_contrib_interleaved_matmul_encdec_valatt": cross_values,
    "_contrib_interleaved_matmul_selfatt_qk": self_scores,
    "_contrib_interleaved_matmul_selfatt_valatt": self_values,
    "scaled_dot_product_attention": attention,
}
