"""One context's part in a training loop: its executor, and the host's access to its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.executor.executor import Executor
from mxrun.graph.graph import MemoryClass
from mxrun.graph.lower import RANDOM_STATE
from mxrun.graph.phases import ACCUMULATE, base_phase, bucket_phase
from mxrun.graph.update_rule import GRADIENT_SCALE, SCHEDULE
from mxrun.io.loading.batch import Batch
from mxrun.io.loading.iterator import DataIterator
from mxrun.train.class_weights import RowWeights
from mxrun.train.gradient_scale import GradientCounter
from mxrun.train.host_arrays import HostArrays, slots
from mxrun.train.measure import LossTensors, Measure, Phase

# By the length of sequences in buckets, the losses with the shapes of that length.
BucketLosses = Mapping[int, Sequence[LossTensors]]


@dataclass(frozen=True, eq=False)
class _View:
    """Access to batches whose sequences have one length.

    length: None for the longest. slots: the I/O slots. measure, evaluation: of training and of
    evaluation. row_weights: writes the weights of the classes, if there are any.
    """

    length: int | None
    slots: HostArrays
    measure: Measure
    evaluation: Measure | None
    row_weights: RowWeights | None


class Replica:
    """Executor whose slots a loop fills, and whose results it measures.

    The slots hold `batch`: a batch, or part of one; with buckets its sequences may be shorter than
    the longest. The sums over batches are shared by all replicas of a loop and by all lengths, and
    so is the number of records in a step.
    """

    def __init__(
        self,
        executor: Executor,
        losses: Sequence[LossTensors],
        train: Phase,
        evaluation: Phase | None,
        first: Replica | None = None,
        buckets: BucketLosses | None = None,
    ) -> None:
        """`first`: the replica whose sums this one adds to; None for the first itself. buckets:
        the losses of shorter sequences.
        """
        self.executor = executor
        self.batch: Batch | None = None
        self._view = full = self._full(losses, train, evaluation, first)
        self._views = {None: full} | {
            length: self._shorter(full, length, tensors, train)
            for length, tensors in (buckets or {}).items()
        }
        self._schedule = executor.tensor(SCHEDULE).mirror()
        self._scale = executor.tensor(GRADIENT_SCALE).mirror()
        self._counter: GradientCounter = (
            GradientCounter(train.scale) if first is None else first._counter
        )
        named = executor.plan.specs
        self._random = executor.tensor(RANDOM_STATE).mirror() if RANDOM_STATE in named else None
        accumulates = any(base_phase(phase) == ACCUMULATE for phase in executor.plan.phases)
        self._sums = _ranges(executor, MemoryClass.GRADIENTS) if accumulates else []

    def _full(
        self,
        losses: Sequence[LossTensors],
        train: Phase,
        evaluation: Phase | None,
        first: Replica | None,
    ) -> _View:
        """Return the access to batches of the longest sequences."""
        executor, given = self.executor, slots(self.executor, train.iterator)
        arrays, weights = given.arrays, train.class_weights
        row_weights = None if weights is None else RowWeights(weights, arrays)
        if first is None:
            measure = Measure(executor, train, losses, arrays)
            evaluated = None
            if evaluation is not None:
                evaluated = Measure(executor, evaluation, losses, arrays)
        else:
            measure = first.measure.beside(executor, arrays)
            evaluated = first.evaluation_measure and first.evaluation_measure.beside(
                executor, arrays
            )
        return _View(None, given, measure, evaluated, row_weights)

    def _shorter(
        self, full: _View, length: int, losses: Sequence[LossTensors], train: Phase
    ) -> _View:
        """Return the access to batches of shorter sequences."""
        graph = self.executor.plan.phases[bucket_phase(train.name, length)].graph
        sources = {name: graph.spec(value) for name, value in graph.sources.items()}
        specs = {**self.executor.plan.specs, **sources}
        given = slots(self.executor, train.iterator, specs)
        arrays, weights, evaluation = given.arrays, train.class_weights, full.evaluation
        return _View(
            length,
            given,
            full.measure.of_length(self.executor, arrays, losses, length),
            evaluation and evaluation.of_length(self.executor, arrays, losses, length),
            None if weights is None else RowWeights(weights, arrays),
        )

    @property
    def slots(self) -> HostArrays:
        """The I/O slots, which hold `batch`."""
        return self._view.slots

    @property
    def measure(self) -> Measure:
        """Sums over the batches of training."""
        return self._view.measure

    @property
    def evaluation_measure(self) -> Measure | None:
        """Sums over the batches of evaluation."""
        return self._view.evaluation

    def program(self, phase: str) -> str:
        """Return the program of a phase that runs `batch`."""
        return bucket_phase(phase, self._view.length)

    def begin(self) -> None:
        """Read the key of the random streams, of which a step sets only the position."""
        if self._random is not None:
            self._random.load()

    def set_rates(self, rates: npt.NDArray[np.float32]) -> None:
        """Write the schedule's values of a step, [3]."""
        self._schedule.array[...] = rates
        self._schedule.store()

    def scale_gradients(self) -> None:
        """Write the factor of the gradients of all parts that were loaded since `clear_sums`."""
        self._scale.array[0] = self._counter.factor
        self._scale.store()

    @property
    def counted(self) -> int:
        """Divisor of the gradients of all parts of a step that were loaded, on this rank."""
        return self._counter.count

    @counted.setter
    def counted(self, count: int) -> None:
        self._counter.count = count

    def load(self, iterator: DataIterator, step: int, part: int, weighted: bool) -> None:
        """Load the next batch of an iterator, and set the position in the random streams.

        weighted: whether the rows get the weights of their classes.
        """
        if self._random is not None:
            self._random.array[1:] = step, part
            self._random.store()
        if iterator.bucket_lengths:
            length = iterator.bucket_lengths[iterator.bucket]
            self._view = self._views.get(length, self._views[None])
        view = self._view
        self.batch = batch = iterator.next_into(view.slots.arrays)
        assert batch is not None
        self._counter.add(batch.valid)
        if weighted and view.row_weights is not None:
            view.row_weights.write(batch.valid)
        view.slots.store()

    def measure_step(self, program: str) -> None:
        """Add the results of a training program to the sums."""
        assert self.batch is not None
        self._view.measure.update(self.batch.valid, program)

    def measure_evaluation(self) -> None:
        """Add the results of an evaluation program to the sums."""
        assert self.batch is not None
        assert self._view.evaluation is not None
        self._view.evaluation.update(self.batch.valid)

    def clear_sums(self) -> None:
        """Set the sums of gradients, and of the records behind them, to zero."""
        self._counter.clear()
        for begin, end in self._sums:
            self.executor.device.fill(self.executor.memory, begin, end, 0)


def _ranges(executor: Executor, kind: MemoryClass) -> list[tuple[int, int]]:
    """Return the bytes of a plan's pinned tensors of a memory class, adjacent ones as one range."""
    blocks = [block for block in executor.plan.pinned if block.memory_class is kind]
    found: list[tuple[int, int]] = []
    for block in sorted(blocks, key=lambda block: block.offset):
        begin = found.pop()[0] if found and found[-1][1] == block.offset else block.offset
        found.append((begin, block.end))
    return found
