"""Statistics of one loss's predictions: counts by class, errors by output, and the worst records.

A batch is added as arrays of its records; nothing but counts, sums and the worst records is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mxrun.base.classification import Classification
from mxrun.base.dataclass import dataclass
from mxrun.base.regression import Regression
from mxrun.executor.side_program import BatchTensors, host_tensor
from mxrun.train.auc import AreaUnderCurve
from mxrun.train.classification_metrics import MAX_CLASSES, Accuracy
from mxrun.train.count_metrics import F1, BalancedAccuracy, IntersectionOverUnion, quotient
from mxrun.train.measure import LossTensors
from mxrun.train.metric_kind import MetricKind, Metrics
from mxrun.train.predictions import Array
from mxrun.train.regression_metrics import (
    BinaryAccuracyKind,
    DeterminationKind,
    MeanAbsoluteErrorKind,
    RootMeanSquaredErrorKind,
    spread_of,
)

Row = dict[str, Any]
Names = Sequence[tuple[str, int]]
CLASSES, BINARY, MULTI_LABEL, NUMBERS = "classes", "binary", "multi_label", "numbers"
# Outputs of a regression that have rows of their own, and numbers of a record that are listed.
_MAX_OUTPUTS = 64
_SMALLEST = 1e-12
_MAX_MISTAKES = 100


@dataclass(frozen=True)
class HeadEvaluation:
    """Evaluation of one loss.

    kind: `classes`, `binary` (one probability), `multi_label` (several), or `numbers`. metrics: by
    name. rows: one for each class, {class, name, precision, recall, f1, support}, or for each
    output of a regression, {output, mae, rmse, r2, support}. averages: {macro, weighted} over the
    classes. confusion: counts by label (row) and predicted class; None for other kinds, and for
    more classes than a table can hold. mistakes: (label, predicted, count) of the confused pairs,
    the most frequent first, at most 100. errors: the worst records, the worst first. forecasts: of
    a series, {target, forecast, mae, rmse, mase} of the network and of naive forecasts.
    """

    name: str
    kind: str
    metrics: Mapping[str, float]
    classes: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    averages: Mapping[str, Row] | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None
    mistakes: tuple[tuple[int, int, int], ...] = ()
    errors: tuple[Row, ...] = ()
    forecasts: tuple[Row, ...] = ()

    def to_json(self) -> Row:
        """Return the evaluation as JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "metrics": dict(self.metrics),
            "classes": list(self.classes),
            "rows": list(self.rows),
            "averages": self.averages,
            "confusion_matrix": self.confusion,
            "mistakes": [
                {"label": label, "predicted": predicted, "count": count}
                for label, predicted, count in self.mistakes
            ],
            "errors": list(self.errors),
            "forecasts": list(self.forecasts),
        }


