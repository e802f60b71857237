"""Execution of a plan's phases on one context, or on several side by side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mxrun.base.context import Context
from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec
from mxrun.executor.executor import Executor
from mxrun.executor.gradient_buckets import GradientBucket, cuts
from mxrun.executor.sequence import ProgramSequence
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import ACCUMULATE, EVALUATE, TRAIN, UPDATE
from mxrun.io.loading.iterator import DataIterator
from mxrun.runtime.engine.failure import Failure, JobError
from mxrun.runtime.engine.interface import Engine, EngineOperator, Function, Variable
from mxrun.train.host_arrays import copy_pinned
from mxrun.train.operations import LoopOperations
from mxrun.train.part_states import Array
from mxrun.train.replica import Replica

LoadArguments = tuple[DataIterator, int, int, bool]
MakeOperator = Callable[[Function, str], EngineOperator]


class StepRunner(ABC):
    """Interface for running what a loop does on its contexts, as operations of an engine.

    saved: variables of what a checkpoint contains: parameters, states and sums of metrics.
    """

    saved: Sequence[Variable]

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas

    @property
    def records(self) -> int:
        """Number of records in the parts that have just been trained."""
        count = 0
        for replica in self._replicas:
            count += replica.batch.valid if replica.batch else 0
        return count

    @property
    def is_finite(self) -> bool:
        """Whether the losses of the parts that have just been trained are finite."""
        # Once for each step, in which a generator would take longer than its loop.
        for replica in self._replicas:  # noqa: SIM110 - it takes half the time in every step
            if not replica.measure.is_finite:
                return False
        return True

    def share_statistics(self) -> None:
        """Give all contexts the auxiliary states of the first, which checkpoints hold."""
        first, *others = (replica.executor for replica in self._replicas)
        copy_pinned(first, others, MemoryClass.AUXILIARY)

    def clear_carried(self, phase: str) -> None:
        """Set the states that a phase carries from batch to batch to zero."""
        for replica in self._replicas:
            replica.executor.clear_carried(phase)

    @property
    def carried(self) -> Mapping[str, Array]:
        """States that training carries, if they are not those of the plan alone."""
        return {}

    def gather_carried(self) -> None:
        """Make `carried` complete before it is saved."""
        return

    def broadcast_carried(self) -> None:
        """Give all ranks the `carried` states of the first."""
        return

    @abstractmethod
    def load(
        self, replica: Replica, iterator: DataIterator, step: int, part: int, weighted: bool
    ) -> None:
        """Begin `Replica.load` with these arguments.

        What it raises is raised by whichever of the other methods is called next, which then has
        changed nothing.
        """

    @abstractmethod
    def wait(self) -> None:
        """Wait for everything that was begun; raises the exception that ended it."""

    @abstractmethod
    def train(self, program: str) -> None:
        """Run a training program on all contexts and measure it; TRAIN also updates parameters.

        Waits for it, as the others do.
        """

    @abstractmethod
    def evaluate(self, count: int) -> None:
        """Run and measure the evaluation program on the first `count` contexts."""

    @abstractmethod
    def exchange(self, is_last: bool) -> None:
        """Sum and scale the gradients of several parts, as training does after each of them.

        is_last: whether an update follows.
        """


class SingleContext(StepRunner):
    """Runner of a single replica, whose program for training updates the parameters."""

    def __init__(self, engine: Engine, replica: Replica, run: Callable[[str], None]) -> None:
        """`run`: runs a program of the replica's executor."""
        super().__init__([replica])
        self._operations = make = LoopOperations(engine)
        self.saved: Sequence[Variable] = (make.state, make.measured)
        self._next: LoadArguments
        self._error: BaseException | None = None
        self._loading = make.load(lambda _: self._load(replica), "load")

        def step(program: str, kind: MakeOperator, measure: Callable[[], None]) -> EngineOperator:
            # One operation, because each takes a few microseconds.
            return make.group(
                f"load and {program}",
                self._loading,
                kind(lambda _: self._if_loaded(lambda: run(replica.program(program))), program),
                make.measure(lambda _: self._if_loaded(measure), f"measure {program}"),
            )

        self._steps = {
            program: step(program, make.train, partial(replica.measure_step, program))
            for program in (TRAIN, ACCUMULATE)
        }
        self._evaluation = step(EVALUATE, make.evaluate, replica.measure_evaluation)

    def load(
        self, replica: Replica, iterator: DataIterator, step: int, part: int, weighted: bool
    ) -> None:
        """Let the next operation load the replica's slots."""
        self._next = (iterator, step, part, weighted)

    def wait(self) -> None:
        """Load the slots."""
        self._run(self._loading)

    def train(self, program: str) -> None:
        """Load the slots, run a training program and measure it."""
        self._run(self._steps[program])

    def evaluate(self, count: int) -> None:
        """Load the slots, run the evaluation program and measure it."""
        self._run(self._evaluation)

    def _load(self, replica: Replica) -> None:
        self._error = None
        try:
            replica.load(*self._next)
            replica.scale_gradients()
        except BaseException as error:  # noqa: BLE001 - raised again by `_run`
            # As the operation's failure it would make the state unusable, which is unchanged.
            self._error = error

    def _if_loaded(self, function: Callable[[], None]) -> None:
        if self._error is None:
            function()

    def _run(self, operator: EngineOperator) -> None:
        self._operations.run(operator)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def exchange(self, is_last: bool) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class ContextGroup:
    """Executors of one plan, each on a context of its own, that compute parts of a batch.

    buckets: of the gradients in every arena. kvstore: kind of exchange that sums them. parts:
    number of batch parts that the only context of a rank computes.
    """

    executors: Sequence[Executor]
    contexts: Sequence[Context]
    buckets: Sequence[GradientBucket]
    kvstore: str = "local"
    parts: int = 1


