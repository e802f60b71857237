"""Predictions of a batch as metrics read them: labels, weights and outputs in float64 and int64.

All arrays are allocated once. A batch is loaded and read without allocation: in NumPy an assignment
converts dtypes without the buffers that a ufunc would use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mxrun.base.classification import Classification, Likelihood
from mxrun.base.errors import InternalError
from mxrun.base.once import cached_property
from mxrun.base.regression import Regression
from mxrun.codegen.host_loop import HostLoop
from mxrun.train.class_loop import LABELS, ROWS, Reading, read_classes_loop

Array = npt.NDArray[Any]

# Task of a loss, which its metrics measure; None for a loss without labels to compare with.
Task = Classification | Regression | Likelihood | None

P = TypeVar("P", bound="Predictions")


class Predictions(ABC):
    """Predictions of a batch, `count` of them.

    weights [count], float64: 1 for predictions of a record, 0 for those of a padded row or with an
    ignored label.
    """

    def __init__(self, count: int) -> None:
        self.weights = np.zeros(count)
        self._left_out = np.zeros(count, np.bool_)

    @property
    @abstractmethod
    def weight(self) -> float:
        """Sum of the weights."""

    @abstractmethod
    def load(self, label: Array, output: Array, weight: Array) -> None:
        """Load a batch: labels and output in row-major order, and the weights of its rows."""

    def leave_out(self, values: Array) -> None:
        """Set `values` to 0 where the weight is 0: NaN there must not count."""
        # Weights are at most 1, so they are all 1 if their sum is their number, as in every full
        # batch.
        if self.weight != len(self.weights):
            np.equal(self.weights, 0, out=self._left_out)
            np.copyto(values, 0, where=self._left_out)


class ClassPredictions(Predictions):
    """Predictions of one of `classes`, as distributions or as the probability of class 1 of two.

    A single probability, of output or label, means class 1 above 0.5.

    labels [count], int64: those of weight 0 may be outside the classes. best [count], int64: the
    most probable class, the first among equals. doubt [count], float64: NaN if a probability is
    NaN, else 0. best and doubt are computed only if `BEST` was requested. probabilities [count,
    classes], float32: only for distributions.

    One native loop reads a batch: separate NumPy calls per metric would take a tenth of a small
    network's step.
    """

    def __init__(self, task: Classification | Regression, rows: int) -> None:
        if isinstance(task, Regression):
            self.classes, self._shape, ignored = 2, (task.samples, 1, 1), None
            read = 0
        else:
            self.classes, ignored = task.classes, task.ignored
            read = task.classes
            self._shape = (task.samples, task.classes, task.positions)
        samples, width, positions = self._shape
        count = samples * positions
        super().__init__(count)
        self.labels, self.best = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.doubt = np.zeros(count)
        # With positions, the classes of a prediction are not contiguous: transpose once for all
        # readers.
        self._contiguous: Array = np.zeros((count, width), np.float32)
        self._positions = self._contiguous.reshape(samples, positions, width)
        self.probabilities = self._contiguous
        self._converted = np.zeros(count)
        self._sums = np.zeros((len(ROWS), 2))
        self._first, self._index = np.arange(count) * width, np.zeros(count, np.int64)
        self._requested = 0
        # Arrays bound to the loop, which rarely change between batches.
        self._label: Array | None = None
        self._output: Array | None = None
        self._weight: Array | None = None
        self._label_copy: Array | None = None
        self._strided_output: Array | None = None
        reading = Reading(
            requested=0,
            float32_labels=None,
            int32_labels=None,
            float64_labels=None,
            output=None,
            row_weights=None,
            count=count,
            classes=read,
            per_row=count // rows,
            has_ignored=ignored is not None,
            ignored=ignored or 0,
            labels=self.labels,
            best=self.best,
            doubts=self.doubt,
            weights=self.weights,
            sums=self._sums,
        )
        self._loop = HostLoop(read_classes_loop, reading)

    def request(self, value: int) -> Array:
        """Request BEST, LOG or LIMITED_LOG for every batch.

        Returns the array [2], float64, that receives the sums of weight * value and of weight.
        """
        self._requested |= value
        self._loop.set("requested", self._requested)
        sums: Array = self._sums[ROWS[value]]
        return sums

    def load(self, label: Array, output: Array, weight: Array) -> None:
        """Load a batch: labels and output in row-major order, and the weights of its rows."""
        if label is not self._label:
            self._bind_label(label)
        if output is not self._output:
            self._bind_output(output)
        if weight is not self._weight:
            self._bind_weight(weight)
        if self._label_copy is not None:
            self._label_copy[...] = label
        if self._strided_output is not None:
            self._positions[...] = self._strided_output
        self._loop()

    @property
    def weight(self) -> float:
        """Sum of the weights."""
        return self._sums.item(1)

    def places(self, classes: Array) -> Array:
        """Return the flat indices of `classes` in `probabilities`, valid until the next call."""
        return np.add(self._first, classes, out=self._index)

    def _bind_label(self, label: Array) -> None:
        is_read_there = label.dtype.name in LABELS and label.flags.c_contiguous
        read = label if is_read_there else self._converted
        self._label_copy = None if is_read_there else self._converted.reshape(label.shape)
        for dtype, name in LABELS.items():
            self._loop.set(name, read if dtype == read.dtype.name else None)
        self._label = label

    def _bind_output(self, output: Array) -> None:
        is_read_there = output.dtype == np.float32 and output.flags.c_contiguous
        if is_read_there and self._shape[2] == 1:
            self.probabilities = output.reshape(self._contiguous.shape)
            self._strided_output = None
        else:
            self.probabilities = self._contiguous
            self._strided_output = output.reshape(self._shape).transpose(0, 2, 1)
        self._loop.set("output", self.probabilities)
        self._output = output

    def _bind_weight(self, weight: Array) -> None:
        if weight.dtype != np.float32 or not weight.flags.c_contiguous:
            raise InternalError("the weights of rows must be contiguous float32")
        self._loop.set("row_weights", weight)
        self._weight = weight


class NumberPredictions(Predictions):
    """Predictions of numbers, one for each element of each sample.

    differences [count], float64: outputs - labels. elements: the number of them in a sample, whose
    elements are contiguous.
    """

    def __init__(self, task: Regression, rows: int) -> None:
        super().__init__(task.samples * task.elements)
        self.elements = task.elements
        # Transposed to [..., rows], so that row weights broadcast over the predictions of a row.
        self._weights_by_row = self.weights.reshape(rows, -1).T
        self.outputs, self.labels, self.differences = np.zeros((3, len(self.weights)))
        self._weight = 0.0

    @property
    def weight(self) -> float:
        """Sum of the weights."""
        return self._weight

    def load(self, label: Array, output: Array, weight: Array) -> None:
        """Load a batch: labels and output in row-major order, and the weights of its rows."""
        self._weights_by_row[...] = weight
        self._weight = np.add.reduce(self.weights)
        self.labels[...] = label.reshape(-1)
        self.outputs[...] = output.reshape(-1)
        np.subtract(self.outputs, self.labels, out=self.differences)


class LossPredictions:
    """Predictions of one loss in all forms that metrics read.

    A form that no metric requests is neither allocated nor loaded. is_saved: whether checkpoints
    hold the sums of their metrics.
    """

    def __init__(self, task: Task, rows: int, is_saved: bool = False) -> None:
        self._task, self._rows, self.is_saved = task, rows, is_saved
        self._used: list[Predictions] = []

    @cached_property
    def classes(self) -> ClassPredictions:
        """Predictions of classes, also for a single probability."""
        assert isinstance(self._task, (Classification, Regression))
        return self._use(ClassPredictions(self._task, self._rows))

    @cached_property
    def numbers(self) -> NumberPredictions:
        """Predictions of numbers."""
        assert isinstance(self._task, Regression)
        return self._use(NumberPredictions(self._task, self._rows))

    def load(self, label: Array, output: Array, weight: Array) -> None:
        """Load a batch: labels and output in row-major order, and the weights of its rows."""
        for predictions in self._used:
            predictions.load(label, output, weight)

    def _use(self, predictions: P) -> P:
        self._used.append(predictions)
        return predictions
