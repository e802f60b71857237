"""Inputs of inference: records from files, folders, standard input, or a data set."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.config import Overrides, SourceNode
from mxrun.executor.executor import Executor
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import EVALUATE
from mxrun.inference.file_settings import PATH, given_settings, with_settings
from mxrun.inference.outputs import label_inputs
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.registry import DATASETS, TABLE
from mxrun.io.decompressed import SUFFIXES as COMPRESSED
from mxrun.io.files import MAXIMUM_BYTES, user_path, visible_below
from mxrun.io.images.kinds import SUFFIXES
from mxrun.io.loading.bad_records import BadRecord, BadRecords
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.io.loading.iterator import DataIterator
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.python_transforms import TransformRunner
from mxrun.io.loading.staging import Staging, staging_specs
from mxrun.io.sample import read_samples, samples
from mxrun.io.tables.encoding import TableEncoding, Tally
from mxrun.io.tables.text import PLAIN, TableForm
from mxrun.preparation.planning import staged_names
from mxrun.run.data_workers import python_transforms
from mxrun.run.trained_model import TrainedModel
from mxrun.train.host_arrays import slots, staged_arrays
from mxrun.train.measure import LossTensors, Measure, Phase
from mxrun.train.metric_kind import MetricKind

STANDARD_INPUT = "-"
STANDARD_INPUT_NAME = "<standard input>"
_FOLDER_SUFFIXES = (*SUFFIXES, ".npy", ".csv", *(f".csv{each}" for each in COMPRESSED))


@dataclass(frozen=True, eq=False)
class Records:
    """Records of the batch in the io slots: one name per row, and labels.

    names: (file or data set, number of the record in it, from 0). labels: if known, class numbers
    [count], or regression targets [count] or [count, numbers]. targets: if requested, the arrays
    [count, ...] that losses read as labels, by input; valid until the next batch. numbers: of the
    records in their data set, int64 [count]; None if the batches have the records in order. series:
    names of the series whose windows the records are.
    """

    names: Sequence[tuple[str, int]]
    labels: npt.NDArray[Any] | None = None
    targets: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    numbers: npt.NDArray[np.int64] | None = None
    series: npt.NDArray[np.str_] | None = None


class RecordSource(ABC):
    """Records in a fixed order, to be iterated once.

    total: their number, if it is known before reading. metrics: the loss and the config's metrics
    after all batches have run, if they can be measured. notes: notes for the user about the
    records. tally: what was missing or unknown in the records so far, if they are rows of an
    encoded table; is_counted: whether `notes` say so already. bad_records: those that
    are left out; None if their errors are raised. remarks: notes on the records so far.
    """

    total: int | None = None
    notes: tuple[str, ...] = ()
    metrics: Mapping[str, Any] | None = None
    bad_records: BadRecords | None = None
    tally: Tally | None = None
    is_counted: bool = False
    remarks: Sequence[str] = ()

    @abstractmethod
    def available(self, limit: int) -> int:
        """Return how many rows of a batch of `limit` are used. Raises UserError as reading does."""

    @abstractmethod
    def staged(self, batch_size: int) -> Mapping[str, TensorSpec]:
        """Return the specs of a prefetched batch, which is stored beside the io slots."""

    @abstractmethod
    def batches(self, executor: Executor, batch_size: int) -> Iterator[Records]:
        """Write batch after batch into the executor's io slots; the caller runs the network.

        Rows after the last record have arbitrary contents. Raises UserError naming file and record
        if one cannot be read.
        """


class FileSource(RecordSource):
    """Records of files in the given order; `-` is standard input, a folder all files below it."""

    def __init__(
        self, trained: TrainedModel, inputs: Sequence[str], field: str, settings: Overrides = ()
    ) -> None:
        """Find the files; nothing is read yet.

        settings: `KEY=VALUE` for the form of tables, such as `label=kind`. Raises UserError for
        missing files and wrong settings.
        """
        built, manifest = trained.built, trained.checkpoint.manifest
        size = built.model.records[field].elements
        table = _table_form(built, size, manifest.columns, settings)
        if manifest.encoding is not None:
            table = _encoded_form(table, manifest.encoding, settings)
        self._field = field
        self._sample = replace(
            trained.samples[field].for_records(), table=table, encoding=manifest.encoding
        )
        self.tally = None if manifest.encoding is None else self._sample.tally
        self.remarks = self._sample.remarks
        files, data = input_files(inputs), built.options.data
        if data.on_bad_record == "skip":
            self.bad_records = BadRecords("the files", len(files), data.max_bad_records)
        self._records = self._read(files)
        self._buffered: deque[tuple[str, int, npt.NDArray[Any]]] = deque()

    def available(self, limit: int) -> int:
        """Return the number of records in the first files, which are read for it."""
        self._buffered.extend(islice(self._records, limit - len(self._buffered)))
        return len(self._buffered)

    def staged(self, batch_size: int) -> Mapping[str, TensorSpec]:
        """Return no tensors: files are read between the batches."""
        return {}

    def batches(self, executor: Executor, batch_size: int) -> Iterator[Records]:
        """Yield batches of the one input that files contain; other inputs remain zero."""
        slot = executor.tensor(self._field).mirror()
        if SAMPLE_WEIGHT in executor.plan.specs:
            executor.tensor(SAMPLE_WEIGHT).write(1)
        while count := self.available(batch_size):
            names = []
            for target in slot.array[:count]:
                name, number, row = self._buffered.popleft()
                target[...] = row
                names.append((name, number))
            slot.store()
            yield Records(names)

    def _read(self, files: Sequence[str]) -> Iterator[tuple[str, int, npt.NDArray[Any]]]:
        for position, file in enumerate(files):
            try:
                yield from self._read_file(file)
            except UserError as error:
                if self.bad_records is None:
                    raise
                reason = "; ".join(each.problem for each in error.diagnostics)
                self.bad_records.leave_out([BadRecord(position, file, None, None, reason)])

    def _read_file(self, file: str) -> Iterator[tuple[str, int, npt.NDArray[Any]]]:
        if file == STANDARD_INPUT:
            name = STANDARD_INPUT_NAME
            rows = samples(standard_input(), name, self._sample)
        else:
            name = file
            rows = read_samples(Path(file), self._sample)
        for number, row in enumerate(rows):
            yield name, number, row


def _table_form(
    built: ModelDefinition, size: int, columns: tuple[str, ...], settings: Overrides
) -> TableForm:
    """Return the form of the config's own tables, with header and labels optional.

    settings: keys of a table that take precedence. Raises UserError for wrong ones.
    """
    request = built.data.get("train")
    options = None if request is None else request.options
    if not hasattr(options, "form"):
        # If training read no tables, the settings are those of this data set.
        options = DATASETS.get(TABLE).options(**{PATH: STANDARD_INPUT}) if settings else None
    given: Mapping[str, SourceNode] = {}
    if options is not None and settings:
        given = given_settings(settings)
        options = with_settings(options, given)
    form: TableForm = getattr(options, "form", PLAIN)
    header = form.header if "header" in given or form.header == "no" else "maybe"
    if "data" in given:
        # The label of training need not be among the columns.
        label = form.label if "label" in given else None
        return replace(form, header=header, size=size, label=label)
    return replace(form, header=header, size=size, data=columns or form.data)


def _encoded_form(form: TableForm, encoding: TableEncoding, settings: Overrides) -> TableForm:
    """Return the form of a table whose columns are treated as in training."""
    is_selected = "data" in given_settings(settings)
    data = form.data if is_selected else encoding.source_columns
    size, forms = len(encoding.columns), encoding.forms
    return replace(form, size=size, data=data, columns=None, forms=forms)


def input_files(inputs: Sequence[str], hint: str = "") -> list[str]:
    """Return the files that `inputs` name, folders in sorted order.

    hint: that of the error for a file that does not exist. Raises UserError with all diagnostics
    at once.
    """
    found: list[str] = []
    problems: list[Diagnostic] = []
    for given in inputs:
        path = user_path(given)
        if given == STANDARD_INPUT:
            found.append(given)
        elif os.path.isdir(path):
            below = _below(path)
            found += below
            # Reading a pipe would wait for its writer.
            problems += [
                Diagnostic(f"{file}: not a regular file", expected="a file with records")
                for file in below
                if os.path.exists(file) and not os.path.isfile(file)
            ]
            if not below:
                expected = f"files that end in {', '.join(_FOLDER_SUFFIXES)}"
                problems.append(Diagnostic(f"{given}: holds no records", expected=expected))
        elif os.path.exists(path):
            found.append(str(path))
        else:
            problems.append(Diagnostic(f"{given}: there is no such file or folder", hint=hint))
    if list(inputs).count(STANDARD_INPUT) > 1:
        problems.append(Diagnostic("standard input can be read once only"))
    if problems:
        raise UserError(problems)
    return found


def _below(folder: Path) -> list[str]:
    """Return the record files below a folder, sorted by path, without hidden ones."""
    return sorted(
        os.path.join(parent, name)
        for parent, _, names in visible_below(folder)
        for name in names
        if name.lower().endswith(_FOLDER_SUFFIXES)
    )


def standard_input() -> bytes:
    """Read standard input. Raises UserError if it exceeds the limit."""
    content = sys.stdin.buffer.read(MAXIMUM_BYTES + 1)
    if len(content) > MAXIMUM_BYTES:
        raise UserError(f"standard input is too large: at most {MAXIMUM_BYTES} bytes are read")
    return content


class DatasetSource(RecordSource):
    """Records of a data set, in its order, through its pipeline.

    metrics: with these, the loss and the metrics are computed meanwhile and stored in `metrics` at
    the end. targets: whether batches hold the labels that losses read. path: the file that holds
    all records, if there is one.
    """

    def __init__(
        self,
        built: ModelDefinition,
        dataset: Dataset,
        metrics: Collection[MetricKind] | None = None,
        notes: Sequence[str] = (),
        targets: bool = False,
        path: str = "",
    ) -> None:
        self._model, self._options, self._data = built.model, built.options, built.options.data
        self._label_inputs = label_inputs(built)
        self._metrics, self._dataset = metrics, dataset
        labels = dict.fromkeys(each.label for each in built.model.measured if each.label)
        self._targets = tuple(labels) if targets else ()
        self.total, self.notes, self._path = len(dataset), tuple(notes), path
        self.tally, self.is_counted = dataset.tally, True
        if self._data.on_bad_record == "skip":
            self.bad_records = BadRecords.of(dataset, self._data.max_bad_records)

    def available(self, limit: int) -> int:
        """Return `limit`: losses are measured on batches of the network's own size."""
        return limit

    def staged(self, batch_size: int) -> Mapping[str, TensorSpec]:
        """Return the specs of a prefetched batch, if records are read lazily or transformed."""
        if not (self._dataset.lazy or self._dataset.pipeline):
            return {}
        return staging_specs(self._dataset.inputs, batch_size)

    def batches(self, executor: Executor, batch_size: int) -> Iterator[Records]:
        """Yield the batches of the data set."""
        labels = self._label_column()
        with (
            closing(python_transforms(self._options, [self._dataset.pipeline])) as python,
            closing(self._iterator(executor, batch_size, python)) as iterator,
        ):
            inputs = slots(executor, iterator)
            measure = None
            if self._metrics is not None:
                phase = Phase(EVALUATE, iterator, self._metrics)
                measure = Measure(executor, phase, self._model.measured, inputs.arrays)
            while (batch := iterator.next_into(inputs.arrays)) is not None:
                if not batch.valid:
                    # All of its records are bad.
                    continue
                inputs.store()
                indices = batch.indices[: batch.valid]
                names = [self._name(number) for number in indices.tolist()]
                targets = {name: inputs.arrays[name][: batch.valid] for name in self._targets}
                known = None if labels is None else self._labels(labels, indices)
                windows = self._dataset.series
                series = None if windows is None else windows.series_of(indices)
                yield Records(names, known, targets, indices.copy(), series)
                if measure is not None:
                    measure.update(batch.valid)
        self.metrics = None if measure is None else measure.values()

    def _name(self, number: int) -> tuple[str, int]:
        """Return the file of a record, if it has its own, or the data set and the number in it."""
        dataset = self._dataset
        if dataset.series is not None:
            return dataset.series.described(number), self._number(number)
        for column in dataset.lazy.values():
            if location := column.source(number):
                return shown_path(location.file), location.number
        split = dataset.split.partition("[")[0]
        name = self._path or f"{dataset.name} {split}".rstrip()
        return name, self._number(number)

    def _number(self, number: int) -> int:
        """Return the number of a record in the complete split."""
        numbers = self._dataset.numbers
        return number if numbers is None else int(numbers[number])

    def _iterator(
        self, executor: Executor, batch_size: int, python: TransformRunner
    ) -> DataIterator:
        """Return the iterator that fills the io slots of a plan for this batch size."""
        specs = self.staged(batch_size)
        batches = [
            staged_arrays(executor, batch, specs) for batch in staged_names(self._options, specs)
        ]
        return open_iterator(
            self._dataset,
            batch_size,
            loops=executor.device.host_loop,
            workers=self._data.loader_threads,
            staging=Staging(batches),
            bad_records=self.bad_records,
            python=python,
        )

    def _labels(self, column: Field, indices: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the labels of records, of a series in its own units."""
        if self._dataset.series is None:
            return column.taken(indices)
        return self._dataset.series.targets(indices).reshape(len(indices), *column.spec.shape)

    def _label_column(self) -> Field | None:
        """Return the labels of all records if the network has one label input, else None.

        Labels are classes or regression targets. None too if they are also data, as in an
        autoencoder.
        """
        axes = {each.label: _label_axes(each) for each in self._model.measured if _label_axes(each)}
        if len(axes) != 1:
            return None
        label, max_rank = axes.popitem()
        column = self._dataset.fields.get(label)
        if column is None or column.records.ndim > max_rank or label not in self._label_inputs:
            return None
        return column


def _label_axes(loss: LossTensors) -> int:
    """Return the maximum rank of labels that are written beside records; 0 without such labels."""
    if loss.regression is not None:
        return 2
    return int(bool(loss.label) and (loss.classification is None or loss.classification.labelled))


def shown_path(file: str) -> str:
    """Return a path relative to the working folder if it is below it."""
    relative = os.path.relpath(file)
    return file if relative.startswith(os.pardir) else relative
