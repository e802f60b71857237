"""Inference: a trained network on files, standard input or a data set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.executor.executor import Executor
from mxrun.frontend import ModelDefinition
from mxrun.graph.lower import RANDOM_STATE, UNTRAINED
from mxrun.graph.phases import EVALUATE
from mxrun.graph.symbol import Symbol
from mxrun.inference.outputs import (
    OutputHead,
    batch_inputs,
    known_shapes,
    planned_batch,
    row_shapes,
    subgraph,
)
from mxrun.inference.records import Records, RecordSource
from mxrun.io.files import unreadable_error
from mxrun.options.shared import MAX
from mxrun.preparation.max_batch_size import largest_batch
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.preparation.planning import request_for
from mxrun.preparation.prepared import Prepared, preparing
from mxrun.run.trained_model import RunningOptions, TrainedModel
from mxrun.runtime.engine.default import engine_of
from mxrun.runtime.engine.interface import RunContext
from mxrun.train.operations import LoopOperations

Array = npt.NDArray[Any]
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Output:
    """Output tensor, with one row per record.

    shape: of one record's row. top: number of most likely classes reported; 0 for the numbers
    themselves. classes: names of all classes.
    """

    head: OutputHead
    shape: Shape
    top: int = 0
    classes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the output for the user."""
        return self.head.name

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


class Inference:
    """Trained network that is ready to run on its records, which are iterated once.

    trained: the weights. outputs: the tensors reported for every record. classes: names of the
    labels' classes, if any.
    """

    def __init__(
        self,
        trained: TrainedModel,
        source: RecordSource,
        executor: Executor,
        outputs: Sequence[Output],
        classes: tuple[str, ...],
        batch_size: int,
    ) -> None:
        self.trained, self.outputs = trained, tuple(outputs)
        self.classes = classes
        self.total, self.batch_size = source.total, batch_size
        self._source, self._executor = source, executor
        self._records, self._seconds = 0, 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about weights and records."""
        return (*self.trained.notes, *self._source.notes)

    def batches(
        self, advance: Callable[[int], None] = lambda records: None
    ) -> Iterator[InferenceBatch]:
        """Run the network and yield results; `advance` receives the number of finished records.

        Raises UserError naming the file if a record cannot be read.
        """
        started = time.perf_counter()
        self._executor.clear_carried(EVALUATE)
        draws = RANDOM_STATE in self._executor.plan.specs
        random = self._executor.tensor(RANDOM_STATE).mirror() if draws else None
        results = {
            output: self._executor.result(EVALUATE, output.head.entry.name).mirror()
            for output in self.outputs
        }
        operations = LoopOperations(engine_of(self.trained.built.options.engine))
        evaluate = operations.evaluate(lambda _: self._executor.run(EVALUATE), EVALUATE)
        for number, records in enumerate(self._loaded(operations)):
            if random is not None:
                random.array[1:] = UNTRAINED, number
                random.store()
            operations.run(evaluate)
            count = len(records.names)
            arrays = {}
            for output, result in results.items():
                result.load()
                rows = result.array.reshape(self.batch_size, *output.shape)
                arrays[output.name] = rows[:count].copy()
            self._records += count
            self._seconds = time.perf_counter() - started
            advance(self._records)
            yield InferenceBatch(records, arrays)

    def _loaded(self, operations: LoopOperations) -> Iterator[Records]:
        """Load batch after batch."""
        batches = self._source.batches(self._executor, self.batch_size)
        records: Records | None = None

        def load(run: RunContext) -> None:
            nonlocal records
            records = next(batches, None)

        # The source measures the results of a batch when it is asked for the next one.
        loading = operations.engine.new_operator(
            load,
            reads=[operations.results],
            writes=[operations.batch],
            updates=[operations.measured],
            name="load",
        )
        while True:
            operations.run(loading)
            if records is None:
                return
            yield records

    def rows(self, advance: Callable[[int], None] = lambda records: None) -> Iterator[Row]:
        """Yield the results record by record: file, number of the record in it, label, outputs.

        A single output is part of the row itself; several are under `outputs` by name. advance: as
        in `batches`.
        """
        for batch in self.batches(advance):
            for index, (name, number) in enumerate(batch.records.names):
                row: Row = {"input": name, "record": number}
                if batch.records.labels is not None:
                    row |= self._label(batch.records.labels[index].tolist())
                results = {
                    output.name: output.to_json(batch.arrays[output.name][index])
                    for output in self.outputs
                }
                if len(results) == 1:
                    yield row | results.popitem()[1]
                else:
                    yield row | {"outputs": results}

    def _label(self, label: Any) -> Row:
        """Return a record's label: class number and name (if classes have names), or numbers."""
        named = isinstance(label, int) and 0 <= label < len(self.classes)
        return {"label": label} | ({"label_name": self.classes[label]} if named else {})

    @property
    def metrics(self) -> Mapping[str, Any] | None:
        """The loss and the metrics, after the last record, if they are measured."""
        return self._source.metrics

    def summary(self) -> Row:
        """Return the run, its speed and its metrics as JSON; complete after the last record."""
        checkpoint = self.trained.checkpoint
        return {
            "run": self.trained.built.options.name,
            "checkpoint": str(checkpoint.folder),
            "step": checkpoint.manifest.progress.step,
            "averaged": self.trained.averaged,
            "outputs": [
                {"name": output.name, "shape": list(output.shape)} for output in self.outputs
            ],
            "batch_size": self.batch_size,
            "threads": self._executor.plan.device.host_threads,
            "records": self._records,
            "seconds": self._seconds,
            "records_per_s": self._records / max(self._seconds, 1e-9),
            "classes": list(self.classes),
            "metrics": self.metrics,
            "columns": None if self._source.tally is None else self._source.tally.to_json(),
            "bad_records": self.bad_records,
        }

    @property
    def closing_notes(self) -> tuple[str, ...]:
        """Notes for the user after the last record: on records that were left out, and on what was
        missing or unknown in a table.
        """
        tally, bad = self._source.tally, self._source.bad_records
        left_out = "" if bad is None else bad.note
        counted = () if tally is None or self._source.is_counted else tally.notes("the records")
        return (*filter(None, [left_out]), *self._source.remarks, *counted)

    @property
    def bad_records(self) -> list[Row]:
        """The records that were left out so far, as JSON."""
        bad = self._source.bad_records
        return [] if bad is None else [each.to_json() for each in bad.found]


