"""Networks that are bound for inference: planned once, run on any number of record sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.locks import new_lock
from mxrun.base.tensor import Shape
from mxrun.executor.executor import Executor
from mxrun.graph.lower import RANDOM_STATE, UNTRAINED
from mxrun.graph.phases import EVALUATE
from mxrun.inference.outputs import OutputHead
from mxrun.inference.records import Records, RecordSource
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.run.trained_model import TrainedModel
from mxrun.runtime.engine.default import engine_of
from mxrun.runtime.engine.interface import RunContext
from mxrun.train.operations import LoopOperations

Array = npt.NDArray[Any]
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Output:
    """Output tensor, with one row per record.

    shape: of one record's row. top: number of most likely classes reported; 0 for the numbers
    themselves. classes: names of all classes. scaling: of forecasts, which are reported in the
    units of their series.
    """

    head: OutputHead
    shape: Shape
    top: int = 0
    classes: tuple[str, ...] = ()
    scaling: SeriesEncoding | None = None

    @property
    def name(self) -> str:
        """Name of the output for the user."""
        return self.head.name

    def rows(self, values: Array, records: Records) -> Array:
        """Return a copy of the records of a batch, [batch, *shape], as they are reported."""
        count = len(records.names)
        rows: Array = values.reshape(-1, *self.shape)[:count]
        if self.scaling is not None and records.series is not None:
            rows = self.scaling.original(rows, records.series)
        return np.array(rows)

    def to_json(self, values: Array) -> Row:
        """Return one record's result as JSON; of equal values the lower class comes first."""
        if not self.top:
            return {"output": values.tolist()}
        likeliest = np.argsort(-values, kind="stable")[: self.top].tolist()
        figure = "probability" if self.head.classes else "value"
        return {
            "top": [
                {"class": number, "name": self.classes[number], figure: float(values[number])}
                for number in likeliest
            ]
        }


@dataclass(frozen=True, eq=False)
class InferenceBatch:
    """Results of one batch: its records, and for each output an array [records, *shape]."""

    records: Records
    arrays: Mapping[str, Array]


class PreparedInference:
    """Trained network that is bound for batches of one size, for source after source of records.

    trained: the weights. outputs: the tensors reported for every record. classes: names of the
    labels' classes, if any. Nothing is planned, allocated or bound after construction.
    """

    def __init__(
        self,
        trained: TrainedModel,
        executor: Executor,
        outputs: Sequence[Output],
        classes: tuple[str, ...],
        batch_size: int,
    ) -> None:
        self.trained, self.outputs = trained, tuple(outputs)
        self.classes, self.batch_size = classes, batch_size
        self.executor = executor
        self._carried = tuple(executor.carried(EVALUATE).values())
        draws = RANDOM_STATE in executor.plan.specs
        self._random = executor.tensor(RANDOM_STATE).mirror() if draws else None
        self._results = [
            (output, executor.result(EVALUATE, name).mirror())
            for output in self.outputs
            for name in (output.head.entry.name,)
        ]
        self._operations = LoopOperations(engine_of(trained.built.options.engine))
        self._evaluate = self._operations.evaluate(lambda _: executor.run(EVALUATE), EVALUATE)
        # The source measures the results of a batch when it is asked for the next one.
        self._load = self._operations.engine.new_operator(
            self._next_records,
            reads=[self._operations.results],
            writes=[self._operations.batch],
            updates=[self._operations.measured],
            name="load",
        )
        self._batches: Iterator[Records] = iter(())
        self._records: Records | None = None
        self._turn = new_lock()

    def _next_records(self, run: RunContext) -> None:
        """Write the next batch of the current source into the io slots."""
        self._records = next(self._batches, None)

    def batches(self, source: RecordSource) -> Iterator[InferenceBatch]:
        """Run the network on all batches of a source and yield results.

        Until the last batch, or until the iterator is closed, other threads wait for their turn.
        Raises UserError naming the file if a record cannot be read.
        """
        with self._turn:
            for tensor in self._carried:
                tensor.write(0)
            self._batches = source.batches(self.executor, self.batch_size)
            number = 0
            while True:
                self._operations.run(self._load)
                if self._records is None:
                    return
                if self._random is not None:
                    self._random.array[1:] = UNTRAINED, number
                    self._random.store()
                self._operations.run(self._evaluate)
                arrays = {}
                for output, result in self._results:
                    result.load()
                    arrays[output.name] = output.rows(result.array, self._records)
                yield InferenceBatch(self._records, arrays)
                number += 1
