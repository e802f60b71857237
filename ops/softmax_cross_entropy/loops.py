"""Loss and gradient of softmax_cross_entropy as compiled loops."""

from __future__ import annotations

import math

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Int32s, Integer
from mxrun.codegen.jit import native, share


class LabelledRows(Arguments):
    """Probabilities [samples, classes] with one label per row; an absent weight counts as 1."""

    samples: Integer
    classes: Integer
    probability: Float32s
    label: Int32s
    weight: Float32s


class SoftmaxCrossEntropyLoss(LabelledRows):
    """Arguments of `loss_loop`."""

    loss: Float32s


@native
def loss_loop(call: SoftmaxCrossEntropyLoss) -> None:
    """loss[0] = sum of weight[n] * -log(max(p[n, label[n]], smallest)), in sample order."""
    classes, label = call.classes, call.label
    total = 0.0
    for n in range(call.samples):
        chosen = 0.0
        if 0 <= label[n] < classes:
            chosen = call.probability[n * classes + label[n]]
        if chosen == 0:
            # For data that are not finite, oneDNN gives NaN for those classes and 0 for the others.
            for k in range(n * classes, (n + 1) * classes):
                if math.isnan(call.probability[k]):
                    chosen = math.nan
        # max() would hide a NaN probability.
        if chosen < 1e-8:
            chosen = 1e-8
        entropy = -math.log(chosen)
        if call.weight is not None:
            entropy *= call.weight[n]
        total += entropy
    call.loss[0] = total


class SoftmaxCrossEntropyGradient(LabelledRows):
    """Arguments of `gradient_loop`; an absent head, the gradient of the loss, counts as 1."""

    head: Float32s
    gradient: Float32s


@native
def gradient_loop(call: SoftmaxCrossEntropyGradient) -> None:
    """gradient[n, c] = (p[n, c] - (1 where c = label[n])) * head[0] * weight[n]."""
    classes, label, probability = call.classes, call.label, call.probability
    begin, end = share(call.samples)
    for n in range(begin, end):
        row, factor = n * classes, np.float32(1)
        if call.head is not None:
            factor *= call.head[0]
        if call.weight is not None:
            factor *= call.weight[n]
        for k in range(row, row + classes):
            call.gradient[k] = probability[k] * factor
        if 0 <= label[n] < classes:
            place = row + label[n]
            call.gradient[place] = (probability[place] - np.float32(1)) * factor