@dataclass(frozen=True)
class InferenceSetup:
    """Outputs and records of an inference, for a network of any batch size.

    measured: whether the losses are computed, which the source of records measures. top: number of
    classes reported. classes: a file of their names.
    """

    select: Callable[[ModelDefinition], Sequence[OutputHead]]
    open_source: Callable[[TrainedModel, Sequence[OutputHead]], RecordSource]
    measured: bool
    top: int | None = None
    classes: Path | None = None


def prepare(
    trained: TrainedModel, options: RunningOptions, setup: InferenceSetup, notify: Notify
) -> Inference:
    """Prepare a network for `setup`; of `options` only how to run is read. Raises UserError."""
    with preparing(trained.built.options, notify):
        return _prepared(trained, options, setup, notify)


def _prepared(
    trained: TrainedModel, options: RunningOptions, setup: InferenceSetup, notify: Notify
) -> Inference:
    if options.batch == MAX:
        trained = trained.with_batch_size(_largest_batch(trained, options, setup, notify))
    built = trained.built
    selected = setup.select(built)
    source = setup.open_source(trained, selected)
    available = source.available(built.model.batch_size)
    if not available:
        raise UserError("there are no records to infer")
    batch_size = planned_batch(built, selected, available)
    outputs = _outputs(trained, setup, selected, row_shapes(built, selected, batch_size))
    compiled = _compile_request(
        trained, options, selected, source, (batch_size, setup.measured), notify
    )
    prepared = Prepared.of(built, compile_plan(*compiled))
    prepared.begin(trained.copy_into)
    classes = _names_of_labels(trained, setup, outputs)
    return Inference(trained, source, prepared.executor, outputs, classes, batch_size)


def _largest_batch(
    trained: TrainedModel, options: RunningOptions, setup: InferenceSetup, notify: Notify
) -> int:
    """Return the largest batch that fits, at most the number of records if it is known."""
    selected = setup.select(trained.built)
    source = setup.open_source(trained, selected)

    def compile_request(size: int) -> tuple[Symbol, CompileRequest]:
        work = (size, setup.measured)
        return _compile_request(trained, options, selected, source, work, ignore_note)

    largest = largest_batch(trained.built, compile_request, notify)
    if source.total is None or source.total >= largest:
        return largest
    notify(f"--batch max: {source.total} samples, because there are no more records")
    return max(1, source.total)


def _compile_request(
    trained: TrainedModel,
    options: RunningOptions,
    selected: Sequence[OutputHead],
    source: RecordSource,
    work: tuple[int, bool],
    notify: Notify,
) -> tuple[Symbol, CompileRequest]:
    """Return the symbol and the compile request; work: batch size, and whether to measure."""
    built = trained.built
    batch_size, measured = work
    losses = built.model.symbol.heads if measured else ()
    return subgraph(selected, losses), replace(
        request_for(built, False, options.threads, notify),
        inputs=batch_inputs(built, batch_size),
        shapes=known_shapes(built),
        staged=source.staged(batch_size),
        precision=options.precision or built.options.precision,
    )


def _outputs(
    trained: TrainedModel,
    setup: InferenceSetup,
    selected: Sequence[OutputHead],
    rows: Mapping[str, Shape],
) -> list[Output]:
    """Return the outputs of the heads.

    A head reports classes if it is a distribution over classes, or if `top` is given.
    """
    outputs = []
    for head in selected:
        shape = rows[head.name]
        if len(shape) != 1 or (setup.top is None and not head.classes):
            outputs.append(Output(head, shape))
            continue
        top = min(setup.top or 1, shape[0])
        outputs.append(Output(head, shape, top, _class_names(trained, setup.classes, shape[0])))
    unused = "--top" if setup.top is not None else "--classes" if setup.classes else None
    if unused and not any(output.top for output in outputs):
        raise UserError(
            Diagnostic(
                f"{unused} goes with outputs that have one number for each class",
                got=", ".join(f"{output.name} {list(output.shape)}" for output in outputs),
            )
        )
    return outputs


def _names_of_labels(
    trained: TrainedModel, setup: InferenceSetup, outputs: Sequence[Output]
) -> tuple[str, ...]:
    """Return the class names of a file, or else those of training; empty if there are none."""
    given = [output.classes for output in outputs if output.top and setup.classes is not None]
    return given[0] if given else trained.classes


def _class_names(trained: TrainedModel, path: Path | None, count: int) -> tuple[str, ...]:
    """Return the names of `count` classes: lines of a file, names of training, or numbers."""
    if path is None:
        learned = trained.classes[:count]
        return (*learned, *map(str, range(len(learned), count)))
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) != count:
        raise UserError(
            Diagnostic(
                f"{path}: the number of class names differs from the network's",
                expected=f"{count} lines, one for each class",
                got=str(len(names)),
            )
        )
    return names
