"""Programs of an executor: its plan, bound to arrays and to a reusable region.

A forward or backward pass is one function on the engine. It reads the arguments, writes the outputs
or gradients, and changes the reusable region, in which a training forward pass leaves what the
backward pass reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from mxrun.compiler.bound import BoundPlan
from mxrun.device.interface import Device, Program
from mxrun.executor.executor import Executor
from mxrun.executor.sequence import ProgramSequence
from mxrun.graph.graph import STATES, MemoryClass
from mxrun.graph.lower import RANDOM_STATE
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.arrays.chunk import Chunk
from mxrun.imperative.calls.random import next_state
from mxrun.imperative.symbolic.memory import Region
from mxrun.operator.kernel import OpReqType
from mxrun.runtime.engine.interface import EngineOperator, RunContext, Variable

Copies = Sequence[tuple[NDArrayBase, NDArrayBase]]
Runner = Callable[[Program], None]


def _plain_run(program: Program) -> None:
    program.run()


class Access:
    """Variables that a function reads, writes and updates, each named once."""

    def __init__(self) -> None:
        self.reads: dict[Variable, None] = {}
        self.writes: dict[Variable, None] = {}
        self.updates: dict[Variable, None] = {}

    def read(self, arrays: Iterable[NDArrayBase]) -> None:
        """Add arrays that are read."""
        for array in arrays:
            self.reads[array.chunk.variable] = None

    def write(self, arrays: Iterable[NDArrayBase]) -> None:
        """Add arrays that are replaced; one that is part of a larger chunk updates that."""
        for array in arrays:
            is_part = array.nbytes < array.chunk.nbytes
            (self.updates if is_part else self.writes)[array.chunk.variable] = None

    def update(self, arrays: Iterable[NDArrayBase]) -> None:
        """Add arrays that are read and changed."""
        for array in arrays:
            self.updates[array.chunk.variable] = None

    def operator(
        self, function: Callable[[RunContext], object], name: str, chunk: Chunk
    ) -> EngineOperator:
        """Return the function as an operator of the engine."""
        updates = dict(self.updates)
        # What is replaced and read by one function is changed.
        updates.update((each, None) for each in self.writes if each in self.reads)
        writes = [each for each in self.writes if each not in updates]
        reads = [each for each in self.reads if each not in updates]
        return chunk.engine.new_operator(
            function, reads, writes, [*updates], name=name, context=chunk.context
        )


class Programs:
    """Forward and backward passes of a bound plan; a program is bound when it first runs.

    arrays: of the pinned tensors by name. region: the reusable memory; several programs may share
    it, and each forward pass replaces its content. name: in messages and traces.
    """

    def __init__(
        self, bound: BoundPlan, arrays: Mapping[str, NDArrayBase], region: Region, name: str
    ) -> None:
        self.bound, self.arrays, self.region, self.name = bound, arrays, region, name
        self.reusable = reusable = region.chunk
        self.device: Device = reusable.device
        self.is_random = RANDOM_STATE in bound.plan.specs
        handles = {key: array.handle for key, array in arrays.items()}
        self.executor = Executor(
            bound.plan,
            self.device,
            {TRAIN: bound.passes},
            bound.plan.place(handles, reusable.handle),
        )
        self._operators: dict[bool, EngineOperator] = {}

    def _pass(self, number: int) -> Program:
        """Return the forward (0) or the backward pass (1) of the training phase."""
        program = self.executor.program(TRAIN)
        assert isinstance(program, ProgramSequence)
        return program.pieces[number]

    def forward_operator(self, is_train: bool, runner: Runner = _plain_run) -> EngineOperator:
        """Return the engine's operator of a forward pass; random operators draw anew.

        runner: runs the program.
        """
        if not self.is_random and runner is _plain_run:
            if is_train not in self._operators:
                self._operators[is_train] = self._forward(is_train, ())
            return self._operators[is_train]
        copies: list[tuple[NDArrayBase, NDArrayBase]] = []
        if self.is_random:
            drawn = NDArrayBase(next_state(self.reusable), (3,), "int64")
            copies.append((drawn, self.arrays[RANDOM_STATE]))
        return self._forward(is_train, copies, runner)

    def _forward(
        self, is_train: bool, copies: Copies, runner: Runner = _plain_run
    ) -> EngineOperator:
        program = self._pass(0) if is_train else self.executor.program(EVALUATE)
        function = partial(_run, self.device, partial(runner, program), copies, ())
        return self.forward_access(is_train, copies).operator(
            function, f"forward of {self.name}", self.reusable
        )

    def forward_access(self, is_train: bool, copies: Copies) -> Access:
        """Return the variables that a forward pass uses."""
        access = Access()
        averages, carried = map(self._of_class, STATES)
        access.read(source for source, _ in copies)
        access.write(target for _, target in copies)
        access.read(self._variables())
        (access.update if is_train else access.read)(averages)
        access.update(carried)
        access.write(self.arrays[name] for name in self.bound.outputs)
        access.writes[self.reusable.variable] = None
        return access

    def backward_operator(
        self,
        requests: Mapping[str, OpReqType],
        copies: Copies,
        zeroed: Sequence[NDArrayBase],
        runner: Runner = _plain_run,
    ) -> EngineOperator:
        """Return the engine's operator of a backward pass after a forward pass in training.

        copies: given gradients of outputs, and the tensors that take them. zeroed: arrays of
        gradients that are zero. runner: runs the program.
        """
        access = Access()
        access.read(self._variables())
        access.read(self._of_class(*STATES))
        access.read(self.arrays[name] for name in self.bound.outputs)
        access.read(source for source, _ in copies)
        access.write(target for _, target in copies)
        for name, pinned in self.bound.gradients.items():
            is_added = requests[name] is OpReqType.ADD
            (access.update if is_added else access.write)([self.arrays[pinned]])
        access.write(zeroed)
        access.updates[self.reusable.variable] = None
        function = partial(_run, self.device, partial(runner, self._pass(1)), copies, zeroed)
        return access.operator(function, f"backward of {self.name}", self.reusable)

    def _variables(self) -> list[NDArrayBase]:
        gradients, outputs = self.bound.gradients.values(), self.bound.outputs
        others = {*gradients, *outputs, *self.bound.head_gradients.values(), RANDOM_STATE}
        states = {id(state) for state in self._of_class(*STATES)}
        return [
            array
            for name, array in self.arrays.items()
            if name not in others and id(array) not in states
        ]

    def _of_class(self, *kinds: MemoryClass) -> list[NDArrayBase]:
        blocks = self.bound.plan.pinned
        return [self.arrays[block.name] for block in blocks if block.memory_class in kinds]


def _run(
    device: Device,
    run: Callable[[], None],
    copies: Copies,
    zeroed: Sequence[NDArrayBase],
    run_context: RunContext,
) -> None:
    for array in zeroed:
        begin = array.handle.offset
        device.fill(array.handle.memory, begin, begin + array.nbytes, 0)
    for source, target in copies:
        device.write(target.handle, device.read(source.handle, source.spec))
    run()
    device.synchronise()
