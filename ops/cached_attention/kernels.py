"""_cached_attention in a compiled loop, for tensors that are float32, or all bfloat16."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.device import tasks_for_flops
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Scratch, source, target
from mxrun.operator.register import AnyProperty, implement
from mxrun.ops.cached_attention.loops import BLOCK_WORDS, CachedHeads, cached_attention_loop
from mxrun.ops.cached_attention.operator import CachedAttentionProperty
from mxrun.ops.forward_only import ForwardOnlyImplementation

_EXPONENTIAL = scalar.compile(lambda x, shift: scalar.exp(x - shift), parameters=("shift",))
_WORD = 8


@implement("_cached_attention", backend="jit")
class CompiledCachedAttention(ForwardOnlyImplementation):
    """One loop over heads, which writes the caches in place."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the loop; beside a bfloat16 output all tensors are bfloat16, also the caches."""
        assert isinstance(prop, CachedAttentionProperty)
        arguments = len(prop.list_arguments()) - 1
        attends = request.requests[0] is not OpReqType.NULL
        is_low = BFLOAT16 in (request.outputs[0].dtype, request.inputs[0].dtype)
        if is_low:
            request = _lowered(request, arguments)
        floats = [spec for i, spec in enumerate(request.inputs) if i != arguments]
        floats += request.outputs
        expected = BFLOAT16 if is_low else FLOAT32
        if any(spec.dtype != expected for spec in floats) or OpReqType.ADD in request.requests:
            return None
        given = [spec.with_layout(PLAIN).shape for spec in request.inputs[:arguments]]
        sizes = prop.sizes(given)
        tasks = min(tasks_for_flops(prop.flops(given, [])), sizes.batch * sizes.groups)
        part = _EXPONENTIAL.part(target(0), [source(0)], sizes.length, [0.0], device=request.device)
        words = BLOCK_WORDS + 8 * (-(-sizes.length // 16) - (-sizes.size // 16))
        key_begin, value_begin = 0, 0
        if prop.parameters.packed:
            key_begin = sizes.heads * sizes.size
            value_begin = key_begin + sizes.groups * sizes.size
        loop = CachedHeads(
            **vars(sizes),
            scale=prop.parameters.scale,
            position=source(arguments),
            query=source(0),
            query_pitch=given[0][-1],
            key=source(min(1, arguments - 1)),
            key_begin=key_begin,
            key_pitch=given[min(1, arguments - 1)][-1],
            value=source(arguments - 1),
            value_begin=value_begin,
            value_pitch=given[-1][-1],
            key_cache=target(1),
            value_cache=target(2),
            output=target(0) if attends else None,
            words_per_worker=words,
            words=Scratch(),
            cells=Scratch(),
            address=Scratch(),
        )
        function = cached_attention_loop.with_maps(scalar.map_of(part))
        function = function.bfloat16 if is_low else function
        scratch = _WORD * words * request.device.workers(tasks)
        part = LoopPart(function, loop, tasks, scratch)
        return self.plain_kernel(prop, request, [part])


def _lowered(request: ForwardRequest, position: int) -> ForwardRequest:
    """Return the request with bfloat16 for float32 everywhere but at the index of the position."""

    def low(spec: TensorSpec) -> TensorSpec:
        return replace(spec, dtype=BFLOAT16) if spec.dtype == FLOAT32 else spec

    return replace(
        request,
        inputs=tuple(spec if i == position else low(spec) for i, spec in enumerate(request.inputs)),
        outputs=tuple(map(low, request.outputs)),
    )
