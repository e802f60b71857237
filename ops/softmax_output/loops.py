"""Loss and gradient of SoftmaxOutput as compiled loops, in float32."""

from __future__ import annotations

import math

import numpy as np

from mxrun.codegen.arguments import Float32s, Integer, Real
from mxrun.codegen.intrinsics import each
from mxrun.codegen.jit import compact
from mxrun.codegen.loops import elements_of_task
from mxrun.ops.labelled_rows import LabelledRows, weight_of


class SoftmaxSamples(LabelledRows):
    """Softmax output [samples, classes]; own, other: target at the label's and at other classes."""

    output: Float32s
    own: Real
    other: Real


class CrossEntropyLoss(SoftmaxSamples):
    """Arguments of `cross_entropy_loop`; tiny: lower bound on probabilities."""

    loss: Float32s
    tiny: Real


@compact
def cross_entropy_loop(call: CrossEntropyLoss) -> None:
    """loss[0] = sum over samples, in order, of weight * -(target . log(output))."""
    classes, output, label, tiny = call.classes, call.output, call.label, call.tiny
    total = 0.0
    for n in range(call.samples):
        weight = weight_of(call, n)
        if weight == 0:
            continue
        # A row of data that are not finite is NaN everywhere, and so is the loss of any label.
        chosen = output[n * classes] * np.float32(0)
        if 0 <= label[n] < classes:
            chosen = output[n * classes + label[n]]
        chosen = max(chosen, tiny)
        entropy = -call.own * math.log(chosen)
        if call.other > 0:
            for k in range(classes):
                if k != label[n]:
                    entropy -= call.other * math.log(max(output[n * classes + k], tiny))
        total += entropy * weight
    call.loss[0] = total


class SoftmaxGradient(SoftmaxSamples):
    """Arguments of `softmax_gradient_loop`; normalization: index in NORMALIZATIONS."""

    gradient: Float32s
    scale: Real
    normalization: Integer


@compact
def softmax_gradient_loop(call: SoftmaxGradient) -> None:
    """gradient = (output - target) * weight * scale / divisor; it may overwrite the output."""
    classes, output, label, gradient = call.classes, call.output, call.label, call.gradient
    counted = 0
    if call.normalization != 0:
        for n in range(call.samples):
            present = call.weight is None or call.weight[n // call.samples_per_weight] != 0
            if present and (call.normalization == 1 or label[n] != call.ignored):
                counted += 1
    for n in elements_of_task(call.samples):
        row = n * classes
        weight = weight_of(call, n)
        if weight == 0:
            for k in each(row, row + classes):
                gradient[k] = np.float32(0)
            continue
        factor = call.scale / np.float32(max(counted, 1)) * weight
        inside = 0 <= label[n] < classes
        chosen = output[row + label[n]] if inside else call.own
        if output is not gradient:
            for k in each(row, row + classes):
                gradient[k] = output[k]
        for k in each(row, row + classes):
            gradient[k] = (gradient[k] - call.other) * factor
        if inside:
            gradient[row + label[n]] = (chosen - call.own) * factor
