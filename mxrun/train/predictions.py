"""Predictions of a batch as metrics read them: labels, weights and outputs in float64 and int64.

All arrays are allocated once. A batch is loaded and read without allocation: in NumPy an assignment
converts dtypes without the buffers that a ufunc would use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mxrun.base.classification import Classification, Likelihood
from mxrun.base.once import cached_property
from mxrun.base.regression import Regression
from mxrun.executor.side_program import BatchTensors, Mirror, SideProgram
from mxrun.operator.register import create

Array = npt.NDArray[Any]

# Task of a loss, which its metrics measure; None for a loss without labels to compare with.
Task = Classification | Regression | Likelihood | None

P = TypeVar("P", bound="Predictions")

# Bits of the sums that metrics request, see the operator _read_classes, and the row of each.
BEST, LOG, LIMITED_LOG = 1, 2, 4
ROWS = {BEST: 0, LOG: 1, LIMITED_LOG: 2}


class Predictions(ABC):
    """Predictions of a batch, `count` of them.

    weights [count], float64: 1 for predictions of a record, 0 for those of a padded row or with an
    ignored label.
    """

    weights: Array

    def __init__(self, count: int) -> None:
        self.count = count
        self._left_out = np.zeros(count, np.bool_)

    @property
    @abstractmethod
    def weight(self) -> float:
        """Sum of the weights."""

    @abstractmethod
    def reader(self, batch: BatchTensors) -> Callable[[], None]:
        """Return the function that loads a batch, after all metrics have made their requests."""

    def leave_out(self, values: Array) -> None:
        """Set `values` to 0 where the weight is 0: NaN there must not count."""
        # Weights are at most 1, so they are all 1 if their sum is their number, as in every full
        # batch.
        if self.weight != self.count:
            np.equal(self.weights, 0, out=self._left_out)
            np.copyto(values, 0, where=self._left_out)


class ClassPredictions(Predictions):
    """Predictions of one of `classes`, as distributions or as the probability of class 1 of two.

    A single probability, of output or label, means class 1 above 0.5.

    width: number of probabilities of a prediction. Of the batch that was loaded last, if a metric
    has requested them: labels [count], int64: those of weight 0 may be outside the classes. best
    [count], int64: the most probable class, the first among equals. doubt [count], float64: NaN if
    a probability is NaN, else 0. probabilities [count, width], float32.

    One operator reads a batch where its tensors are: what metrics have not requested does not come
    to the host.
    """

    labels: Array
    best: Array
    doubt: Array
    probabilities: Array

    def __init__(self, task: Classification | Regression, rows: int) -> None:
        if isinstance(task, Regression):
            self.classes, self._shape, self._ignored = 2, (task.samples, 1, 1), None
            self._read = 0
        else:
            self.classes, self._ignored = task.classes, task.ignored
            self._read = task.classes
            self._shape = (task.samples, task.classes, task.positions)
        samples, self.width, positions = self._shape
        super().__init__(samples * positions)
        self._sums = np.zeros((len(ROWS), 2))
        self._first, self._index = (
            np.arange(self.count) * self.width,
            np.zeros(self.count, np.int64),
        )
        self._requested = 0
        self._has_arrays = self._has_probabilities = False

    def request(self, value: int) -> Array:
        """Request BEST, LOG or LIMITED_LOG for every batch.

        Returns the array [2], float64, that receives the sums of weight * value and of weight.
        """
        self._requested |= value
        sums: Array = self._sums[ROWS[value]]
        return sums

    def request_arrays(self, probabilities: bool = False) -> None:
        """Request labels, best, doubt and weights, and perhaps the probabilities."""
        self._requested |= BEST
        self._has_arrays = True
        self._has_probabilities |= probabilities

    def reader(self, batch: BatchTensors) -> Callable[[], None]:
        """Return the function that loads a batch."""
        given = {
            "classes": self._read,
            "positions": self._shape[2],
            "requested": self._requested,
            "ignored": self._ignored,
            "arrays": self._has_arrays,
        }
        program = SideProgram(create("_read_classes", given), batch._asdict())
        sums, *arrays = (each.mirror() for each in program.outputs)
        probabilities = (
            self._probabilities(batch.output.mirror()) if self._has_probabilities else None
        )

        def load() -> None:
            program.run()
            sums.load()
            self._sums[...] = sums.array
            if arrays:
                for each in arrays:
                    each.load()
                self.labels, self.best, self.doubt, self.weights = (each.array for each in arrays)
            if probabilities is not None:
                self.probabilities = probabilities()

        return load

    @property
    def weight(self) -> float:
        """Sum of the weights."""
        return self._sums.item(1)

    def places(self, classes: Array) -> Array:
        """Return the flat indices of `classes` in `probabilities`, valid until the next call."""
        return np.add(self._first, classes, out=self._index)

    def _probabilities(self, output: Mirror) -> Callable[[], Array]:
        """Return the function that gives the probabilities as [count, width]."""
        samples, width, positions = self._shape
        contiguous = np.zeros((self.count, width), np.float32)
        by_class = output.array.reshape(self._shape).transpose(0, 2, 1)
        is_read_there = output.array.dtype == np.float32 and positions == 1

        def read() -> Array:
            output.load()
            if is_read_there:
                return output.array.reshape(contiguous.shape)
            # With positions the classes of a prediction are not contiguous.
            contiguous.reshape(samples, positions, width)[...] = by_class
            return contiguous

        return read


class NumberPredictions(Predictions):
    """Predictions of numbers, one for each element of each sample.

    differences [count], float64: outputs - labels. elements: the number of them in a sample, whose
    elements are contiguous.
    """

    def __init__(self, task: Regression, rows: int) -> None:
        super().__init__(task.samples * task.elements)
        self.elements = task.elements
        self.weights = np.zeros(self.count)
        # Transposed to [..., rows], so that row weights broadcast over the predictions of a row.
        self._weights_by_row = self.weights.reshape(rows, -1).T
        self.outputs, self.labels, self.differences = np.zeros((3, self.count))
        self._weight = 0.0

    @property
    def weight(self) -> float:
        """Sum of the weights."""
        return self._weight

    def reader(self, batch: BatchTensors) -> Callable[[], None]:
        """Return the function that loads a batch."""
        label, output, weight = (tensor.mirror() for tensor in batch)

        def load() -> None:
            for mirror in (label, output, weight):
                mirror.load()
            self._weights_by_row[...] = weight.array
            self._weight = np.add.reduce(self.weights)
            self.labels[...] = label.array.reshape(-1)
            self.outputs[...] = output.array.reshape(-1)
            np.subtract(self.outputs, self.labels, out=self.differences)

        return load


class LossPredictions:
    """Predictions of one loss in all forms that metrics read.

    A form that no metric requests is neither allocated nor loaded. task: of the loss. is_saved:
    whether checkpoints hold the sums of their metrics.
    """

    def __init__(self, task: Task, rows: int, is_saved: bool = False) -> None:
        self.task, self._rows, self.is_saved = task, rows, is_saved
        self._used: list[Predictions] = []

    @cached_property
    def classes(self) -> ClassPredictions:
        """Predictions of classes, also for a single probability."""
        assert isinstance(self.task, (Classification, Regression))
        return self._use(ClassPredictions(self.task, self._rows))

    @cached_property
    def numbers(self) -> NumberPredictions:
        """Predictions of numbers."""
        assert isinstance(self.task, Regression)
        return self._use(NumberPredictions(self.task, self._rows))

    def readers(self, batch: BatchTensors) -> list[Callable[[], None]]:
        """Return the functions that load a batch from these tensors."""
        return [predictions.reader(batch) for predictions in self._used]

    def _use(self, predictions: P) -> P:
        self._used.append(predictions)
        return predictions
