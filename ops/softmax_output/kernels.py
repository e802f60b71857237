"""SoftmaxOutput with oneDNN and compiled loops, in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.backend.arguments import Arguments, Float32s, Int32s, Integer, Real
from mxrun.backend.jit import native, share
from mxrun.backend.onednn import operations
from mxrun.backend.onednn.primitive import Argument
from mxrun.backend.team import team_for_elements
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    KernelPart,
    LoopPart,
    PrimitivePart,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.loss import NORMALIZATIONS, gradient_kernel


class SoftmaxSamples(Arguments):
    """Softmax output [samples, classes], one label per sample and their rules.

    own, other: target at the label's class and at the other classes. ignored: label without loss
    and gradient if `is_ignoring`. weight: None, or one for each run of `samples_per_weight`.
    """

    samples: Integer
    classes: Integer
    output: Float32s
    label: Int32s
    is_ignoring: Integer
    ignored: Integer
    own: Real
    other: Real
    weight: Float32s
    samples_per_weight: Integer


class CrossEntropyLoss(SoftmaxSamples):
    """Arguments of `cross_entropy_loop`; tiny: lower bound on probabilities."""

    loss: Float32s
    tiny: Real


@native
def cross_entropy_loop(call: CrossEntropyLoss) -> None:
    """loss[0] = sum over samples, in order, of weight * -(target . log(output))."""
    classes, output, label, tiny = call.classes, call.output, call.label, call.tiny
    total = 0.0
    for n in range(call.samples):
        if call.is_ignoring and label[n] == call.ignored:
            continue
        chosen = np.float32(0)
        if 0 <= label[n] < classes:
            chosen = output[n * classes + label[n]]
        if chosen == 0:
            # For data that are not finite, oneDNN gives NaN for those classes and 0 for the others.
            for k in range(n * classes, (n + 1) * classes):
                if math.isnan(output[k]):
                    chosen = output[k]
        chosen = max(chosen, tiny)
        entropy = -call.own * math.log(chosen)
        if call.other > 0:
            for k in range(classes):
                if k != label[n]:
                    entropy -= call.other * math.log(max(output[n * classes + k], tiny))
        if call.weight is not None:
            entropy *= call.weight[n // call.samples_per_weight]
        total += entropy
    call.loss[0] = total


class SoftmaxGradient(SoftmaxSamples):
    """Arguments of `softmax_gradient_loop`; normalization: index in NORMALIZATIONS."""

    gradient: Float32s
    scale: Real
    normalization: Integer


@native
def softmax_gradient_loop(call: SoftmaxGradient) -> None:
    """gradient = (output - target) * weight * scale / divisor; it may overwrite the output."""
    classes, output, label, gradient = call.classes, call.output, call.label, call.gradient
    counted = 0
    if call.normalization != 0:
        for n in range(call.samples):
            present = call.weight is None or call.weight[n // call.samples_per_weight] != 0
            if present and (call.normalization == 1 or label[n] != call.ignored):
                counted += 1
    begin, end = share(call.samples)
    for n in range(begin, end):
        row = n * classes
        factor = call.scale / np.float32(max(counted, 1))
        if call.weight is not None:
            factor *= call.weight[n // call.samples_per_weight]
        if call.is_ignoring and label[n] == call.ignored:
            factor = np.float32(0)
        inside = 0 <= label[n] < classes
        chosen = output[row + label[n]] if inside else call.own
        if output is not gradient:
            for k in range(row, row + classes):
                gradient[k] = output[k]
        for k in range(row, row + classes):
            gradient[k] = (gradient[k] - call.other) * factor
        if inside:
            gradient[row + label[n]] = (chosen - call.own) * factor


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
            entropy = CrossEntropyLoss(
                **self._rules(prop, label, classes),
                output=target(0),
                label=source(1),
                weight=source(2) if prop.parameters.use_sample_weight else None,
                loss=target(1),
                tiny=float(np.finfo(np.float32).tiny),
            )
            parts.append(LoopPart(cross_entropy_loop, entropy, 1))
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
        classes = output.elements // label.elements
        outputs, arguments = len(request.out_grad), len(request.in_data)
        softmax_gradient = SoftmaxGradient(
            **self._rules(prop, label, classes),
            output=source(outputs + arguments),
            label=source(outputs + 1),
            weight=source(outputs + 2) if prop.parameters.use_sample_weight else None,
            gradient=target(0),
            scale=float(prop.parameters.grad_scale),
            normalization=NORMALIZATIONS.index(prop.parameters.normalization),
        )
        team = team_for_elements(output.elements, request.threads)
        part = LoopPart(softmax_gradient_loop, softmax_gradient, team)
        return gradient_kernel(part, request, 2 * output.elements)

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

    def _rules(self, prop: AnyProperty, label: TensorSpec, classes: int) -> dict[str, Any]:
        """Return the arguments of both loops that are numbers."""
        p = prop.parameters
        smooth = float(p.smooth_alpha)
        return {
            "samples": label.elements,
            "classes": classes,
            "is_ignoring": int(p.use_ignore),
            "ignored": int(p.ignore_label),
            "own": 1.0 - smooth,
            "other": smooth / max(classes - 1, 1),
            "samples_per_weight": label.elements // label.shape[0],
        }
