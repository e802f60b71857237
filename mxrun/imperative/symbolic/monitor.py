"""Monitor of an executor: a callback for every tensor of each forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from mxrun.executor.executor import run_by_steps
from mxrun.graph.compose import input_names
from mxrun.graph.graph import Step, ValueId
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.chunk import allocate
from mxrun.imperative.arrays.creation import empty, from_numpy
from mxrun.imperative.symbolic.memory import Region
from mxrun.imperative.symbolic.programs import Copies, Programs
from mxrun.operator.kernel import OpReqType
from mxrun.runtime.engine.interface import EngineOperator

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
        self._engine = original.reusable.engine
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
        phase = TRAIN if is_train else EVALUATE
        values: dict[NodeEntry, Array] = {}
        bound = self.programs.bound
        steps = bound.passes[0] if is_train else bound.plan.phases[EVALUATE].steps
        watch = _Watch(steps, partial(self._tensors, values, self._reader(phase)))
        self._run(self.programs.forward_operator(is_train, watch.run), watch)

    def backward(
        self, requests: Mapping[str, OpReqType], copies: Copies, zeroed: Sequence[NDArrayBase]
    ) -> None:
        """Run a backward pass likewise, with the gradients that its nodes compute."""
        _, steps = self.programs.bound.passes
        watch = _Watch(steps, partial(self._gradients, self._reader(TRAIN)))
        operator = self.programs.backward_operator(requests, copies, zeroed, watch.run)
        self._run(operator, watch)

    def _reader(self, phase: str) -> Callable[[ValueId], Array]:
        """Return the function that reads a tensor of a phase."""
        executor = self.programs.executor
        planned, device = executor.plan.phases[phase], executor.device

        def read(value: ValueId) -> Array:
            spec = planned.graph.spec(value)
            flat = TensorSpec((spec.nbytes // item_size(spec.dtype),), spec.dtype)
            values = executor.tensor_at(planned.offsets.get(value, 0), flat).read()
            return np.array(logical(device, values, spec))

        return read

    def _run(self, operator: EngineOperator, watch: _Watch) -> None:
        self._engine.push(operator)
        self._engine.wait_for_variable(self.programs.reusable.variable)
        for name, value in watch.found:
            self._callback(name, from_numpy(value, self._context, value.dtype.name))

    def _tensors(
        self, values: dict[NodeEntry, Array], read: Callable[[ValueId], Array], step: Step
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
                values[entry] = read(value)
                yield entry.name, values[entry]

    def _gradients(
        self, read: Callable[[ValueId], Array], step: Step
    ) -> Iterator[tuple[str, Array]]:
        """Yield the gradients of a node's arguments that a step computes, with MXNet's names."""
        node = self._nodes.get(step.forward or "")
        if node is None or node.prop is None or step.repeats is not None:
            return
        arguments = len(node.prop.list_arguments())
        for index, value in enumerate(step.outputs[:arguments]):
            if value is not None:
                number = str(index) if arguments > 1 else ""
                yield f"{node.name}_backward_output{number}", read(value)

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


class _Watch:
    """Tensors of a pass, read after each of its steps; `found` has them in order once it has run.

    steps: of the pass, in the order of its program. tensors: reads those of a step.
    """

    def __init__(
        self, steps: Sequence[Step], tensors: Callable[[Step], Iterator[tuple[str, Array]]]
    ) -> None:
        self._steps, self._tensors = steps, tensors
        self.found: list[tuple[str, Array]] = []

    def run(self, program: Program) -> None:
        """Run a program call by call."""

        def look(finished: int) -> None:
            self.found.extend(self._tensors(self._steps[finished - 1]))

        run_by_steps(program, self._steps, look)
