"""scaled_dot_product_attention by cuDNN's products of stacks of matrices, in bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from mxrun.base.dataclass import dataclass
from mxrun.base.device import CUDA, DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32, item_size
from mxrun.base.tensor import PLAIN, TensorSpec, align
from mxrun.codegen.jit import NativeFunction
from mxrun.operator.constraints import Unsupported
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    JoinedPart,
    KernelPart,
    LoopPart,
    Scratch,
    Slot,
    native_kernel,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.attention.operator import AttentionProperty
from mxrun.ops.attention.probabilities import (
    HeadRows,
    ScoreRows,
    merge_loop,
    probabilities_loop,
    recomputed_probabilities_loop,
    score_gradients_loop,
    split_loop,
)
from mxrun.ops.attention.shapes import AttentionSizes, padded
from mxrun.ops.cudnn import StackedMatrices, cudnn_serves, stacked_product

# Elements at multiples of which rows of scores begin: cuDNN's kernels read 16 bytes at a time.
_ROW = 8
# Numbers of the stacks behind those of query, key and value.
_OUTPUT, _RESULT = 3, 4


@implement("scaled_dot_product_attention", backend="cudnn", devices=(CUDA,), before="jit")
class CudnnAttention(Implementation):
    """Two products of all heads, and a loop over the rows of scores between them.

    The scores are in memory, in float32, and the probabilities in bfloat16: a workspace of 6 bytes
    for each pair of a query and a key. Backward computes them again. Not for float32, whose stacks
    of matrices cuDNN multiplies only after rounding, nor with a mask, lengths or a cache, nor for
    heads that share keys: these are loops.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare output and logsumexp."""
        assert isinstance(prop, AttentionProperty)
        p, output = prop.parameters, request.outputs[0].with_layout(PLAIN)
        if p.use_position or p.use_mask or p.use_lengths or p.kv_heads != p.num_heads:
            return None
        if output.dtype != BFLOAT16 or not cudnn_serves(request.device, output):
            return None
        if request.requests[0] is not OpReqType.WRITE or not cudnn_serves(
            request.device, *request.inputs
        ):
            return None
        sizes = prop.sizes([spec.shape for spec in request.inputs])
        heads, count = AttentionHeads(prop, sizes, request.device), prop.num_projections
        slots = [source(i) for i in range(count)]
        logsumexp = None if request.requests[1] is OpReqType.NULL else target(1)
        try:
            part = heads.forward(slots, target(0), logsumexp)
            if request.has_backward:
                heads.backward(
                    [source(i) for i in range(count + 4)], [target(i) for i in range(count)]
                )
        except Unsupported:
            return None
        return native_kernel(
            self.name,
            [part],
            tuple(TensorSpec(spec.shape, BFLOAT16) for spec in request.inputs),
            (output, TensorSpec(request.outputs[1].shape)),
            request.requests,
            request.device,
            flops=prop.flops([spec.shape for spec in request.inputs], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradients of query, key and value, or of data."""
        assert isinstance(prop, AttentionProperty)
        sizes = prop.sizes([spec.shape for spec in request.in_grad])
        heads = AttentionHeads(prop, sizes, request.device)
        count = prop.num_projections
        targets = [
            None if each is OpReqType.NULL else target(i) for i, each in enumerate(request.requests)
        ]
        sources = [source(i) for i in range(count + 4)]
        gradients = [replace(spec.with_layout(PLAIN), dtype=BFLOAT16) for spec in request.in_grad]
        return native_kernel(
            self.name,
            [heads.backward(sources, targets)],
            (request.forward.outputs[0], None, *request.forward.inputs, *request.forward.outputs),
            tuple(gradients),
            request.requests,
            request.device,
            flops=5 * request.forward.flops // 2,
        )


@dataclass(frozen=True)
class Projection:
    """Query, key, value or output of all heads: `width` elements of each of `rows` positions.

    slot: its first element, None for a gradient that is not wanted; columns: elements of a
    position. stack: number of its copy in scratch space, head by head.
    """

    slot: Slot | None
    width: int
    rows: int
    columns: int
    stack: int


