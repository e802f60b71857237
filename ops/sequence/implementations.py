"""SequenceMask, SequenceLast and SequenceReverse in compiled loops."""

from __future__ import annotations

import math

from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.operator.scalar import without_add_requests
from mxrun.ops.indexing.kernels import (
    gather_kernel,
    is_served,
    of_dtype,
    scatter_kernel,
)
from mxrun.ops.indexing.loops import RowSelection
from mxrun.ops.sequence.loops import Sequences, sequence_loop


@implement("SequenceMask", "SequenceReverse", "_sequence_hold", backend="jit")
class CompiledSequences(Implementation):
    """One pass over float32 or bfloat16 data, with int32 lengths."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the pass over data."""
        if not is_served(request):
            return None
        data, *lengths = (spec.with_layout(PLAIN) for spec in request.inputs)
        part = _part(prop, data, source(1) if lengths else None, request, is_backward=False)
        return native_kernel(
            self.name,
            [part],
            (data, *lengths),
            (data,),
            without_add_requests(request.requests),
            request.device,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the pass over the output's gradient."""
        data = request.in_grad[0].with_layout(PLAIN)
        lengths = [spec and spec.with_layout(PLAIN) for spec in request.in_data[1:]]
        part = _part(prop, data, source(2) if lengths else None, request, is_backward=True)
        return native_kernel(
            self.name,
            [part],
            (data, None, *lengths, None),
            (data, *(None for _ in lengths)),
            without_add_requests(request.requests),
            request.device,
        )


def _part(
    prop: AnyProperty,
    data: TensorSpec,
    lengths: Slot | None,
    request: ForwardRequest | BackwardRequest,
    is_backward: bool,
) -> LoopPart:
    """Return the pass; a masked gradient is 0."""
    p = prop.parameters
    steps, batch, columns = _sizes(data.shape, p.axis)
    masks = prop.type_string == "SequenceMask"
    sequences = Sequences(
        axis=p.axis,
        steps=steps,
        batch=batch,
        columns=columns,
        lengths=lengths,
        data=source(0),
        output=target(0),
        reverses=int(prop.type_string == "SequenceReverse"),
        holds=int(prop.type_string == "_sequence_hold" and not is_backward),
        value=float(p.value) if masks and not is_backward else 0.0,
        is_added=int(request.requests[0] is OpReqType.ADD),
    )
    tasks = request.device.tasks_for_elements(data.elements)
    return LoopPart(of_dtype(sequence_loop, data), sequences, tasks)


@implement("SequenceLast", backend="jit")
class CompiledSequenceLast(Implementation):
    """Copies of one row of each sequence, of float32 or bfloat16 data, with int32 lengths."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare one copy for each sequence."""
        if not is_served(request):
            return None
        return gather_kernel(self.name, _last_rows(prop, request.inputs[0].shape), request)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare zeros and one addition for each sequence."""
        return scatter_kernel(self.name, _last_rows(prop, request.in_grad[0].shape), request)


def _last_rows(prop: AnyProperty, shape: Shape) -> RowSelection:
    """Return the rows length - 1, or the last ones."""
    p = prop.parameters
    steps, batch, columns = _sizes(shape, p.axis)
    return RowSelection(
        rows=batch,
        columns=columns,
        size=steps,
        inner=batch if p.axis == 0 else 1,
        index_count=batch,
        offset=-1 if p.use_sequence_length else steps - 1,
    )


def _sizes(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Return the numbers of steps, of sequences and of elements of one step."""
    return shape[axis], shape[1 - axis], math.prod(shape[2:])
