"""Runs of operators on the emulated card and on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Row

from mxrun.base.device import CPU
from mxrun.contract.call import BackwardData, Conditions, backward, forward
from mxrun.operator.register import Implementation

EMULATED, ON_CPU = Conditions(kind="emulated"), Conditions(kind=CPU)


def results(
    row: Row, implementation: Implementation, conditions: Conditions
) -> list[npt.NDArray[Any]] | None:
    """Run forward and, if there is a gradient, backward; None if the row is declined."""
    prop, inputs = row.create(), row.inputs("float32")
    outputs = row.blank_outputs("float32")
    run = forward(
        implementation, prop, inputs, outputs, is_train=row.is_train, conditions=conditions
    )
    if run is None:
        return None
    found = list(run.outputs)
    if row.has_gradient:
        random = np.random.default_rng(5)
        arguments = inputs[: len(prop.list_arguments())]
        grads = [random.standard_normal(each.shape).astype(each.dtype) for each in found]
        data = BackwardData(grads, arguments, found)
        before = [np.zeros_like(each) for each in arguments]
        found += backward(implementation, prop, data, before, run, conditions=conditions).gradients
    return found
