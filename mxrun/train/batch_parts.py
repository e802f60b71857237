"""Execution of a plan on the batch parts of one rank, and the exchange of their gradients."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mxrun.base.fold_tree import fold_step, partial_sums
from mxrun.base.tensor import TensorSpec
from mxrun.executor.executor import Executor
from mxrun.executor.gradient_buckets import GradientBucket
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import EVALUATE, TRAIN, UPDATE
from mxrun.graph.update_rule import CLIPPED_SCALE, parameter_of, partial_sum
from mxrun.io.loading.iterator import DataIterator, RecordError
from mxrun.kvstore import EXCHANGES, RankExchange, borrowed_array
from mxrun.kvstore.reduction import fold
from mxrun.runtime.engine.interface import Engine, EngineOperator, Pool, Variable
from mxrun.runtime.engine.wait import wait_for
from mxrun.runtime.ranks import BETWEEN_RANKS
from mxrun.train.agreement import Agreement, PartSums
from mxrun.train.data_parallel import ContextGroup, LoadArguments, StepRunner, piece_ends
from mxrun.train.host_arrays import HostArrays, pinned
from mxrun.train.interruption import WaitEnded
from mxrun.train.measure import Measure
from mxrun.train.part_states import Array, AuxiliaryStates, CarriedStates
from mxrun.train.replica import Replica
from mxrun.train.sliced_states import SlicedStates

# Steps between two comparisons of the parameters of all ranks, which take a pass over all of them.
_CHECK_INTERVAL = 100


class BatchParts(StepRunner):
    """Runner of one replica that computes the batch parts of its rank one after the other.

    Backward is cut where a bucket of gradients is complete. While it computes the next one, the
    bucket is added to those of earlier parts in the order of `fold_tree`; after the last part it is
    summed over the ranks. Then all ranks agree that the step counts (`Agreement`), and each updates
    its parameters with the same sums by the same program, so that these stay equal bit by bit. Or
    each has the sums of its slices alone, and updates those; then all get each other's slices.

    Every part but the first of a batch leaves the auxiliary states as they are: they are those of
    the first part, on whatever rank it is computed.
    """

    def __init__(
        self, engine: Engine, replica: Replica, group: ContextGroup, agreement: Agreement
    ) -> None:
        super().__init__([replica])
        self._engine, self._replica, self._group = engine, replica, group
        self._agreement, self._parts = agreement, group.parts
        self._executor, self._context = group.executors[0], group.contexts[0]
        self._batch = engine.new_variable("batch")
        self._arena = engine.new_variable("arena")
        self._measured = engine.new_variable("measured")
        self.saved: Sequence[Variable] = (self._arena, self._measured)
        self._next: LoadArguments
        self._error: RecordError | WaitEnded | None = None
        # Number of the part that comes next, of those of this rank, and the records so far.
        self._part = self._records = 0
        self._auxiliary = AuxiliaryStates(self._executor)
        self._checksum = _Checksum(self._executor)
        self._load = self._operator(self._load_slots, "load", updates=[self._batch])
        self._sliced: SlicedStates | None = None
        if group.sliced is not None:
            self._sliced = SlicedStates(self._executor, agreement.ranks, group.sliced)
        gradients, self._folds, sums = self._exchanges()
        parameters, shares = self._shares()
        pieces = self._pieces(gradients)
        evaluation = self._operator(
            partial(self._if_loaded, partial(self._executor.run, EVALUATE)),
            EVALUATE,
            reads=[self._batch],
            updates=[self._arena],
        )
        programs = {TRAIN: pieces, EVALUATE: [evaluation]}
        self._carried = {
            phase: CarriedStates(self._executor, phase, agreement.ranks, self._parts)
            for phase in programs
            if phase in self._executor.programs
        }
        self._programs = {
            phase: self._with_states(phase, programs[phase]) for phase in self._carried
        }
        measures: dict[str, tuple[Measure, Callable[[], None]]] = {
            TRAIN: (replica.measure, partial(replica.measure_step, TRAIN))
        }
        if replica.evaluation_measure is not None:
            measures[EVALUATE] = (replica.evaluation_measure, replica.measure_evaluation)
        self._part_sums = {
            phase: PartSums(agreement, self._parts, measure)
            for phase, (measure, _) in measures.items()
        }
        self._measures = {
            phase: self._operator(
                partial(self._measure, phase, add),
                f"measure {phase}",
                reads=[self._batch, self._arena],
                updates=[self._measured],
            )
            for phase, (_, add) in measures.items()
        }
        agreements = {phase: self._agreement_operator(phase) for phase in measures}
        self._scale = self._operator(
            partial(self._if_loaded, replica.scale_gradients),
            "scale gradients",
            reads=[self._measured],
            updates=[self._batch],
        )
        update = self._operator(
            partial(self._if_loaded, partial(self._executor.run, UPDATE)),
            UPDATE,
            reads=[self._batch, self._measured, *gradients],
            updates=[self._arena, *parameters],
        )
        self._ends = {TRAIN: [*sums, agreements[TRAIN], self._scale, update, *shares]}
        if EVALUATE in agreements:
            self._ends[EVALUATE] = [agreements[EVALUATE]]
        self._exchanged = [*gradients, *parameters]

    # -- interface -----------------------------------------------------------------------------

    def load(
        self, replica: Replica, iterator: DataIterator, step: int, part: int, weighted: bool
    ) -> None:
        """Begin to load the slots."""
        if self._part == 0:
            self._records = 0
        self._next = (iterator, step, part, weighted)
        self._engine.push(self._load)

    def wait(self) -> None:
        """Wait for everything that was begun; raises the exception that ended it."""
        for variable in (self._batch, self._arena, self._measured, *self._exchanged):
            wait_for(self._engine, variable)
        error, self._error = self._error, None
        if error is not None:
            self._part = 0
            raise error

    def train(self, program: str) -> None:
        """Run the training program on a part and measure it; after TRAIN, update parameters.

        What prevents that on any rank is raised then, and not before.
        """
        self._run(TRAIN, self._folds[self._part], is_last=program == TRAIN)

    def evaluate(self, count: int) -> None:
        """Run and measure the evaluation program on a part."""
        self._run(EVALUATE, (), is_last=self._part == self._parts - 1)

    def exchange(self, is_last: bool) -> None:
        """Add the gradients of the part that has just run, and scale their sum after the last."""
        scale = [self._scale] if is_last else []
        for operator in (*self._folds[self._part], *scale):
            self._engine.push(operator)
        self.wait()
        self._part = 0 if is_last else self._part + 1

    @property
    def records(self) -> int:
        """Number of records of the batch whose last part has just run; 0 after others."""
        return self._agreement.records if self._part == 0 else 0

    @property
    def is_finite(self) -> bool:
        """Whether the losses of the batch whose last part has just run are finite."""
        return self._part > 0 or self._agreement.is_finite

    def share_statistics(self) -> None:
        """Give all ranks the auxiliary states of the first."""
        self._auxiliary.broadcast(self._agreement.ranks)

    def clear_carried(self, phase: str) -> None:
        """Set the states that a phase carries from batch to batch to zero."""
        self._carried[phase].clear()

    @property
    def carried(self) -> Mapping[str, Array]:
        """States that training carries, of all batch parts."""
        return self._carried[TRAIN].arrays

    @property
    def sliced(self) -> Mapping[str, Array]:
        """Entire states of the optimizer, on the first rank; empty if they are not sliced."""
        return {} if self._sliced is None else self._sliced.arrays

    def gather_states(self) -> None:
        """Give all ranks the states that training carries in all batch parts, and the first rank
        those of all slices.
        """
        self._carried[TRAIN].gather()
        if self._sliced is not None:
            self._sliced.gather()

    def share_states(self) -> None:
        """Give all ranks the states that the first rank has for all batch parts, and for their
        slices.
        """
        self._carried[TRAIN].broadcast()
        if self._sliced is not None:
            self._sliced.scatter()

    # -- operations ----------------------------------------------------------------------------

    def _run(self, phase: str, folds: Sequence[EngineOperator], is_last: bool) -> None:
        ends = self._ends[phase] if is_last else ()
        for operator in (*self._programs[phase], self._measures[phase], *folds, *ends):
            self._engine.push(operator)
        if is_last:
            self.wait()
            self._part = 0
            return
        # The gradients are added while the next part is loaded.
        for variable in (self._batch, self._arena, self._measured):
            wait_for(self._engine, variable)
        self._part += 1

    def _operator(
        self,
        function: Callable[[], object],
        name: str,
        reads: Sequence[Variable] = (),
        updates: Sequence[Variable] = (),
        pool: Pool = Pool.COMPUTE,
    ) -> EngineOperator:
        return self._engine.new_operator(
            lambda _: function(),
            reads,
            updates=updates,
            name=name,
            context=self._context,
            pool=pool,
        )

    def _load_slots(self) -> None:
        if self._error is not None:
            return
        self._agreement.doing = f"reading part {self._part} of step {self._next[1]}"
        try:
            self._replica.load(*self._next)
        except (RecordError, WaitEnded) as error:
            # As the operation's failure it would keep this rank from the messages of the others.
            self._error = error
        else:
            assert self._replica.batch is not None
            self._records += self._replica.batch.valid
        self._agreement.doing = f"computing part {self._part} of step {self._next[1]}"

    def _if_loaded(self, function: Callable[[], object]) -> None:
        if self._error is None:
            function()

    def _with_states(self, phase: str, program: Sequence[EngineOperator]) -> list[EngineOperator]:
        """Return the operators of a phase with those that exchange the states of parts."""
        carried, rank = self._carried[phase], self._agreement.ranks.rank

        def begin() -> None:
            self._auxiliary.begin_part()
            carried.begin_part(self._part)

        def end() -> None:
            self._auxiliary.end_part(rank + self._part)
            if self._error is None:
                carried.end_part(self._part)

        return [
            self._operator(begin, "begin part", updates=[self._arena]),
            *program,
            self._operator(end, "end part", updates=[self._arena]),
        ]

    def _measure(self, phase: str, add: Callable[[], None]) -> None:
        sums = self._part_sums[phase]
        if self._part == 0:
            sums.begin()

        if self._error is None:
            sums.measure(self._part, add)
        if self._part == self._parts - 1:
            self._agreement.is_waiting = True
            self._agreement.doing = f"waiting for other ranks in step {self._next[1]}"

    def _agreement_operator(self, phase: str) -> EngineOperator:
        """Return the operator with which all ranks agree after the last part of a batch."""

        def agree() -> None:
            replica, step = self._replica, self._next[1]
            is_due = (
                phase == TRAIN and step % _CHECK_INTERVAL == 0 and self._agreement.ranks.size > 1
            )
            checksum = self._checksum.value() if is_due else 0
            try:
                self._part_sums[phase].agree(self._records, replica.counted, self._error, checksum)
            except (RecordError, WaitEnded) as error:
                self._error = error
            replica.counted = self._agreement.counted

        changed = [self._measured, *self._wires]
        name = f"agree{BETWEEN_RANKS}"
        return self._operator(agree, name, [self._batch], changed, Pool.COMMUNICATION)

    def _pieces(self, gradients: Sequence[Variable]) -> list[EngineOperator]:
        """Return the operators of the training program, which change the buckets they write to.

        One may write to buckets that a later one completes: not before these are added to those of
        the part before.
        """
        found, begin = [], 0
        pieces = piece_ends(self._executor, self._group.buckets)
        for position, (piece, end) in enumerate(pieces, 1):
            written = [
                variable
                for variable, bucket in zip(gradients, self._group.buckets, strict=True)
                if bucket.first <= end and bucket.ready > begin
            ]
            begin = end
            name = TRAIN if len(pieces) == 1 else f"{TRAIN} {position} of {len(pieces)}"
            run = partial(self._if_loaded, piece)
            found.append(self._operator(run, name, [self._batch], [self._arena, *written]))
        return found

    def _exchanges(
        self,
    ) -> tuple[list[Variable], list[list[EngineOperator]], list[EngineOperator]]:
        """Return the variable of each bucket, the operators that add the buckets of each part to
        those before, and those that sum the buckets over the ranks.
        """
        executor, plan, parts = self._executor, self._executor.plan, self._parts
        self._exchange = exchange = EXCHANGES.get(self._group.kvstore)()
        self._wires = exchange.wires
        # A norm of all gradients needs all of them.
        steps = {step.name for step in plan.phases[UPDATE].steps}
        is_whole = self._sliced is None or CLIPPED_SCALE in steps
        first = min(bucket.begin for bucket in self._group.buckets)
        sums: list[EngineOperator] = []
        folds: list[list[EngineOperator]] = [[] for _ in range(parts)]
        # In the order in which backward completes them, which is that of all messages.
        ordered = sorted(self._group.buckets, key=lambda bucket: bucket.ready)
        by_bucket: dict[GradientBucket, Variable] = {}
        for number, bucket in enumerate(ordered, 1):
            spec, name = TensorSpec((bucket.elements,)), f"bucket {number}"
            offsets = [bucket.begin] + [
                plan.offset(partial_sum(level)) + bucket.begin - first
                for level in range(partial_sums(parts))
            ]
            gradient, *levels = (
                borrowed_array(self._engine, self._context, executor.tensor_at(offset, spec), name)
                for offset in offsets
            )
            by_bucket[bucket] = gradient.chunk.variable
            for part in range(parts if parts > 1 else 0):
                step = fold_step(part, parts)
                folds[part] += fold(gradient, levels, step, f"add {name}", number)
            if not is_whole and isinstance(exchange, RankExchange):
                sums.append(exchange.sum_slices(name, gradient, number))
            elif exchange.size > 1:
                sums.append(exchange.pushpull(name, [gradient], number))
        return [by_bucket[bucket] for bucket in self._group.buckets], folds, sums

    def _shares(self) -> tuple[list[Variable], list[EngineOperator]]:
        """Return the variables of the parameters whose slices each rank updates, by bucket, and the
        operators that then give all ranks the others; none without sliced states.
        """
        variables: list[Variable] = []
        operators: list[EngineOperator] = []
        executor, exchange = self._executor, self._exchange
        for number, bucket in enumerate(self._group.buckets, 1):
            if self._sliced is None or not isinstance(exchange, RankExchange):
                break
            # The parameters lie as their gradients do.
            begin = executor.plan.offset(parameter_of(bucket.names[0]))
            tensor = executor.tensor_at(begin, TensorSpec((bucket.elements,)))
            name = f"parameters {number}"
            array = borrowed_array(self._engine, self._context, tensor, name)
            variables.append(array.chunk.variable)
            operators.append(exchange.share_slices(name, array, number))
        return variables, operators


class _Checksum:
    """Checksum of all parameters, which are equal on all ranks."""

    def __init__(self, executor: Executor) -> None:
        self._parameters = HostArrays(executor, pinned(executor, MemoryClass.PARAMETERS))

    def value(self) -> int:
        """Return the CRC-32 of the parameters' bytes."""
        self._parameters.load()
        found = 0
        for array in self._parameters.arrays.values():
            found = zlib.crc32(array.reshape(-1).view("u1").data, found)
        return found
