"""Attention over a cache in a compiled loop, for tensors that are float32, or all bfloat16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Scratch, native_kernel, source, target
from mxrun.ops.attention.cached import BLOCK_WORDS, CachedHeads, cached_attention_loop
from mxrun.ops.attention.shapes import BLOCK, AttentionSizes, padded

_EXPONENTIAL = scalar.compile(lambda x, shift: scalar.exp(x - shift), parameters=("shift",))
_WORD = 8


def cached_kernel(
    name: str,
    request: ForwardRequest,
    sizes: AttentionSizes,
    projections: Mapping[str, Any],
    dtype: str,
    flops: int,
) -> Kernel | None:
    """Return the kernel of an implementation, which overwrites the caches.

    projections: arguments of `AttentionProjections`. dtype: of all tensors but the position.
    """
    inputs, outputs = (_stored(specs, dtype) for specs in (request.inputs, request.outputs))
    if {each.dtype for each in (*inputs, *outputs)} != {dtype, "int32"}:
        return None
    if OpReqType.ADD in request.requests:
        return None
    tasks = min(request.device.tasks_for_flops(flops), sizes.batch * sizes.kv_heads)
    part = _EXPONENTIAL.part(target(0), [source(0)], sizes.keys, [0.0], device=request.device)
    # Scores and a row of a head, as float32, in words of 64 bits.
    words = BLOCK_WORDS + (padded(sizes.keys, BLOCK) + padded(sizes.head_size, BLOCK)) // 2
    loop = CachedHeads(
        **projections,
        position=source(len(inputs) - 3),
        key_cache=target(1),
        value_cache=target(2),
        output=None if request.requests[0] is OpReqType.NULL else target(0),
        words_per_worker=words,
        words=Scratch(),
        cells=Scratch(),
        address=Scratch(),
    )
    function = cached_attention_loop.with_maps(scalar.map_of(part))
    function = function.bfloat16 if dtype == BFLOAT16 else function
    scratch = _WORD * words * request.device.workers(tasks)
    parts = [LoopPart(function, loop, tasks, scratch)]
    return native_kernel(
        name, parts, inputs, outputs, request.requests, request.device, flops=flops
    )


def _stored(specs: Sequence[TensorSpec], dtype: str) -> tuple[TensorSpec, ...]:
    """Return plain specs with a dtype in place of float32."""
    return tuple(
        replace(spec.with_layout(PLAIN), dtype=dtype if spec.dtype == FLOAT32 else spec.dtype)
        for spec in specs
    )
