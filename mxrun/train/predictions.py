"""What metrics read of a batch: labels, weights and what was predicted, in float64 and int64.

All arrays are made once. A batch is loaded and read without allocating: assigning converts types
without the buffers that a ufunc would take for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mxrun.base.classification import Classification
from mxrun.base.regression import Regression

Array = npt.NDArray[Any]

# How a loss sees its tensors; None for one that has no labels to compare anything with.
Seen = Classification | Regression | None

P = TypeVar("P", bound="Predictions")


class Predictions(ABC):
    """The predictions of a batch, `count` of them.

    weights [count], float64: 1 for those of a record, 0 for those of a padded row or with an
    ignored label. weight: their sum.
    """

    weight: float

    def __init__(self, count: int, rows: int) -> None:
        self.weights = np.zeros(count)
        # Seen from behind, [..., rows], so that weights broadcast over a row's predictions.
        self._weights_by_row = self.weights.reshape(rows, -1).T
        self._is_finite = False
        self._all_count, self._left_out = False, np.zeros(count, np.bool_)

    def load(self, label: Array, output: Array, weight: Array, is_finite: bool) -> None:
        """Take in a batch: labels and output in row-major order, the weights of its rows, and
        whether what counts of the output is known to be finite.
        """
        self._is_finite = is_finite
        self._weights_by_row[...] = weight
        self._read(label.reshape(-1), output)
        self.weight = np.add.reduce(self.weights)
        # Weights are at most 1, so this is so only where all are 1, as in every full batch.
        self._all_count = self.weight == len(self.weights)
        if not self._all_count:
            np.equal(self.weights, 0, out=self._left_out)

    @abstractmethod
    def _read(self, label: Array, output: Array) -> None:
        """Keep what metrics ask for, and take labels that do not count out of the weights."""

    def leave_out(self, values: Array) -> None:
        """Put 0 where the weight is 0: what stands there may be no number."""
        if not self._all_count:
            np.copyto(values, 0, where=self._left_out)


class ClassPredictions(Predictions):
    """Predictions among `classes`.

    labels [count], int64; those that do not count may lie outside the classes.
    """

    def __init__(self, classes: int, count: int, rows: int, ignored: int | None = None) -> None:
        super().__init__(count, rows)
        self.classes = classes
        self.labels = np.zeros(count, np.int64)
        self._ignored = ignored
        self._counted, self._factors = np.zeros(count, np.bool_), np.zeros(count)
        self._best = np.zeros(count, np.int64)
        self._doubt, self._none = np.zeros(count), np.zeros(count)
        self._is_best_known = False

    def _read(self, label: Array, output: Array) -> None:
        self._read_classes(label, output)
        if self._ignored is not None:
            np.not_equal(self.labels, self._ignored, out=self._counted)
            self._factors[...] = self._counted
            np.multiply(self.weights, self._factors, out=self.weights)
        self._is_best_known = False

    def best(self) -> tuple[Array, Array]:
        """The most probable class of each prediction, the first among equals, [count] int64; and
        its doubt, [count] float64: NaN where a probability is no number, else 0.
        """
        if not self._is_best_known:
            self._find_best(self._best)
            if not self._is_finite:
                self._find_doubt(self._best, self._doubt)
            self._is_best_known = True
        return self._best, self._none if self._is_finite else self._doubt

    @abstractmethod
    def _read_classes(self, label: Array, output: Array) -> None:
        """Write `self.labels` and keep what the other methods read of the output."""

    @abstractmethod
    def _find_best(self, best: Array) -> None:
        """Write the most probable classes."""

    @abstractmethod
    def _find_doubt(self, best: Array, doubt: Array) -> None:
        """Write 0 where the probabilities are numbers, else NaN."""

    @abstractmethod
    def probability(self, values: Array) -> None:
        """Write the probability of each label into `values`, [count] float64."""


class DistributionPredictions(ClassPredictions):
    """Predictions as distributions over classes, `probabilities` [count, classes]."""

    def __init__(self, seen: Classification, rows: int) -> None:
        super().__init__(seen.classes, seen.predictions, rows, seen.ignored)
        self._shape = (seen.samples, seen.classes, seen.positions)
        self.probabilities: Array = np.zeros((seen.predictions, seen.classes), np.float32)
        # With positions the classes lie apart: brought together once, for all that reads them.
        self._together = self.probabilities.reshape(seen.samples, seen.positions, seen.classes)
        self._first = np.arange(seen.predictions) * seen.classes
        self._index = np.zeros(seen.predictions, np.int64)
        self._taken = np.zeros(seen.predictions, np.float32)

    def _read_classes(self, label: Array, output: Array) -> None:
        self.labels[...] = label
        if self._shape[2] == 1:
            self.probabilities = output.reshape(self.probabilities.shape)
        else:
            self._together[...] = output.reshape(self._shape).transpose(0, 2, 1)

    def _find_best(self, best: Array) -> None:
        self.probabilities.argmax(1, best)

    def _find_doubt(self, best: Array, doubt: Array) -> None:
        # The largest of several is no number where one of them is none.
        self._take(best, doubt)
        np.subtract(doubt, doubt, out=doubt)

    def probability(self, values: Array) -> None:
        """Write the probability of each label into `values`, [count] float64."""
        self._take(self.labels, values)

    def places(self, classes: Array) -> Array:
        """Where these classes' probabilities lie in `probabilities`, flat; until the next call."""
        return np.add(self._first, classes, out=self._index)

    def _take(self, classes: Array, values: Array) -> None:
        # Clipping is the mode of `take` that needs no buffer.
        self.probabilities.take(self.places(classes), out=self._taken, mode="clip")
        values[...] = self._taken


