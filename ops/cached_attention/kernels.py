"""_cached_attention in a compiled loop, for float32 tensors."""

from __future__ import annotations

from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import PLAIN
from mxrun.operator import scalar
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.launch import Code
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
        """Prepare the loop for tensors of float32."""
        assert isinstance(prop, CachedAttentionProperty)
        arguments = len(prop.list_arguments()) - 1
        floats = (*request.inputs[:arguments], *request.outputs)
        attends = request.requests[0] is not OpReqType.NULL
        if any(spec.dtype != FLOAT32 for spec in floats) or OpReqType.ADD in request.requests:
            return None
        given = [spec.with_layout(PLAIN).shape for spec in request.inputs[:arguments]]
        sizes = prop.sizes(given)
        team = min(request.device.team_for_flops(prop.flops(given, [])), sizes.batch * sizes.groups)
        part = _EXPONENTIAL.part(target(0), [source(0)], sizes.length, [0.0], device=request.device)
        words = BLOCK_WORDS + 8 * -(-sizes.length // 16)
        key_begin, value_begin = 0, 0
        if prop.parameters.packed:
            key_begin = sizes.heads * sizes.size
            value_begin = key_begin + sizes.groups * sizes.size
        loop = CachedHeads(
            batch=sizes.batch,
            positions=sizes.positions,
            groups=sizes.groups,
            shared=sizes.heads // sizes.groups,
            size=sizes.size,
            value_size=sizes.value_size,
            length=sizes.length,
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
            code=Code(part.function),
            words_per_thread=words,
            team=team,
            words=Scratch(),
            cells=Scratch(),
            address=Scratch(),
        )
        part = LoopPart(cached_attention_loop, loop, team, _WORD * words * team)
        return self.plain_kernel(prop, request, [part])
