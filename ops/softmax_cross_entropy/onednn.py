"""softmax_cross_entropy by oneDNN's softmax and compiled loops."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.tensor import PLAIN
from mxrun.device.cpu.onednn import operations
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart, onednn_serves
from mxrun.device.cpu.onednn.primitive import Argument
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, extra, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.loss import gradient_kernel
from mxrun.ops.softmax_cross_entropy.loops import (
    SoftmaxCrossEntropyGradient,
    SoftmaxCrossEntropyLoss,
    gradient_loop,
    loss_loop,
)


@implement("softmax_cross_entropy", backend="onednn")
class OnednnSoftmaxCrossEntropy(Implementation):
    """oneDNN's softmax, stored for backward, and two loops; float32 data, int32 labels."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the softmax on the team, then the sum on one thread, in sample order."""
        data, label = (spec.with_layout(PLAIN) for spec in request.inputs[:2])
        served = onednn_serves(data) and label.dtype == "int32"
        if not served or OpReqType.NULL in request.requests:
            return None
        team = request.device.team_for_elements(data.elements)
        softmax = operations.softmax_forward(data, 1, team)
        samples, classes = data.shape
        loss = SoftmaxCrossEntropyLoss(
            samples=samples,
            classes=classes,
            probability=extra(0),
            label=source(1),
            weight=source(2) if len(request.inputs) == 3 else None,
            loss=target(0),
        )
        return native_kernel(
            f"onednn:{softmax.implementation}",
            [
                PrimitivePart(softmax, {Argument.SOURCE: source(0), Argument.OUTPUT: extra(0)}),
                LoopPart(loss_loop, loss, 1),
            ],
            (data, label, *request.inputs[2:]),
            request.outputs,
            request.requests,
            request.device,
            extra_outputs=(data,),
            flops=5 * data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient in one pass over forward's stored softmax."""
        (gradient,) = request.out_grad
        (probability,) = request.forward.extra_outputs
        arguments = len(request.in_data)
        samples, classes = probability.shape
        loss_gradient = SoftmaxCrossEntropyGradient(
            samples=samples,
            classes=classes,
            probability=source(2 + arguments),
            label=source(2),
            weight=source(3) if arguments == 3 else None,
            head=None if gradient is None else source(0),
            gradient=target(0),
        )
        team = request.device.team_for_elements(probability.elements)
        part = LoopPart(gradient_loop, loss_gradient, team)
        # Backward by loops reads forward's softmax in place of data.
        request = replace(request, in_data=(None, *request.in_data[1:]))
        return gradient_kernel(part, request, 2 * probability.elements)
