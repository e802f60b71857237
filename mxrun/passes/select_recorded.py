"""Kernel selection for single forward steps, and for the backward steps of such steps.

Imperative operators run one by one. Results keep the layout in which a kernel produces them, if it
has strides, as they would between the steps of a network. When all operators of a network have run,
backward steps get the kernels that belong to the forward kernels that ran.

Needs: as `select`. Provides: as `select`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.device import DeviceDescription
from mxrun.base.errors import OperatorErrorContext
from mxrun.graph.graph import Graph, MemoryClass, Step, StepKind, StepName
from mxrun.passes.select import KernelSelection, SelectedKernel, Selection


def select_forward(
    graph: Graph, device: DeviceDescription, differentiated: bool, plain: bool
) -> tuple[Graph, dict[StepName, SelectedKernel]]:
    """Prepare the kernel of every step of a forward graph; return the graph and the selection.

    Results have the dtypes that they have in `graph`. differentiated: whether the steps will have
    backward steps. Raises UserError for a step that no kernel accepts.
    """
    selection = Selection(graph, device, KernelSelection(), fixed=False)
    if differentiated:
        selection.differentiated.update(step.name for step in graph.steps)
    for step in graph.steps:
        _add(selection, step)
    selection.restore_types(plain)
    return selection.builder.build(), selection.chosen


def select_backward(
    graph: Graph, device: DeviceDescription, forward: Mapping[StepName, SelectedKernel]
) -> Graph:
    """Return the graph with only the other steps than the forward steps, with kernels.

    forward: the kernels with which the forward steps ran; a view has none. The io sources are the
    values that are read; one that has no name as a source of `graph` is named by its number.
    Results are in plain layout and have the dtypes that they have in `graph`.
    """
    selection = Selection(graph, device, KernelSelection(), fixed=False)
    selection.chosen.update(forward)
    for step in graph.steps:
        if step.kind is not StepKind.FORWARD:
            _add(selection, step)
    selection.restore_types(plain=True)
    builder = selection.builder
    made = {value for step in builder.steps for value in step.writes}
    names = {value: name for name, value in builder.sources.items()}
    builder.sources.clear()
    for value in dict.fromkeys(value for step in builder.steps for value in step.reads):
        if value not in made:
            name = names.get(value, source_name(value))
            builder.values[value] = replace(builder.values[value], memory_class=MemoryClass.IO)
            builder.sources[name] = value
    return builder.build()


def source_name(value: int) -> str:
    """Return the name of the source for a value of the forward steps."""
    return f"value:{value}"


def _add(selection: Selection, step: Step) -> None:
    with OperatorErrorContext(step.title, step.place):
        selection.add(step)
