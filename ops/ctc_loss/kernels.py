"""CTCLoss by compiled loops, for float32 data, int32 labels and int32 lengths."""

from __future__ import annotations

from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import PLAIN
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Scratch, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.ctc_loss.loops import (
    Alignments,
    ScaledGradients,
    ctc_loop,
    row_width,
    scaled_gradients_loop,
    scratch_size,
)

_WORD = 8


@implement("CTCLoss", backend="jit")
class CompiledCTCLoss(Implementation):
    """Forward and backward variables sample by sample; backward scales the gradient."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the losses and, where requested, the gradient."""
        inputs = tuple(spec.with_layout(PLAIN) for spec in request.inputs)
        data, label, *lengths = inputs
        integers = all(spec.dtype == "int32" for spec in (label, *lengths))
        if data.dtype != FLOAT32 or not integers or not data.elements:
            return None
        p, (steps, batch, classes) = prop.parameters, data.shape
        if p.layout == "NTC":
            steps, batch = batch, steps
        tasks = min(request.device.tasks_for_elements(8 * data.elements), batch)
        words = scratch_size(steps, label.shape[1])
        scratch = _WORD * words * request.device.workers(tasks)
        wanted = [
            None if req is OpReqType.NULL else target(index)
            for index, req in enumerate(request.requests)
        ]
        alignments = Alignments(
            steps=steps,
            batch=batch,
            classes=classes,
            labels=label.shape[1],
            is_batch_first=int(p.layout == "NTC"),
            blank=p.blank(classes),
            padding=p.padding,
            data=source(0),
            label=source(1),
            data_lengths=source(2) if p.use_data_lengths else None,
            label_lengths=source(len(inputs) - 1) if p.use_label_lengths else None,
            output=wanted[0],
            gradient=wanted[1],
            width=row_width(label.shape[1]),
            words_per_worker=words,
            scratch=Scratch(),
        )
        return native_kernel(
            self.name,
            [LoopPart(ctc_loop, alignments, tasks, scratch)],
            inputs,
            tuple(spec.with_layout(PLAIN) for spec in request.outputs),
            request.requests,
            request.device,
            flops=prop.flops([data.shape, label.shape], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the product of the hidden gradient and the output's gradient."""
        data, *others = request.in_grad
        data, scale = data.with_layout(PLAIN), request.out_grad[0]
        assert scale is not None
        (batch,), classes, arguments = scale.shape, data.shape[2], len(request.in_data)
        rows = data.elements // classes
        scaled = ScaledGradients(
            rows=rows,
            batch=batch,
            repeats=rows // batch if prop.parameters.layout == "NTC" else 1,
            classes=classes,
            gradient=source(2 + arguments + 1),
            scale=source(0),
            output=target(0),
        )
        tasks = request.device.tasks_for_elements(data.elements)
        return native_kernel(
            self.name,
            [LoopPart(scaled_gradients_loop, scaled, tasks)],
            (scale, None, *(None,) * arguments, None, data),
            (data, *(None for _ in others)),
            request.requests,
            request.device,
            flops=data.elements,
        )