class BinaryPredictions(ClassPredictions):
    """Predictions as the probability of class 1, which is the best above 0.5; so are labels."""

    def __init__(self, seen: Regression) -> None:
        super().__init__(2, seen.samples, seen.samples)
        self._chance, self._number = np.zeros(seen.samples), np.zeros(seen.samples)
        self._above = np.zeros(seen.samples, np.bool_)

    def _read_classes(self, label: Array, output: Array) -> None:
        self._number[...] = label
        np.greater(self._number, 0.5, out=self._above)
        self.labels[...] = self._above
        self._chance[...] = output.reshape(-1)

    def _find_best(self, best: Array) -> None:
        np.greater(self._chance, 0.5, out=self._above)
        best[...] = self._above

    def _find_doubt(self, best: Array, doubt: Array) -> None:
        np.subtract(self._chance, self._chance, out=doubt)

    def probability(self, values: Array) -> None:
        """1 - |label - chance|, into `values`, [count] float64."""
        values[...] = self.labels
        np.subtract(values, self._chance, out=values)
        np.abs(values, out=values)
        np.subtract(1, values, out=values)


class NumberPredictions(Predictions):
    """Predictions of numbers, one for each element of each sample.

    differences [count], float64: output - label.
    """

    def __init__(self, seen: Regression) -> None:
        super().__init__(seen.samples * seen.elements, seen.samples)
        self.differences, self._label = np.zeros_like(self.weights), np.zeros_like(self.weights)

    def _read(self, label: Array, output: Array) -> None:
        self._label[...] = label
        self.differences[...] = output.reshape(-1)
        np.subtract(self.differences, self._label, out=self.differences)


class LossPredictions:
    """The predictions of one loss in all the ways that metrics read them.

    What no metric has asked for is neither made nor loaded.
    """

    def __init__(self, seen: Seen, rows: int) -> None:
        self._seen, self._rows = seen, rows
        self._used: list[Predictions] = []

    @cached_property
    def classes(self) -> ClassPredictions:
        """Predictions among classes, or of one of two."""
        assert self._seen is not None
        if isinstance(self._seen, Classification):
            return self.distributions
        return self._use(BinaryPredictions(self._seen))

    @cached_property
    def distributions(self) -> DistributionPredictions:
        """Predictions among classes with the probabilities of all."""
        assert isinstance(self._seen, Classification)
        return self._use(DistributionPredictions(self._seen, self._rows))

    @cached_property
    def numbers(self) -> NumberPredictions:
        """Predictions of numbers."""
        assert isinstance(self._seen, Regression)
        return self._use(NumberPredictions(self._seen))

    def load(self, label: Array, output: Array, weight: Array, is_finite: bool) -> None:
        """Take in a batch: labels and output in row-major order, the weights of its rows, and
        whether what counts of the output is known to be finite.
        """
        for predictions in self._used:
            predictions.load(label, output, weight, is_finite)

    def _use(self, predictions: P) -> P:
        self._used.append(predictions)
        return predictions
