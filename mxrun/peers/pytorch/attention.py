"""Scaled-dot-product attention."""

from __future__ import annotations

import math

import torch
from torch import nn

from mxrun.peers.pytorch.parameters import MXNetParameters, Operators, Tensor


def attention(parameters: MXNetParameters, *tensors: Tensor) -> Tensor:
    """Return the output; mask and lengths pass no gradient."""
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
        total = total + rest.pop(0).detach().to(query.dtype)
    if rest:
        padding = torch.arange(keys) >= rest[0][:, None, None, None]
        total = total.masked_fill(padding, -math.inf)
    if parameters.flag("causal", False):
        later = torch.ones(queries, keys, dtype=torch.bool).triu(1)
        total = total.masked_fill(later, -math.inf)
    return total


OPERATORS: Operators = {"scaled_dot_product_attention": attention}