class WorstRecords:
    """The `count` records with the largest errors; of equal ones the earlier."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: list[tuple[float, Row]] = []

    def candidates(self, errors: Array) -> list[int]:
        """Return the records of a batch that may be among the worst, for errors [records]."""
        keys = np.where(np.isnan(errors), np.inf, errors)
        order = np.argsort(-keys, kind="stable")[: self._count]
        if not self._kept or len(self._kept) < self._count:
            return [int(record) for record in order]
        least = self._kept[-1][0]
        return [int(record) for record in order if keys[record] > least]

    def keep(self, error: float, row: Row) -> None:
        """Add one of the candidates."""
        kept = (np.inf if np.isnan(error) else error, row)
        insort_right(self._kept, kept, key=lambda each: -each[0])
        del self._kept[self._count :]

    def rows(self) -> tuple[Row, ...]:
        """Return the worst records, the worst first."""
        return tuple(row for _, row in self._kept)


class HeadStatistics(ABC):
    """Statistics of one loss over batches of `rows` records, with the `errors` worst of them."""

    kind: str

    def __init__(
        self, loss: LossTensors, task: Classification | Regression, rows: int, errors: int
    ) -> None:
        self.name, self._loss, self._rows = loss.name, loss, rows
        self._task = task
        self._metrics: Metrics | None = None
        self._worst = WorstRecords(errors)
        self._weight = np.zeros(rows, np.float32)
        self._buffers: tuple[Array, Array] | None = None

    def measure(self, configured: Iterable[MetricKind]) -> None:
        """Compute the usual metrics, and the `configured` ones that the run's evaluation cannot.

        The run's evaluation computes those that support the loss's own view of its tensors.
        """
        configured = self._loss.named(configured)
        known = {
            kind.figure for kind in configured if not kind.why_unsupported(self._loss.measured)
        }
        self._compute([kind for kind in (*configured, *self._usual()) if kind.figure not in known])

    def _compute(self, kinds: Iterable[MetricKind]) -> None:
        """Compute the metrics that this kind of loss supports."""
        by_figure = {kind.figure: kind for kind in kinds if not kind.is_table}
        missing = [each for each in by_figure.values() if not each.why_unsupported(self._task)]
        self._metrics = Metrics(missing, self._task, self._rows) if missing else None

    def add(self, names: Names, labels: Array, outputs: Array) -> None:
        """Add a batch of records: their names, labels [records, ...] and outputs [records, ...]."""
        labels = self._class_labels(labels)
        self._add_metrics(labels, outputs)
        self._add(names, labels, outputs)

    @abstractmethod
    def evaluation(self, known: Mapping[str, float], classes: Sequence[str]) -> HeadEvaluation:
        """Return the evaluation; `known` are the metrics computed elsewhere, by name."""

    @abstractmethod
    def _usual(self) -> Sequence[MetricKind]:
        """Return the usual metrics of this kind of loss."""

    @abstractmethod
    def _add(self, names: Names, labels: Array, outputs: Array) -> None: ...

    def _class_labels(self, labels: Array) -> Array:
        return labels

    def _add_metrics(self, labels: Array, outputs: Array) -> None:
        """Add a batch to the metrics, which read full batches with weights."""
        if self._metrics is None:
            return
        count = len(outputs)
        if self._buffers is None:
            self._buffers = (
                np.zeros((self._rows, *labels.shape[1:]), labels.dtype),
                np.zeros((self._rows, *outputs.shape[1:]), np.float32),
            )
            tensors = map(host_tensor, (*self._buffers, self._weight))
            self._update = self._metrics.updater(BatchTensors(*tensors))
        for buffer, values in zip(self._buffers, (labels, outputs), strict=True):
            buffer[:count] = values
        self._weight[:count], self._weight[count:] = 1, 0
        self._update()

    def _figures(self, known: Mapping[str, float]) -> dict[str, float]:
        """Return all metrics by name; tables are not among them."""
        own = {} if self._metrics is None else self._metrics.by_figure
        found = {**known, **{name: metric.value() for name, metric in own.items()}}
        return {name: value for name, value in found.items() if not isinstance(value, list)}


class ClassStatistics(HeadStatistics):
    """Counts of labels and predictions by class; a single probability is class 1 above 0.5."""

    def __init__(
        self, loss: LossTensors, task: Classification | Regression, rows: int, errors: int
    ) -> None:
        self._soft = False
        self.kind = BINARY if isinstance(task, Regression) else CLASSES
        if isinstance(task, Classification):
            # Labels that are probabilities count as their most probable class.
            self._soft = not task.labelled and loss.classification is not None
            task = replace(task, labelled=True)
            self._shape = (task.samples // rows, task.classes, task.positions)
            self._ignored = task.ignored
        else:
            self._shape, self._ignored = (1, 2, 1), None
        super().__init__(loss, task, rows, errors)
        self._classes = self._shape[1]
        self._counts = np.zeros((3, self._classes))
        self._pairs: Counter[int] = Counter()

    def _usual(self) -> Sequence[MetricKind]:
        kinds: list[MetricKind] = [Accuracy(), BalancedAccuracy()]
        if self._classes == 2:
            return [*kinds, AreaUnderCurve(), F1()]
        return [*kinds, F1(average="macro")]

    def _class_labels(self, labels: Array) -> Array:
        if not self._soft:
            return labels
        by_class = labels.reshape(len(labels), *self._shape)
        likeliest: Array = by_class.argmax(2)
        return likeliest

    def _add(self, names: Names, labels: Array, outputs: Array) -> None:
        count, (parts, classes, positions) = len(outputs), self._shape
        if self.kind == BINARY:
            above = outputs.reshape(count, 1).astype(np.float64)
            probabilities = np.concatenate([1 - above, above], axis=1)[:, :, np.newaxis]
            numbers = (labels.reshape(count) > 0.5).astype(np.int64)
        else:
            probabilities = outputs.reshape(count * parts, classes, positions)
            numbers = labels.reshape(-1).astype(np.int64)
        predicted = probabilities.argmax(1)
        if self.kind == BINARY:
            predicted = (probabilities[:, 1] > 0.5).astype(np.int64)
        numbers = numbers.reshape(predicted.shape)
        counted = (numbers >= 0) & (numbers < classes)
        if self._ignored is not None:
            counted &= numbers != self._ignored
        codes = numbers[counted] * classes + predicted[counted]
        self._count(codes)
        safe = np.where(counted, numbers, 0)
        own = np.take_along_axis(probabilities, safe[:, np.newaxis], 1)[:, 0]
        losses = np.where(counted, -np.log(own + _SMALLEST), 0)
        self._add_worst(names, numbers, predicted, probabilities, (losses, counted))

    def _count(self, codes: Array) -> None:
        """Count pairs of label and predicted class, coded as label * classes + predicted."""
        labels, predicted = np.divmod(codes, self._classes)
        hits = labels[labels == predicted]
        for row, found in enumerate((hits, labels, predicted)):
            self._counts[row] += np.bincount(found, minlength=self._classes)
        found, times = np.unique(codes[labels != predicted], return_counts=True)
        self._pairs.update(dict(zip(found.tolist(), times.tolist(), strict=True)))

    def _add_worst(
        self,
        names: Names,
        labels: Array,
        predicted: Array,
        probabilities: Array,
        measured: tuple[Array, Array],
    ) -> None:
        """Keep the records with the highest mean loss."""
        losses, counted = (array.reshape(len(names), -1) for array in measured)
        amounts = counted.sum(1)
        means = np.where(amounts > 0, losses.sum(1) / np.maximum(amounts, 1), -np.inf)
        labels, predicted = labels.reshape(len(names), -1), predicted.reshape(len(names), -1)
        for record in self._worst.candidates(means):
            if not amounts[record]:
                continue
            name, number = names[record]
            row: Row = {"input": name, "record": number, "loss": float(means[record])}
            if labels.shape[1] == 1:
                label, best = int(labels[record, 0]), int(predicted[record, 0])
                row |= {
                    "label": label,
                    "prediction": best,
                    "probability": float(probabilities[record, best, 0]),
                    "label_probability": float(probabilities[record, label, 0]),
                }
            else:
                wrong = (labels[record] != predicted[record]) & counted[record]
                row |= {"wrong": int(wrong.sum()), "predictions": int(amounts[record])}
            self._worst.keep(float(means[record]), row)

    def evaluation(self, known: Mapping[str, float], classes: Sequence[str]) -> HeadEvaluation:
        """Return the evaluation; `classes` are names of all classes or empty."""
        named = len(classes) == self._classes
        names = tuple(classes) if named else tuple(map(str, range(self._classes)))
        confusion = None
        if self._classes <= MAX_CLASSES:
            matrix = np.diag(self._counts[0].astype(np.int64)).reshape(-1)
            for code, times in self._pairs.items():
                matrix[code] += times
            confusion = tuple(map(tuple, matrix.reshape(-1, self._classes).tolist()))
        pairs = sorted(self._pairs.items(), key=lambda pair: (-pair[1], pair[0]))
        rows, averages = class_rows(self._counts, names)
        return HeadEvaluation(
            self.name,
            self.kind,
            self._figures(known),
            names,
            rows,
            averages,
            confusion,
            tuple((*divmod(code, self._classes), times) for code, times in pairs[:_MAX_MISTAKES]),
            tuple(self._with_names(row, names) for row in self._worst.rows()),
        )

    @staticmethod
    def _with_names(row: Row, names: Sequence[str]) -> Row:
        if "label" not in row:
            return row
        return row | {
            "label_name": names[row["label"]],
            "prediction_name": names[row["prediction"]],
        }


class MultiLabelStatistics(HeadStatistics):
    """Counts of each label, which has a probability, or one for each pixel if it is a mask."""

    kind = MULTI_LABEL

    def __init__(self, loss: LossTensors, task: Regression, rows: int, errors: int) -> None:
        super().__init__(loss, task, rows, errors)
        self._elements, self._labels, self._positions = task.elements, task.labels, task.positions
        self._counts = np.zeros((3, task.labels))
        self._records = 0

    def _usual(self) -> Sequence[MetricKind]:
        masks = [IntersectionOverUnion(average="binary" if self._labels == 1 else "macro")]
        return [BinaryAccuracyKind(), *(masks if self._positions > 1 else ())]

    def _add(self, names: Names, labels: Array, outputs: Array) -> None:
        labels = labels.reshape(len(labels), -1) > 0.5
        values = outputs.reshape(len(outputs), -1).astype(np.float64)
        predicted = values > 0.5
        self._records += len(labels)
        for counts, found in zip(
            self._counts, (labels & predicted, labels, predicted), strict=True
        ):
            counts += found.reshape(-1, self._labels, self._positions).sum((0, 2))
        chosen = np.where(labels, values, 1 - values)
        losses = -np.log(chosen + _SMALLEST).mean(1)
        for record in self._worst.candidates(losses):
            name, number = names[record]
            row: Row = {"input": name, "record": number, "loss": float(losses[record])}
            row["wrong"] = int((labels[record] != predicted[record]).sum())
            row["predictions"] = self._elements
            if self._positions == 1:
                row["label"] = np.flatnonzero(labels[record]).tolist()
                row["prediction"] = np.flatnonzero(predicted[record]).tolist()
            self._worst.keep(float(losses[record]), row)

    def evaluation(self, known: Mapping[str, float], classes: Sequence[str]) -> HeadEvaluation:
        """Return the evaluation; `classes` are names of all labels or empty."""
        named = len(classes) == self._labels
        names = tuple(classes) if named else tuple(map(str, range(self._labels)))
        rows, averages = class_rows(self._counts, names)
        figures = self._figures(known)
        errors = self._worst.rows()
        return HeadEvaluation(self.name, self.kind, figures, names, rows, averages, errors=errors)


class NumberStatistics(HeadStatistics):
    """Errors of predicted numbers, for each output."""

    kind = NUMBERS
    max_rows = _MAX_OUTPUTS

    def __init__(self, loss: LossTensors, task: Regression, rows: int, errors: int) -> None:
        super().__init__(loss, task, rows, errors)
        self._elements = task.elements
        # Sums over records of |error|, error^2, label, label^2.
        self._sums = np.zeros((4, task.elements))
        self._records = 0

    def _usual(self) -> Sequence[MetricKind]:
        return [MeanAbsoluteErrorKind(), RootMeanSquaredErrorKind(), DeterminationKind()]

    def _add(self, names: Names, labels: Array, outputs: Array) -> None:
        labels = labels.reshape(len(labels), -1).astype(np.float64)
        values = outputs.reshape(len(outputs), -1).astype(np.float64)
        differences = np.abs(values - labels)
        self._records += len(labels)
        for total, terms in zip(
            self._sums, (differences, differences**2, labels, labels**2), strict=True
        ):
            total += terms.sum(0)
        errors = differences.mean(1)
        for record in self._worst.candidates(errors):
            name, number = names[record]
            row: Row = {"input": name, "record": number, "error": float(errors[record])}
            if self._elements <= _MAX_OUTPUTS:
                row["label"] = _numbers(labels[record])
                row["prediction"] = _numbers(values[record])
            self._worst.keep(float(errors[record]), row)

    def evaluation(self, known: Mapping[str, float], classes: Sequence[str]) -> HeadEvaluation:
        """Return the evaluation; numbers have no classes."""
        del classes
        figures, errors = self._figures(known), self._worst.rows()
        rows = self._output_rows() if 1 < self._elements <= self.max_rows else ()
        return HeadEvaluation(self.name, self.kind, figures, rows=rows, errors=errors)

    def _output_rows(self) -> tuple[Row, ...]:
        """Return mae, rmse and r2 of each output; r2 is NaN if all its labels are equal."""
        absolute, squared, labels, squares = self._sums
        count = max(self._records, 1)
        spread = spread_of(count, labels, squares)
        r2 = np.full(self._elements, np.nan)
        np.divide(squared, spread, out=r2, where=spread > 0)
        return tuple(
            {
                "output": output,
                "mae": float(absolute[output] / count),
                "rmse": float(np.sqrt(squared[output] / count)),
                "r2": float(1 - r2[output]),
                "support": self._records,
            }
            for output in range(self._elements)
        )


def statistics_of(loss: LossTensors, rows: int, errors: int) -> HeadStatistics:
    """Return the statistics of a loss that has labels, in batches of `rows` records."""
    task = loss.task or loss.label_classes
    assert task is not None
    if isinstance(task, Regression):
        if task.is_binary:
            return ClassStatistics(loss, task, rows, errors)
        if task.probabilities:
            return MultiLabelStatistics(loss, task, rows, errors)
        return NumberStatistics(loss, task, rows, errors)
    return ClassStatistics(loss, task, rows, errors)


def class_rows(counts: Array, names: Sequence[str]) -> tuple[tuple[Row, ...], dict[str, Row]]:
    """Return precision, recall, F1 and support of each class, and their averages.

    counts: right predictions, labels and predictions, float64 [3, classes]. A ratio to 0 is 0. The
    macro average is over the classes that occur as label or prediction, the weighted one has the
    supports as weights.
    """
    hits, labels, predictions = counts
    figures = {
        "precision": quotient(hits, predictions),
        "recall": quotient(hits, labels),
        "f1": quotient(2 * hits, labels + predictions),
    }
    rows = tuple(
        {"class": number, "name": name}
        | {figure: float(values[number]) for figure, values in figures.items()}
        | {"support": int(labels[number])}
        for number, name in enumerate(names)
    )
    total = float(labels.sum())
    occurring = labels + predictions > 0
    macro: Row = {
        figure: float(values[occurring].mean()) if occurring.any() else 0.0
        for figure, values in figures.items()
    }
    weighted: Row = {
        figure: float(values @ labels / total) if total else 0.0
        for figure, values in figures.items()
    }
    support = {"support": int(total)}
    return rows, {"macro": macro | support, "weighted": weighted | support}


def _numbers(values: Array) -> float | list[float]:
    """Return a single number as a number, several as a list."""
    listed: list[float] = values.tolist()
    return listed[0] if len(listed) == 1 else listed
