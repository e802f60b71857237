"""Monitor of an executor: a callback for every tensor of each forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import item_size
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.bound import BoundRequest
from mxrun.compiler.plan_cache import bound_plan
from mxrun.device.interface import Program
from mxrun.device.layouts import logical
from mxrun.graph.compose import input_names
from mxrun.graph.graph import Step, ValueId
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.imperative.arrays.chunk import allocate
from mxrun.imperative.arrays.creation import empty, from_numpy
from mxrun.imperative.symbolic.memory import Region
from mxrun.imperative.symbolic.programs import Programs

Array = npt.NDArray[Any]
MonitorCallback = Callable[[str, Any], object]


class Monitor:
    """Programs without fusion, whose tensors are copied directly after their steps have run.

    programs: the ones that `forward` runs, on the same arrays as the executor's own.
    """

    def __init__(
        self,
        request: BoundRequest,
        original: Programs,
        callback: MonitorCallback,
        monitor_all: bool,
    ) -> None:
        self._nodes = {node.name: node for node in request.symbol.nodes}
        self._callback, self._all = callback, monitor_all
        bound = bound_plan(replace(request, fuse=False))
        self._context = original.reusable.context
        region = Region(allocate(self._context, max(bound.plan.reusable_bytes, 1)))
        arrays = dict(original.arrays)
        for block in bound.plan.pinned:
            if block.name not in arrays:
                spec = bound.plan.specs[block.name]
                arrays[block.name] = empty(spec.shape, self._context, spec.dtype)
        self.programs = Programs(bound, arrays, region, original.name)

    def forward(self, is_train: bool) -> None:
        """Run a forward pass, wait for it and call the callback for its tensors in their order."""
        programs, tensors = self.programs, list[tuple[str, Array]]()
        engine = programs.reusable.engine
        engine.push(programs.forward_operator(is_train, partial(self._run, is_train, tensors)))
        engine.wait_for_variable(programs.reusable.variable)
        for name, value in tensors:
            self._callback(name, from_numpy(value, self._context, value.dtype.name))

    def _run(self, is_train: bool, tensors: list[tuple[str, Array]], program: Program) -> None:
        """Run a program call by call; append the tensors of every step that has finished."""
        phase = self.programs.bound.plan.phases[TRAIN if is_train else EVALUATE]
        values: dict[NodeEntry, Array] = {}
        steps = list(phase.steps)
        last_call = {name: index for index, name in enumerate(program.names)}

        def look(index: int) -> None:
            name = program.names[index]
            if last_call[name] != index:
                return
            while steps:
                # Steps that make no call, such as views, are complete with the step before them.
                step = steps.pop(0)
                tensors.extend(self._tensors(step, phase.offsets, phase.graph.spec, values))
                if step.name == name:
                    break

        program.run_watched(look)
        for step in steps:
            tensors.extend(self._tensors(step, phase.offsets, phase.graph.spec, values))

    def _tensors(
        self,
        step: Step,
        offsets: Mapping[ValueId, int],
        spec: Callable[[ValueId], TensorSpec],
        values: dict[NodeEntry, Array],
    ) -> Iterator[tuple[str, Array]]:
        """Yield the tensors of a step that is a node of the network, with MXNet's names."""
        node = self._nodes.get(step.name)
        if node is None or step.forward is not None or node.prop is None:
            return
        if self._all:
            yield from self._inputs(node, values)
        for index, value in enumerate(step.outputs[: node.num_outputs]):
            if value is not None:
                entry = NodeEntry(node, index)
                values[entry] = self._read(offsets.get(value, 0), spec(value))
                yield entry.name, values[entry]

    def _inputs(self, node: Node, values: Mapping[NodeEntry, Array]) -> Iterator[tuple[str, Array]]:
        assert node.prop is not None
        for argument, entry in zip(input_names(node.prop), node.inputs, strict=True):
            if entry.node.is_variable:
                array = self.programs.arrays[entry.node.name]
                value: Array = array.chunk.device.read(array.handle, array.spec)
                yield entry.name, value
            else:
                value = values[entry]
            yield f"{node.name}_{argument}", value

    def _read(self, offset: int, spec: TensorSpec) -> Array:
        device = self.programs.device
        count = spec.nbytes // item_size(spec.dtype)
        flat = device.read(self.programs.place(offset), TensorSpec((count,), spec.dtype))
        return np.array(logical(device, flat, spec))
