"""SoftmaxOutput with oneDNN and compiled loops, in float32."""

from __future__ import annotations

import math

import numpy as np

from mxrun.backend.jit import (
    Block,
    float32s,
    int32s,
    integer,
    native,
    real,
    share,
)
from mxrun.backend.onednn import operations
from mxrun.backend.onednn.primitive import Argument
from mxrun.backend.team import team_for_elements
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    KernelPart,
    LoopPart,
    PrimitivePart,
    Slot,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement


@native
def cross_entropy_loop(block: Block) -> None:
    """loss[0] = sum over samples, in order, of weight * -(target . log(output))."""
    samples, classes = integer(block, 0), integer(block, 1)
    output, label, loss = float32s(block, 2), int32s(block, 3), float32s(block, 4)
    ignoring, ignored = integer(block, 5), integer(block, 6)
    own, other, tiny = real(block, 7), real(block, 8), real(block, 9)
    weight, repeats = float32s(block, 10), integer(block, 11)
    total = 0.0
    for n in range(samples):
        if ignoring != 0 and label[n] == ignored:
            continue
        chosen = tiny
        if 0 <= label[n] < classes:
            chosen = output[n * classes + label[n]]
            if chosen == 0:
                # For data that are not finite, oneDNN gives NaN for those classes and 0 for the
                # others.
                for k in range(n * classes, (n + 1) * classes):
                    if math.isnan(output[k]):
                        chosen = output[k]
            chosen = max(chosen, tiny)
        entropy = -own * math.log(chosen)
        if other > 0:
            for k in range(classes):
                if k != label[n]:
                    entropy -= other * math.log(max(output[n * classes + k], tiny))
        if integer(block, 10) != 0:
            entropy *= weight[n // repeats]
        total += entropy
    loss[0] = total


@native
def softmax_gradient_loop(block: Block) -> None:
    """gradient = (output - target) * weight * scale / divisor; it may overwrite the output."""
    samples, classes = integer(block, 0), integer(block, 1)
    output, label, gradient = float32s(block, 2), int32s(block, 3), float32s(block, 4)
    ignoring, ignored = integer(block, 5), integer(block, 6)
    own, other, scale = real(block, 7), real(block, 8), real(block, 9)
    weight, repeats = float32s(block, 10), integer(block, 11)
    normalization = integer(block, 12)
    counted = 0
    if normalization != 0:
        for n in range(samples):
            present = integer(block, 10) == 0 or weight[n // repeats] != 0
            if present and (normalization == 1 or label[n] != ignored):
                counted += 1
    begin, end = share(block, samples)
    for n in range(begin, end):
        row = n * classes
        factor = scale / np.float32(max(counted, 1))
        if integer(block, 10) != 0:
            factor *= weight[n // repeats]
        if ignoring != 0 and label[n] == ignored:
            factor = np.float32(0)
        inside = 0 <= label[n] < classes
        chosen = output[row + label[n]] if inside else own
        if integer(block, 2) != integer(block, 4):
            for k in range(row, row + classes):
                gradient[k] = output[k]
        for k in range(row, row + classes):
            gradient[k] = (gradient[k] - other) * factor
        if inside:
            gradient[row + label[n]] = (chosen - own) * factor


@implement("SoftmaxOutput", backend="onednn")
class OnednnSoftmaxOutput(Implementation):
    """oneDNN's softmax of float32 rows with one int32 label each; loops for loss and gradient."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the softmax on the team; the loss, if requested, on one thread in order."""
        data, label = request.inputs[:2]
        if not self._serves(prop, data, label) or request.requests[0] is OpReqType.NULL:
            return None
        samples, classes = label.elements, data.elements // label.elements
        team = team_for_elements(data.elements, request.threads)
        softmax = operations.softmax_forward(TensorSpec((samples, classes)), 1, team)
        slots = {Argument.SOURCE: source(0), Argument.OUTPUT: target(0)}
        parts: list[KernelPart] = [PrimitivePart(softmax, slots)]
        loss = request.requests[1] is not OpReqType.NULL
        if loss:
            tiny = float(np.finfo(np.float32).tiny)
            places = (target(0), source(1), target(1))
            rules = self._rules(prop, label, classes, tiny, 2)
            parts.append(LoopPart(cross_entropy_loop, (samples, classes, *places, *rules), 1))
        return native_kernel(
            f"onednn:{softmax.implementation}",
            parts,
            tuple(spec.with_layout(PLAIN) for spec in request.inputs),
            (request.outputs[0].with_layout(PLAIN), request.outputs[1] if loss else None),
            request.requests,
            request.threads,
            flops=prop.flops([data.shape], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient in one pass over the output, which it may overwrite."""
        label, output = request.in_data[1], request.out_data[0]
        assert label is not None
        assert output is not None
        samples, classes = label.elements, output.elements // label.elements
        outputs, arguments = len(request.out_grad), len(request.in_data)
        places = (source(outputs + arguments), source(outputs + 1), target(0))
        scale = float(prop.parameters.grad_scale)
        rules = self._rules(prop, label, classes, scale, outputs + 2)
        normalization = ("null", "batch", "valid").index(prop.parameters.normalization)
        part = LoopPart(
            softmax_gradient_loop,
            (samples, classes, *places, *rules, normalization),
            team_for_elements(output.elements, request.threads),
        )
        read = (None, *request.in_data[1:], output, None)
        return native_kernel(
            "jit",
            [part],
            (
                *(None,) * outputs,
                *(None if spec is None else spec.with_layout(PLAIN) for spec in read),
            ),
            (request.in_grad[0].with_layout(PLAIN), *(None,) * (arguments - 1)),
            request.requests,
            request.threads,
            flops=2 * output.elements,
        )

    def _serves(self, prop: AnyProperty, data: TensorSpec, label: TensorSpec) -> bool:
        p = prop.parameters
        rows = data.shape[:-1] if p.preserve_shape else data.shape[:1]
        one_each = label.elements == math.prod(rows)
        return (
            onednn_serves(data)
            and label.dtype == "int32"
            and one_each
            and not (p.multi_output or p.out_grad)
        )

    def _rules(
        self, prop: AnyProperty, label: TensorSpec, classes: int, last: float, weight: int
    ) -> tuple[Slot | int | float, ...]:
        """Return further slots of both loops.

        They are: ignoring, ignored, target at and outside the label, `last`, weights, samples per
        weight.
        """
        p = prop.parameters
        smooth = float(p.smooth_alpha)
        return (
            *(int(p.use_ignore), int(p.ignore_label)),
            *(1.0 - smooth, smooth / max(classes - 1, 1), last),
            *(source(weight) if p.use_sample_weight else 0, label.elements // label.shape[0]),
        )