class AttentionHeads:
    """Parts of the kernels of attention: products of all heads, and loops between them.

    cuDNN multiplies stacks with one stride from matrix to matrix, so that the heads of all
    sequences are copied to stacks in scratch space, behind scores and probabilities.
    """

    def __init__(
        self, prop: AttentionProperty, sizes: AttentionSizes, device: DeviceDescription
    ) -> None:
        self.prop, self.sizes, self.device = prop, sizes, device
        # Elements between rows of scores.
        self.stride: int = padded(sizes.keys, _ROW)
        self.count: int = sizes.batch * sizes.heads
        self.pairs: int = self.count * sizes.queries * self.stride
        largest = max(sizes.queries, sizes.keys) * max(sizes.head_size, sizes.value_size)
        part = partial(align, alignment=device.alignment)
        self.stack_bytes = part(2 * self.count * largest)
        self.stacks_at = part(4 * self.pairs) + part(2 * self.pairs)
        self.scratch_bytes = self.stacks_at + (_RESULT + 1) * self.stack_bytes
        self.scores = self._square(Scratch(), FLOAT32)
        self.probabilities = self._square(Scratch(part(4 * self.pairs)), BFLOAT16)

    def forward(self, slots: Sequence[Slot], output: Slot, logsumexp: Slot | None) -> KernelPart:
        """Return all parts of forward; raises Unsupported."""
        query, key, value = self.projections(slots)
        result = self.output(output, _RESULT)
        return JoinedPart(
            (
                *map(self._split, (query, key, value)),
                self._product(self._stack(query), self._stack(key).turned, self.scores),
                self._loop(probabilities_loop, logsumexp),
                self._product(self.probabilities, self._stack(value), self._stack(result)),
                self._merged(result),
            )
        )

    def backward(self, sources: Sequence[Slot], targets: Sequence[Slot | None]) -> KernelPart:
        """Return all parts of backward with these inputs and outputs; raises Unsupported."""
        count = self.prop.num_projections
        query, key, value = self.projections(sources[2 : 2 + count])
        grad, logsumexp = self.output(sources[0], _OUTPUT), sources[2 + count + 1]
        query_grad, key_grad, value_grad = self.projections(targets[:count])
        q, k, v, g = map(self._stack, (query, key, value, grad))
        return JoinedPart(
            (
                *map(self._split, (query, key, value, grad)),
                self._product(q, k.turned, self.scores),
                self._loop(recomputed_probabilities_loop, logsumexp),
                *self._gradient(self.probabilities.turned, g, value_grad),
                self._product(g, v.turned, self.scores),
                self._loop(score_gradients_loop, logsumexp),
                *self._gradient(self.probabilities, k, query_grad),
                *self._gradient(self.probabilities.turned, q, key_grad),
            )
        )

    def projections(self, slots: Sequence[Slot | None]) -> list[Projection]:
        """Return query, key and value in their tensors, or in the one that packs them."""
        s, nbytes = self.sizes, item_size(BFLOAT16)
        if len(slots) > 1:
            sizes = (
                (s.head_size, s.queries),
                (s.head_size, s.keys),
                (s.value_size, s.keys),
            )
            return [
                Projection(slot, width=width, rows=rows, columns=s.heads * width, stack=stack)
                for stack, (slot, (width, rows)) in enumerate(zip(slots, sizes, strict=False))
            ]
        (slot,) = slots
        columns = 3 * s.heads * s.head_size
        return [
            Projection(
                slot and replace(slot, offset=nbytes * place),
                width=s.head_size,
                rows=s.queries,
                columns=columns,
                stack=stack,
            )
            for stack, place in enumerate((0, *s.packed_places))
        ]

    def output(self, slot: Slot, stack: int) -> Projection:
        """Return the output, or its gradient."""
        s = self.sizes
        columns = s.heads * s.value_size
        return Projection(slot, width=s.value_size, rows=s.queries, columns=columns, stack=stack)

    def _gradient(
        self, left: StackedMatrices, right: StackedMatrices, result: Projection
    ) -> tuple[KernelPart, ...]:
        """Return the product for a gradient, if it is wanted, and its copy to where it belongs."""
        if result.slot is None:
            return ()
        result = replace(result, stack=_RESULT)
        return self._product(left, right, self._stack(result)), self._merged(result)

    def _product(
        self, left: StackedMatrices, right: StackedMatrices, output: StackedMatrices
    ) -> KernelPart:
        return stacked_product(left, right, output, self.device, self.scratch_bytes)

    def _split(self, projection: Projection) -> KernelPart:
        return self._copy(split_loop, projection)

    def _merged(self, projection: Projection) -> KernelPart:
        return self._copy(merge_loop, projection)

    def _copy(self, function: NativeFunction, projection: Projection) -> KernelPart:
        rows = self.count * projection.rows
        arguments = HeadRows(
            rows=rows,
            heads=self.sizes.heads,
            positions=projection.rows,
            width=projection.width,
            columns=projection.columns,
            tensor=projection.slot,
            stack=self._stack(projection).place,
        )
        tasks = self.device.tasks_for_elements(rows * projection.width)
        return LoopPart(function, arguments, tasks, self.scratch_bytes)

    def _loop(self, function: NativeFunction, logsumexp: Slot | None) -> KernelPart:
        """Return a loop over the rows of scores."""
        arguments = ScoreRows(
            rows=self.count * self.sizes.queries,
            queries=self.sizes.queries,
            keys=self.sizes.keys,
            stride=self.stride,
            scale=self.prop.scale_of(self.sizes),
            causal=int(self.prop.parameters.causal),
            scores=self.scores.place,
            probabilities=self.probabilities.place,
            logsumexp=logsumexp,
        )
        return LoopPart(
            function, arguments, self.device.tasks_for_elements(self.pairs), self.scratch_bytes
        )

    def _square(self, place: Scratch, dtype: str) -> StackedMatrices:
        s = self.sizes
        sizes = (self.count, s.queries, s.keys)
        return StackedMatrices(place, dtype, sizes, (s.queries * self.stride, self.stride, 1))

    def _stack(self, projection: Projection) -> StackedMatrices:
        place = Scratch(self.stacks_at + projection.stack * self.stack_bytes)
        rows, width = projection.rows, projection.width
        sizes = (self.count, rows, width)
        return StackedMatrices(place, BFLOAT16, sizes, (rows * width, width, 1))
