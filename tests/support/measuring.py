"""Metrics over synthetic batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.classification import Classification
from mxrun.base.regression import Regression
from mxrun.executor.side_program import BatchTensors, host_tensor
from mxrun.train.metric_kind import METRICS, Figure, Metric, MetricKind, Metrics

Array = npt.NDArray[Any]
# Labels, output, and the weights of rows.
Batch = tuple[Array, Array, Array]


def kind_of(name: str, parameters: Mapping[str, Any]) -> MetricKind:
    """A metric as a config names it."""
    return METRICS.get(name)(**parameters)


class HostMetrics:
    """Metrics that are updated with arrays of the process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._arrays: Batch | None = None

    def update(self, label: Array, output: Array, weight: Array) -> None:
        """Add a batch."""
        batch = (label, output, weight)
        if self._arrays is None or any(
            (one.shape, one.dtype) != (other.shape, other.dtype)
            for one, other in zip(self._arrays, batch, strict=True)
        ):
            self._arrays = (label.copy(), output.copy(), weight.copy())
            self._add = self._metrics.updater(BatchTensors(*map(host_tensor, self._arrays)))
        for own, given in zip(self._arrays, batch, strict=True):
            own[...] = given
        self._add()


def create(
    kind: MetricKind, seen: Classification | Regression, rows: int
) -> tuple[Metric, HostMetrics]:
    """Return a metric, and the value that updates it."""
    metrics = Metrics([kind], seen, rows)
    (metric,) = metrics.by_figure.values()
    return metric, HostMetrics(metrics)


def measure(
    kind: MetricKind, seen: Classification | Regression, batches: Iterable[Batch]
) -> Figure:
    """The figure after some batches."""
    batches = list(batches)
    metric, metrics = create(kind, seen, len(batches[0][2]))
    for batch in batches:
        metrics.update(*batch)
    return metric.value()


def class_batch(seen: Classification, seed: int) -> Batch:
    """Return probabilities over classes and labels that are often the likeliest; the last two rows
    are padding.
    """
    generator = np.random.default_rng(seed)
    shape = (seen.samples, seen.classes, seen.positions)
    label = generator.integers(0, seen.classes, (seen.samples, seen.positions))
    scores = generator.normal(size=shape)
    np.put_along_axis(scores, label[:, None], scores.max() * generator.random(), axis=1)
    exponentials = np.exp(scores)
    output = (exponentials / exponentials.sum(1, keepdims=True)).astype(np.float32)
    weight = np.ones(seen.samples, np.float32)
    weight[-2:] = 0
    return label.astype(np.int32), output, weight


def number_batch(seen: Regression, seed: int) -> Batch:
    """Return numbers or, if the output is a probability, labels 0 and 1; the last two rows are
    padding.
    """
    generator = np.random.default_rng(seed)
    shape = (seen.samples, seen.elements)
    label, output = generator.normal(size=shape), generator.normal(size=shape)
    if seen.probabilities:
        label, output = np.where(label > 0.3, 1, 0), 1 / (1 + np.exp(-output))
    weight = np.ones(seen.samples, np.float32)
    weight[-2:] = 0
    return label.astype(np.float32), output.astype(np.float32), weight
