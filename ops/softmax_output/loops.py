"""Loss and gradient of SoftmaxOutput as compiled loops, in float32."""

from __future__ import annotations

import math

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Int32s, Integer, Real
from mxrun.codegen.jit import native, share


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
