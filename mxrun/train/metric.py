"""Metrics: means over samples, updated batch by batch without allocating anything.

Each holds one value per prediction and its weight in a float64 buffer, sums both rows in NumPy's
fixed pairwise order and adds them to its totals, so that the same batches give the same bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.registry import Registry
from mxrun.base.tensor import TensorSpec

Array = npt.NDArray[Any]

# What MXNet's CrossEntropy adds to a probability before it takes the logarithm.
_EPSILON = 1e-12


class Metric(ABC):
    """A weighted mean over predictions; the classes are axis 1 of a loss's `output`.

    The output is [samples, classes, ...], labels are [samples, ...] and weights [rows]: 1 for a
    record, 0 for a padded row. A row is one sample, or has as many as every other. Predictions
    labelled `ignored` do not count. `totals` is all that is remembered between batches. Raises
    UserError for an output without a class axis.
    """

    def __init__(
        self, output: TensorSpec, rows: int | None = None, ignored: int | None = None
    ) -> None:
        output_shape = output.shape
        if len(output_shape) < 2:
            raise UserError(
                Diagnostic(
                    "this metric needs an output with a class axis",
                    expected="a shape [samples, classes, ...]",
                    got=str(list(output_shape)),
                )
            )
        shape = (output_shape[0], *output_shape[2:])
        self._values, self._weights = np.zeros(shape), np.zeros(shape)
        # Row by row: NumPy 2.2 allocates buffers for a reduction along one axis of several.
        self._rows = self._values.reshape(-1), self._weights.reshape(-1)
        self._labels = np.zeros(shape, np.int64)
        # Seen from behind, [..., rows], so that weights broadcast over a row's predictions.
        self._weights_by_row = self._weights.reshape(rows or shape[0], -1).T
        self._ignored = ignored
        self._counted, self._factors = np.zeros(shape, np.bool_), np.zeros(shape)
        self._sums = np.zeros(2)
        self._each_sum = self._sums[0, ...], self._sums[1, ...]
        self.totals = np.zeros(2)

    higher_is_better: ClassVar[bool] = False

    @abstractmethod
    def _measure(self, output: Array) -> None:
        """Write one value per prediction, of `self._labels`, into `self._values`."""

    def update(self, label: Array, output: Array, weight: Array) -> None:
        """Add one batch; `output` lies in row-major order and is as specified at first."""
        # Here and below: assigning converts types without the buffer that a ufunc would allocate.
        self._labels[...] = label
        self._weights_by_row[...] = weight
        if self._ignored is not None:
            np.not_equal(self._labels, self._ignored, out=self._counted)
            self._factors[...] = self._counted
            np.multiply(self._weights, self._factors, out=self._weights)
        self._measure(output)
        np.multiply(self._values, self._weights, out=self._values)
        for row, total in zip(self._rows, self._each_sum, strict=True):
            np.add.reduce(row, out=total)
        np.add(self.totals, self._sums, out=self.totals)

    def value(self) -> float:
        """The mean over everything since the last reset; NaN if that is nothing."""
        total, weight = self.totals
        return float(total / weight) if weight else float("nan")

    def reset(self) -> None:
        """Forget every batch."""
        self.totals.fill(0)


METRICS: Registry[type[Metric]] = Registry("metric")


class Accuracy(Metric):
    """The share of predictions whose most probable class is the label; MXNet's Accuracy."""

    higher_is_better = True

    def __init__(
        self, output: TensorSpec, rows: int | None = None, ignored: int | None = None
    ) -> None:
        super().__init__(output, rows, ignored)
        self._classes = np.zeros_like(self._labels)
        self._hits = np.zeros(self._labels.shape, np.bool_)

    def _measure(self, output: Array) -> None:
        output.argmax(1, self._classes)
        np.equal(self._classes, self._labels, out=self._hits)
        self._values[...] = self._hits


class CrossEntropy(Metric):
    """The mean of -ln(probability of the label + 1e-12); MXNet's CrossEntropy."""

    def __init__(
        self, output: TensorSpec, rows: int | None = None, ignored: int | None = None
    ) -> None:
        super().__init__(output, rows, ignored)
        # The probability of class c at [row, ..., position] lies at first + c * stride.
        shape = self._labels.shape
        classes = np.arange(output.elements).reshape(output.shape)
        self._first = np.ascontiguousarray(classes[:, 0])
        self._stride = math.prod(shape[1:])
        self._probabilities = np.zeros(shape, output.dtype)

    def _measure(self, output: Array) -> None:
        if self._stride != 1:
            np.multiply(self._labels, self._stride, out=self._labels)
        np.add(self._labels, self._first, out=self._labels)
        # Clipping is the mode of `take` that needs no buffer; no label that counts lies
        # outside the classes.
        output.take(self._labels, out=self._probabilities, mode="clip")
        self._values[...] = self._probabilities
        np.add(self._values, _EPSILON, out=self._values)
        np.log(self._values, out=self._values)

    def value(self) -> float:
        """The mean over everything since the last reset; NaN if that is nothing."""
        return -super().value()


METRICS.add("accuracy", Accuracy)
METRICS.add("cross_entropy", CrossEntropy)


def create_metric(
    name: str, output: TensorSpec, rows: int | None = None, ignored: int | None = None
) -> Metric:
    """A metric by its name in a config; raises UserError for one that is not known."""
    return METRICS.get(name)(output, rows, ignored)
