"""Checked mode: run a phase call by call and check each step's outputs for NaN and infinity."""

from __future__ import annotations

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import item_size
from mxrun.base.tensor import TensorSpec
from mxrun.device.layouts import logical
from mxrun.executor.executor import Executor
from mxrun.graph.graph import Step, ValueId


@dataclass(frozen=True)
class NonFinite:
    """First NaN or infinity of a run: the step that wrote it, its tensor and its index."""

    step: str
    operator: str
    tensor: str
    index: tuple[int, ...]
    value: float


def first_non_finite(executor: Executor, phase: str) -> NonFinite | None:
    """Run one phase and return the first NaN or infinity that a step writes, in execution order.

    Return None if all outputs are finite. Hidden outputs other than losses may be infinite: that
    of attention is where nothing is read.
    """
    planned = executor.plan.phases[phase]
    steps = {step.name: step for step in planned.steps}
    program = executor.programs[phase]
    last_call = {name: index for index, name in enumerate(program.names)}
    found: list[NonFinite] = []

    def look(call: int) -> None:
        name = program.names[call]
        if found or last_call[name] != call:
            return
        step = steps[name]
        assert step.kernel is not None
        for index, (value, spec) in enumerate(zip(step.outputs, step.kernel.outputs, strict=False)):
            if value is not None and spec is not None and not found and _is_seen(step, index):
                found.extend(_found(executor, phase, step, value))

    program.run_watched(look)
    return found[0] if found else None


def _is_seen(step: Step, index: int) -> bool:
    """Return whether an output is a gradient, visible, or a loss."""
    prop = step.prop
    if prop is None or step.forward is not None:
        return True
    return index < prop.num_visible_outputs or index == prop.loss_output


def _found(executor: Executor, phase: str, step: Step, value: ValueId) -> list[NonFinite]:
    planned = executor.plan.phases[phase]
    spec = planned.graph.spec(value)
    if "float" not in spec.dtype or not spec.nbytes:
        return []
    count = spec.nbytes // item_size(spec.dtype)
    part, offset = planned.parts.get(value), planned.offsets[value]
    if part is None or not part.pitch:
        flat = executor.tensor_at(offset, TensorSpec((count,), spec.dtype)).values()
    else:
        size = item_size(spec.dtype)
        rows = count // part.width
        reach = (rows - 1) * part.pitch + part.width
        strided_range = executor.tensor_at(offset, TensorSpec((reach,), spec.dtype)).values()
        strides = (part.pitch * size, size)
        flat = np.lib.stride_tricks.as_strided(strided_range, (rows, part.width), strides).ravel()
    if np.isfinite(flat).all():
        return []
    values = logical(executor.device, flat, spec)
    places = np.argwhere(~np.isfinite(values))
    if len(places) == 0:
        # Only the padding of a packed layout is non-finite.
        return []
    index = tuple(int(i) for i in places[0])
    operator = "" if step.prop is None else step.prop.type_string
    name = planned.graph.values[value].name
    return [NonFinite(step.name, operator, name, index, float(values[index]))]
