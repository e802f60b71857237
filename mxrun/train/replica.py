"""One context's part in a training loop: its executor, and the host's access to its tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mxrun.executor.executor import Executor
from mxrun.graph.graph import MemoryClass
from mxrun.graph.lower import RANDOM_STATE
from mxrun.graph.update_rule import SCHEDULE
from mxrun.io.loading.batch import Batch
from mxrun.io.loading.iterator import DataIterator
from mxrun.train.class_weights import RowWeights
from mxrun.train.host_arrays import slots
from mxrun.train.measure import LossTensors, Measure, Phase


class Replica:
    """Executor whose slots a loop fills, and whose results it measures.

    slots: the I/O slots, which hold `batch`: a batch, or part of one. measure, evaluation_measure:
    sums over batches, which all replicas of a loop share.
    """

    def __init__(
        self,
        executor: Executor,
        losses: Sequence[LossTensors],
        train: Phase,
        evaluation: Phase | None,
        first: Replica | None = None,
    ) -> None:
        """`first`: the replica whose sums this one adds to; None for the first itself."""
        self.executor = executor
        self.slots = slots(executor, train.iterator)
        self.batch: Batch | None = None
        batch, weights = self.slots.arrays, train.class_weights
        self._row_weights = None if weights is None else RowWeights(weights, batch)
        self.evaluation_measure: Measure | None = None
        if first is None:
            self.measure = Measure(executor, train, losses, batch)
            if evaluation is not None:
                self.evaluation_measure = Measure(executor, evaluation, losses, batch)
        else:
            self.measure = first.measure.beside(executor, batch)
            if first.evaluation_measure is not None:
                self.evaluation_measure = first.evaluation_measure.beside(executor, batch)
        self._schedule = executor.tensor(SCHEDULE).mirror()
        named = executor.plan.specs
        self._random = executor.tensor(RANDOM_STATE).mirror() if RANDOM_STATE in named else None
        self._sums = _ranges(executor, MemoryClass.GRADIENTS)

    def begin(self) -> None:
        """Read the key of the random streams, of which a step sets only the position."""
        if self._random is not None:
            self._random.load()

    def set_rates(self, rates: npt.NDArray[np.float32]) -> None:
        """Write the schedule's values of a step, [3]."""
        self._schedule.array[...] = rates
        self._schedule.store()

    def load(self, iterator: DataIterator, step: int, part: int, weighted: bool) -> None:
        """Load the next batch of an iterator, and set the position in the random streams.

        weighted: whether the rows get the weights of their classes.
        """
        if self._random is not None:
            self._random.array[1:] = step, part
            self._random.store()
        self.batch = batch = iterator.next_into(self.slots.arrays)
        assert batch is not None
        if weighted and self._row_weights is not None:
            self._row_weights.write(batch.valid)
        self.slots.store()

    def measure_step(self, program: str) -> None:
        """Add the results of a training program to the sums."""
        assert self.batch is not None
        self.measure.update(self.batch.valid, program)

    def measure_evaluation(self) -> None:
        """Add the results of an evaluation program to the sums."""
        assert self.batch is not None
        assert self.evaluation_measure is not None
        self.evaluation_measure.update(self.batch.valid)

    def clear_sums(self) -> None:
        """Set the sums of gradients to zero."""
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
