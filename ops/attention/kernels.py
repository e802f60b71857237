"""Kernels of attention: compiled loops over float32 or bfloat16 tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.codegen.jit import NativeFunction
from mxrun.codegen.vectors import LANES
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType, adding
from mxrun.operator.native_kernel import LoopPart, Scratch, Slot, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.operator.scalar import without_add_requests
from mxrun.ops.attention.backward import (
    AttentionBackward,
    attention_gradient_loop,
    backward_words,
)
from mxrun.ops.attention.blocks import ROWS
from mxrun.ops.attention.cached_kernels import cached_kernel
from mxrun.ops.attention.forward import (
    AttentionForward,
    attention_loop,
    forward_words,
)
from mxrun.ops.attention.operator import AttentionProperty
from mxrun.ops.attention.shapes import AttentionSizes, padded
from mxrun.ops.product_blocks import multiplies_pairs


@implement("scaled_dot_product_attention", backend="jit")
class CompiledAttention(Implementation):
    """One loop over the heads for each direction; products of blocks stay in the cache."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare output and logsumexp."""
        assert isinstance(prop, AttentionProperty)
        given = (*request.inputs, *request.outputs)
        dtype = request.outputs[0].dtype
        if not all(spec.elements for spec in given) or dtype not in (FLOAT32, BFLOAT16):
            return None
        sizes = prop.sizes([spec.shape for spec in request.inputs])
        flops = prop.flops([spec.shape for spec in request.inputs], [])
        if prop.parameters.use_position:
            dtype = BFLOAT16 if request.inputs[0].dtype == BFLOAT16 else dtype
            projections = _projections(prop, sizes, 0, dtype)
            return cached_kernel(self.name, request, sizes, projections, dtype, flops)
        chunk = ROWS * 4
        chunks = sizes.batch * sizes.heads * math.ceil(sizes.queries / chunk)
        tasks = min(request.device.tasks_for_flops(flops), chunks)
        pairs = dtype == BFLOAT16 and multiplies_pairs(request.device)
        words = padded(forward_words(sizes, pairs), LANES)
        arguments = AttentionForward(
            **_tensors(prop, sizes, request.inputs, 0, dtype),
            logsumexp=_slot(request.requests, 1),
            scratch=Scratch(),
            words_per_worker=words,
            output=_slot(request.requests, 0),
            is_added=int(request.requests[0] is OpReqType.ADD),
            chunk=chunk,
            is_paired=int(pairs),
            halves=Scratch() if pairs else None,
        )
        loop = _loop(attention_loop, dtype, pairs)
        return native_kernel(
            self.name,
            [LoopPart(loop, arguments, tasks, 4 * words * request.device.workers(tasks))],
            _read(prop, request.inputs, dtype),
            (request.outputs[0].with_layout(PLAIN), TensorSpec(request.outputs[1].shape)),
            (*without_add_requests(request.requests[:1]), request.requests[1]),
            request.device,
            flops=flops,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradients of query, key and value, or of data, and of the mask."""
        assert isinstance(prop, AttentionProperty)
        shapes = [spec.shape for spec in request.in_grad]
        sizes, count = prop.sizes(shapes), prop.num_projections
        read = request.forward.inputs[0]
        assert read is not None
        dtype = read.dtype
        flops = 5 * prop.flops(shapes, []) // 2
        arguments = _gradient_arguments(prop, sizes, request, dtype)
        tasks = min(
            request.device.tasks_for_flops(flops), arguments.sequence_sets * arguments.group_sets
        )
        scratch = 4 * arguments.words_per_worker * request.device.workers(tasks)
        loop = _loop(attention_gradient_loop, dtype, bool(arguments.is_paired))
        given = (*request.forward.inputs, *request.forward.outputs)
        requests, added = request.requests, without_add_requests(request.requests[:count])
        types = [dtype] * count + [FLOAT32] * prop.parameters.use_mask
        grads: list[TensorSpec | None] = [
            replace(spec.with_layout(PLAIN), dtype=kind)
            for spec, kind in zip(request.in_grad, types, strict=False)
        ]
        return native_kernel(
            self.name,
            [LoopPart(loop, arguments, tasks, scratch)],
            (request.forward.outputs[0], None, *given),
            (*grads, *[None] * prop.parameters.use_lengths),
            (*added, *requests[count:]),
            request.device,
            flops=flops,
            adding=adding(partial(self.prepare_backward, prop), request, range(count)),
        )


def _gradient_arguments(
    prop: AttentionProperty, sizes: AttentionSizes, request: BackwardRequest, dtype: str
) -> AttentionBackward:
    first, count = len(request.out_grad), prop.num_projections
    outputs = first + len(request.in_data)
    added = [int(each is OpReqType.ADD) for each in request.requests]
    slots = [_slot(request.requests, index) for index in range(count)]
    if prop.parameters.packed:
        nbytes, slot = 2 if dtype == BFLOAT16 else 4, slots[0]
        slots = [
            slot and replace(slot, offset=nbytes * place) for place in (0, *sizes.packed_places)
        ]
        added = added[:1] * 3
    tensors = _tensors(prop, sizes, request.in_data, first, dtype)
    sets, mask = (sizes.batch, sizes.kv_heads), None
    if prop.parameters.use_mask:
        mask = _slot(request.requests, count)
    if mask is not None:
        # What is added to the same elements of the mask's gradient is added by one thread.
        apart = (tensors["mask_sequence"], tensors["mask_head"])
        sets = (sets[0] if apart[0] else 1, sets[1] if apart[1] else 1)
    pairs = dtype == BFLOAT16 and multiplies_pairs(request.device)
    return AttentionBackward(
        **tensors,
        logsumexp=source(outputs + 1),
        scratch=Scratch(),
        words_per_worker=padded(backward_words(sizes, pairs), LANES),
        output=source(outputs),
        output_grad=source(0),
        query_grad=slots[0],
        key_grad=slots[1],
        value_grad=slots[2],
        is_query_added=added[0],
        is_key_added=added[1],
        is_value_added=added[2],
        mask_grad=mask,
        sequence_sets=sets[0],
        group_sets=sets[1],
        is_paired=int(pairs),
        halves=Scratch() if pairs else None,
    )


def _loop(function: NativeFunction, dtype: str, pairs: bool) -> NativeFunction:
    """Return the variant of a loop for tensors of a dtype."""
    known = function.with_constants(is_paired=int(pairs))
    return known.bfloat16 if dtype == BFLOAT16 else known


def _slot(requests: tuple[OpReqType, ...], index: int) -> Slot | None:
    return None if requests[index] is OpReqType.NULL else target(index)


def _read(
    prop: AttentionProperty, inputs: Sequence[TensorSpec], dtype: str
) -> tuple[TensorSpec, ...]:
    """Return the specs that the loops read: a float32 mask, int32 lengths."""
    p = prop.parameters
    types = [dtype] * prop.num_projections + [FLOAT32] * p.use_mask + ["int32"] * p.use_lengths
    return tuple(TensorSpec(spec.shape, kind) for spec, kind in zip(inputs, types, strict=True))


def _projections(
    prop: AttentionProperty, sizes: AttentionSizes, first: int, dtype: str
) -> dict[str, Any]:
    """Return the arguments of `AttentionProjections`; `first` is the slot of the first input."""
    p, nbytes = prop.parameters, 2 if dtype == BFLOAT16 else 4
    if p.packed:
        columns = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_size
        places = (0, *sizes.packed_places)
        slots = [Slot("inputs", first, nbytes * place) for place in places]
        rows = [columns] * 3
    else:
        slots = [source(first + index) for index in range(3)]
        rows = [
            sizes.heads * sizes.head_size,
            sizes.kv_heads * sizes.head_size,
            sizes.kv_heads * sizes.value_size,
        ]
    return {
        **vars(sizes),
        "query": slots[0],
        "query_row": rows[0],
        "key": slots[1],
        "key_row": rows[1],
        "value": slots[2],
        "value_row": rows[2],
        "scale": prop.scale_of(sizes),
        "causal": int(p.causal),
    }


def _tensors(
    prop: AttentionProperty,
    sizes: AttentionSizes,
    inputs: Sequence[TensorSpec | None],
    first: int,
    dtype: str,
) -> dict[str, Any]:
    """Return the arguments of the loops over blocks; `first` is the slot of the first input."""
    p, others = prop.parameters, first + prop.num_projections
    given = inputs[prop.num_projections] if p.use_mask else None
    mask, pairs = (1, 1) if given is None else given.shape[:2], sizes.queries * sizes.keys
    return {
        **_projections(prop, sizes, first, dtype),
        "mask": source(others) if p.use_mask else None,
        "mask_sequence": pairs * mask[1] * (mask[0] > 1),
        "mask_head": pairs * (mask[1] > 1),
        "lengths": source(others + p.use_mask) if p.use_lengths else None,
    }