def piece_ends(
    executor: Executor, buckets: Sequence[GradientBucket]
) -> list[tuple[Callable[[], None], int]]:
    """Return what runs each piece of the training program, with the number of steps at its end."""
    program, steps = executor.programs[TRAIN], len(executor.plan.phases[TRAIN].steps)
    pieces = program.pieces if isinstance(program, ProgramSequence) else (program,)
    ends = (*cuts(buckets, steps), steps)
    return [(piece.run, end) for piece, end in zip(pieces, ends, strict=True)]


class DataParallel(StepRunner):
    """Runner of several replicas, each on a context of its own with a part of the batch.

    Every context has its own copy of the parameters and states. Backward is cut where a bucket of
    gradients is complete. Once all contexts have completed a bucket it is summed in the order of
    the contexts, while they compute the next one. Then every context updates its parameters with
    the same sums by the same program, so that the copies stay equal bit by bit: this takes no
    longer than one update, and copies no parameters.

    All of these are functions on an engine. Those of one context run in the order of pushing, on
    the context's own worker, to which its threads belong. Nothing that is computed depends
    on when they run.
    """

    def __init__(self, engine: Engine, replicas: Sequence[Replica], group: ContextGroup) -> None:
        super().__init__(replicas)
        self._engine, self._group = engine, group
        contexts = group.contexts
        # By context: what the host writes before a program runs; the arena without that and without
        # the gradients.
        self._batches = [engine.new_variable(f"batch of {context}") for context in contexts]
        self._arenas = [engine.new_variable(f"arena of {context}") for context in contexts]
        self._gradients, exchanges = self._exchanges()
        self._read = engine.new_variable("position in the data")
        self._measured = engine.new_variable("measured")
        self.saved: Sequence[Variable] = (self._arenas[0], self._measured)
        self._index = {id(replica): number for number, replica in enumerate(replicas)}
        self._next: dict[int, LoadArguments] = {}
        self._loads = [self._load(number, replica) for number, replica in enumerate(replicas)]
        self._programs = {
            phase: [self._operators(phase, number) for number in range(len(contexts))]
            for phase in group.executors[0].programs
        }
        self._measures = {
            program: [
                self._measure(number, partial(replica.measure_step, program), program)
                for number, replica in enumerate(replicas)
            ]
            for program in (TRAIN, ACCUMULATE)
        }
        self._measures[EVALUATE] = [
            self._measure(number, replica.measure_evaluation, EVALUATE)
            for number, replica in enumerate(replicas)
        ]
        scales = [self._scale(number, replica) for number, replica in enumerate(replicas)]
        self._before_update = (exchanges, scales)

    def load(
        self, replica: Replica, iterator: DataIterator, step: int, part: int, weighted: bool
    ) -> None:
        """Begin to load the replica's slots, on the worker of its context."""
        number = self._index[id(replica)]
        self._next[number] = (iterator, step, part, weighted)
        self._engine.push(self._loads[number])

    def wait(self) -> None:
        """Wait for everything that was begun; raises the exception of what failed first."""
        gradients = [variable for variables in self._gradients for variable in variables]
        variables = [self._read, *self._batches, *self._arenas, *gradients, self._measured]
        failures: list[Failure] = []
        for variable in variables:
            try:
                self._engine.wait_for_variable(variable)
            except JobError as failed:
                failures += failed.failures
        if failures:
            raise min(failures, key=lambda failure: failure.sequence).error

    def train(self, program: str) -> None:
        """Run a training program on all contexts and measure it; TRAIN also updates parameters."""
        self._push(self._programs[program])
        if program == TRAIN:
            self._push(self._before_update)
        self._push([self._measures[program]])
        if program == TRAIN:
            self._push(self._programs[UPDATE])
        self.wait()

    def evaluate(self, count: int) -> None:
        """Run and measure the evaluation program on the first `count` contexts."""
        self._push(self._programs[EVALUATE][:count])
        self._push([self._measures[EVALUATE][:count]])
        self.wait()

    def exchange(self, is_last: bool) -> None:
        """Sum and scale the gradients of all contexts before an update."""
        if is_last:
            self._push(self._before_update)
            self.wait()

    def _push(self, groups: Sequence[Sequence[EngineOperator]]) -> None:
        for operators in groups:
            for operator in operators:
                self._engine.push(operator)

    def _load(self, number: int, replica: Replica) -> EngineOperator:
        """Return the operator that loads the next batch of context `number`."""
        return self._engine.new_operator(
            lambda _: replica.load(*self._next[number]),
            updates=[self._batches[number], self._read],
            name="load",
            context=self._group.contexts[number],
        )

    def _scale(self, number: int, replica: Replica) -> EngineOperator:
        """Return the operator that tells context `number` the scale of its gradients.

        It comes after the loading of all contexts, whose records it counts.
        """
        return self._engine.new_operator(
            lambda _: replica.scale_gradients(),
            [self._read],
            updates=[self._batches[number]],
            name="scale gradients",
            context=self._group.contexts[number],
        )

    def _operators(self, phase: str, number: int) -> list[EngineOperator]:
        """Return the operators of a phase on context `number`: one, or one for each piece."""
        executor, buckets = self._group.executors[number], self._group.buckets
        program, gradients = executor.programs[phase], self._gradients[number]
        if phase != TRAIN:
            changed = gradients if phase == ACCUMULATE else []
            read = gradients if phase == UPDATE else []
            return [self._run(phase, number, program.run, changed, read)]
        pieces = piece_ends(executor, buckets)
        operators = []
        for position, (piece, end) in enumerate(pieces):
            complete = [
                variable
                for variable, bucket in zip(gradients, buckets, strict=True)
                if bucket.ready == end
            ]
            name = phase if len(pieces) == 1 else f"{phase} {position + 1} of {len(pieces)}"
            operators.append(self._run(name, number, piece, complete))
        return operators

    def _run(
        self,
        name: str,
        number: int,
        run: Callable[[], None],
        gradients: Sequence[Variable],
        reads: Sequence[Variable] = (),
    ) -> EngineOperator:
        """Return the operator that runs a program on context `number`, by `run`.

        gradients: those that it changes. reads: others that it reads.
        """
        return self._engine.new_operator(
            lambda _: run(),
            [self._batches[number], *reads],
            updates=[self._arenas[number], *gradients],
            name=name,
            context=self._group.contexts[number],
        )

    def _measure(self, number: int, measure: Callable[[], None], program: str) -> EngineOperator:
        """Return the operator that adds the results of context `number` to the sums."""
        return self._engine.new_operator(
            lambda _: measure(),
            [self._batches[number], self._arenas[number]],
            updates=[self._measured],
            name=f"measure {program}",
            context=self._group.contexts[number],
        )

    def _exchanges(self) -> tuple[list[list[Variable]], list[EngineOperator]]:
        """Return the variables of each bucket by context, and the operators that sum each bucket
        over all contexts.
        """
        # Imported on demand: a run on one context needs nothing of the stores.
        from mxrun.kvstore import EXCHANGES, borrowed_array

        group, exchange = self._group, EXCHANGES.get(self._group.kvstore)()
        variables: list[list[Variable]] = [[] for _ in group.contexts]
        operators = []
        for number, bucket in enumerate(group.buckets, 1):
            spec = TensorSpec((bucket.elements,))
            arrays = [
                borrowed_array(
                    self._engine,
                    context,
                    executor.tensor_at(bucket.begin, spec),
                    f"bucket {number - 1} of {context}",
                )
                for context, executor in zip(group.contexts, group.executors, strict=True)
            ]
            for own, array in zip(variables, arrays, strict=True):
                own.append(array.chunk.variable)
            # The parameters of the last bucket are the first that the next step reads.
            operators.append(exchange.pushpull(f"bucket {number}", arrays, number))
        return variables, operators
