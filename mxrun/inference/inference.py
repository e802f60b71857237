"""Inference: a trained network on files, standard input or a data set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.frontend import ModelDefinition
from mxrun.graph.symbol import Symbol
from mxrun.inference.outputs import (
    OutputHead,
    batch_inputs,
    known_shapes,
    planned_batch,
    predictions,
    row_shapes,
    subgraph,
)
from mxrun.inference.prepared_inference import InferenceBatch, Output, PreparedInference, Row
from mxrun.inference.records import RecordSource
from mxrun.io.files import unreadable_error
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.options.shared import MAX
from mxrun.preparation.max_batch_size import largest_batch
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.preparation.planning import planned_staging, request_for
from mxrun.preparation.prepared import Prepared, preparing
from mxrun.run.trained_model import RunningOptions, TrainedModel


class Inference:
    """Trained network that is ready to run on its records, which are iterated once.

    trained: the weights. outputs: the tensors reported for every record. classes: names of the
    labels' classes, if any.
    """

    def __init__(self, prepared: PreparedInference, source: RecordSource) -> None:
        self.prepared, self.trained, self.outputs = prepared, prepared.trained, prepared.outputs
        self.classes, self.batch_size = prepared.classes, prepared.batch_size
        self.total = source.total
        self._source = source
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
        for batch in self.prepared.batches(self._source):
            self._records += len(batch.records.names)
            self._seconds = time.perf_counter() - started
            advance(self._records)
            yield batch

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
            "threads": self.prepared.executor.plan.device.host_threads,
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
class SelectedOutputs:
    """Outputs that an inference computes for every record.

    measured: whether the losses are computed too, which the source of records measures. top: number
    of classes reported. classes: a file of their names.
    """

    heads: Sequence[OutputHead]
    measured: bool = False
    top: int | None = None
    classes: Path | None = None


@dataclass(frozen=True)
class InferenceSetup:
    """Outputs and records of an inference, for a network of any batch size."""

    select: Callable[[ModelDefinition], SelectedOutputs]
    open_source: Callable[[TrainedModel, Sequence[OutputHead]], RecordSource]


def prepare(
    trained: TrainedModel, options: RunningOptions, setup: InferenceSetup, notify: Notify
) -> Inference:
    """Prepare a network for `setup`; of `options` only how to run is read. Raises UserError."""
    with preparing(trained.built.options, notify):
        if options.batch == MAX:
            trained = trained.with_batch_size(_largest_batch(trained, options, setup, notify))
        selection = setup.select(trained.built)
        source = setup.open_source(trained, selection.heads)
        available = available_records(source, trained.built)
        prepared = bind_network(trained, options, selection, available, source.staged, notify)
        return Inference(prepared, source)


def available_records(source: RecordSource, built: ModelDefinition) -> int:
    """Return the number of records in a source's first batch. Raises UserError if there is none."""
    available = source.available(built.model.batch_size)
    if not available:
        raise UserError("there are no records to infer")
    return available


def bind_network(
    trained: TrainedModel,
    options: RunningOptions,
    selection: SelectedOutputs,
    available: int,
    staged: Callable[[int], Mapping[str, TensorSpec]],
    notify: Notify,
) -> PreparedInference:
    """Plan and bind the network for batches of the available records.

    staged: returns the tensors for prefetching of a batch size (`RecordSource.staged`).
    """
    built, selected = trained.built, selection.heads
    batch_size = planned_batch(built, selected, available)
    outputs = _outputs(trained, selection, row_shapes(built, selected, batch_size))
    specs = staged(batch_size)
    compiled = _compile_request(trained, options, selection, batch_size, specs, notify)
    prepared = Prepared.of(built, compile_plan(*compiled))
    prepared.begin(trained.copy_into)
    classes = _names_of_labels(trained, selection, outputs)
    return PreparedInference(trained, prepared.executor, outputs, classes, batch_size)


def _largest_batch(
    trained: TrainedModel, options: RunningOptions, setup: InferenceSetup, notify: Notify
) -> int:
    """Return the largest batch that fits, at most the number of records if it is known."""
    selection = setup.select(trained.built)
    source = setup.open_source(trained, selection.heads)

    def compile_request(size: int) -> tuple[Symbol, CompileRequest]:
        staged = source.staged(size)
        return _compile_request(trained, options, selection, size, staged, ignore_note)

    largest = largest_batch(trained.built, compile_request, notify)
    if source.total is None or source.total >= largest:
        return largest
    notify(f"--batch max: {source.total} samples, because there are no more records")
    return max(1, source.total)


def _compile_request(
    trained: TrainedModel,
    options: RunningOptions,
    selection: SelectedOutputs,
    batch_size: int,
    staged: Mapping[str, TensorSpec],
    notify: Notify,
) -> tuple[Symbol, CompileRequest]:
    """Return the symbol and the compile request for a batch size."""
    built = trained.built
    losses = built.model.symbol.heads if selection.measured else ()
    return subgraph(selection.heads, losses), replace(
        request_for(built, False, options.threads, notify),
        inputs=batch_inputs(built, batch_size),
        shapes=known_shapes(built),
        staged=planned_staging(built, staged),
        precision=options.precision or built.options.precision,
    )


def _outputs(
    trained: TrainedModel, selection: SelectedOutputs, rows: Mapping[str, Shape]
) -> list[Output]:
    """Return the outputs of the heads.

    A head reports classes if it is a distribution over classes, or if `top` is given.
    """
    outputs = []
    encoding = trained.checkpoint.manifest.encoding
    forecasts = {
        head.name
        for loss, head in predictions(trained.built).items()
        if isinstance(encoding, SeriesEncoding) and _label_of(trained.built, loss) == "label"
    }
    for head in selection.heads:
        shape = rows[head.name]
        if head.name in forecasts and isinstance(encoding, SeriesEncoding):
            outputs.append(Output(head, shape, scaling=encoding))
            continue
        if len(shape) != 1 or (selection.top is None and not head.classes):
            outputs.append(Output(head, shape))
            continue
        names = _class_names(trained, selection.classes, shape[0])
        outputs.append(Output(head, shape, min(selection.top or 1, shape[0]), names))
    unused = "--top" if selection.top is not None else "--classes" if selection.classes else None
    if unused and not any(output.top for output in outputs):
        raise UserError(
            Diagnostic(
                f"{unused} goes with outputs that have one number for each class",
                got=", ".join(f"{output.name} {list(output.shape)}" for output in outputs),
            )
        )
    return outputs


def _label_of(built: ModelDefinition, name: str) -> str:
    """Return the input that a loss reads as labels."""
    return next(loss.label for loss in built.model.losses if loss.name == name)


def _names_of_labels(
    trained: TrainedModel, selection: SelectedOutputs, outputs: Sequence[Output]
) -> tuple[str, ...]:
    """Return the class names of a file, or else those of training; empty if there are none."""
    given = [output.classes for output in outputs if output.top and selection.classes is not None]
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
