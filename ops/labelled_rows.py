"""Rows of classes with one label each, and the weights of their losses, in compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Int32s, Integer
from mxrun.codegen.jit import inlined


class LabelledRows(Arguments):
    """Rows [samples, classes] with one label each; an absent weight counts as 1.

    samples_per_weight: consecutive rows with one weight. ignored: label without loss and gradient
    if `is_ignoring`.
    """

    samples: Integer
    classes: Integer
    samples_per_weight: Integer
    is_ignoring: Integer
    ignored: Integer
    label: Int32s
    weight: Float32s


@inlined
def weight_of(call: LabelledRows, n: int) -> Any:
    """Return the weight of a row, 0 if its label is ignored."""
    weight = np.float32(1)
    if call.weight is not None:
        weight = call.weight[n // call.samples_per_weight]
    if call.is_ignoring and call.label[n] == call.ignored:
        weight = np.float32(0)
    return weight
