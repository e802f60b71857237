"""Whether tensors of an executor are finite, found out where they lie."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.compiler.bound import BoundRequest, compile_bound
from mxrun.executor.executor import Executor
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import EVALUATE
from mxrun.graph.symbol import Symbol
from mxrun.operator.launch import Handle
from mxrun.operator.register import create


class FiniteCheck:
    """Program that reads pinned tensors of an executor; only its result comes to the host.

    It has a few bytes of its own for each task, allocated once, beside the executor's memory.
    """

    def __init__(self, executor: Executor, names: Sequence[str]) -> None:
        """`names`: of the tensors; integers are always finite."""
        plan, device = executor.plan, executor.device
        specs = {name: plan.specs[name] for name in names if "float" in plan.specs[name].dtype}
        self._executor: Executor | None = None
        if not specs:
            return
        inputs = tuple(NodeEntry(Node(name)) for name in specs)
        node = Node("finite", create("_all_finite", {"num_args": len(specs)}), inputs)
        request = BoundRequest(Symbol([NodeEntry(node)]), specs, (), {}, plan.device)
        bound = compile_bound(request)
        (output,) = bound.outputs
        # The result and temporary space; the tensors before them lie in the executor's memory.
        begin, end = bound.plan.offset(output), bound.plan.pinned_bytes
        memory = device.allocate(bound.plan.planned_bytes - begin)
        handles = {name: executor.tensor(name).handle for name in specs}
        handles[output] = Handle(memory, 0)
        place = bound.plan.place(handles, Handle(memory, end - begin))
        self._executor = Executor(bound.plan, device, place=place)
        self._executor.program(EVALUATE)
        self._result = self._executor.tensor(output).mirror()

    def __call__(self) -> bool:
        """Return whether every element of every tensor is finite."""
        if self._executor is None:
            return True
        self._executor.run(EVALUATE)
        self._result.load()
        return bool(self._result.array[0])
