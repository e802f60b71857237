"""Runs of operators on the emulated card and on the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from operator_row import Row

from mxrun.base.device import CPU
from mxrun.contract.call import (
    BackwardData,
    BackwardRun,
    Conditions,
    ForwardRun,
    backward,
    forward,
)
from mxrun.operator.register import Implementation

EMULATED, ON_CPU = Conditions(kind="emulated"), Conditions(kind=CPU)
# Arguments that are float32 also in networks of bfloat16.
PARAMETERS = ("weight", "bias", "gamma", "beta")


def runs(
    row: Row, implementation: Implementation, conditions: Conditions, is_low: bool = False
) -> tuple[ForwardRun, list[BackwardRun]] | None:
    """Run forward and, if there is a gradient, backward; None if the row is declined.

    is_low: whether the tensors are bfloat16 that networks of that type have in it.
    """
    prop, inputs = row.create(), row.inputs("float32")
    outputs = row.blank_outputs("float32")
    if is_low:
        names = set(prop.list_arguments()).difference(PARAMETERS, prop.label_arguments)
        pairs = zip(row.names, inputs, strict=True)
        inputs = [_low(each) if name in names else each for name, each in pairs]
        outputs[0] = _low(outputs[0])
    run = forward(
        implementation, prop, inputs, outputs, is_train=row.is_train, conditions=conditions
    )
    if run is None:
        return None
    if not row.has_gradient:
        return run, []
    random = np.random.default_rng(5)
    arguments = inputs[: len(prop.list_arguments())]
    grads = [random.standard_normal(each.shape).astype(each.dtype) for each in run.outputs]
    data = BackwardData(grads, arguments, run.outputs)
    before = [np.zeros_like(each) for each in arguments]
    return run, [backward(implementation, prop, data, before, run, conditions=conditions)]


def results(
    row: Row, implementation: Implementation, conditions: Conditions, is_low: bool = False
) -> list[npt.NDArray[Any]] | None:
    """Return outputs and gradients of `runs`."""
    found = runs(row, implementation, conditions, is_low)
    if found is None:
        return None
    run, back = found
    return [*run.outputs, *(gradient for each in back for gradient in each.gradients)]


def _low(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.astype(ml_dtypes.bfloat16) if array.dtype == np.float32 else array
