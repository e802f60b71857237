"""Check of the labels of loaded data sets that losses read as probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic
from mxrun.frontend.model import Model
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.transforms.pipeline import values
from mxrun.train.measure import LossTensors

Array = npt.NDArray[Any]

# Rounding tolerances: distance of a probability from [0, 1], and of a sum from 1.
_RANGE_TOLERANCE = 1e-6
_SUM_TOLERANCE = 1e-3
# Elements compared at a time.
_CHUNK_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class _Invalid:
    """Record whose label is not a probability, or not a distribution over classes."""

    record: int
    expected: str
    got: str
    hint: str


def soft_label_problems(model: Model, datasets: Iterable[Dataset]) -> tuple[Diagnostic, ...]:
    """Return a diagnostic for the first record of each data set with invalid probabilities.

    Labels that transforms change, that are read lazily or generated are not checked.
    """
    problems = []
    for loss in model.measured:
        for dataset in datasets:
            column = dataset.fields.get(loss.label)
            if column is None or any(dataset.pipeline.of(loss.label)) or _is_drawn(dataset):
                continue
            found = _first_invalid(loss, column, model.batch_size)
            if found is not None:
                place, where = dataset.place, f"data set {dataset.name!r}"
                got = f"{found.got} in record {found.record}"
                if place is None:
                    where = f"array {loss.label!r}"
                else:
                    got += f" ({place})"
                problem = (
                    f"{where} has labels that are not probabilities, as {loss.name!r} reads them"
                )
                problems.append(Diagnostic(problem, place, found.expected, got, hint=found.hint))
    return tuple(problems)


def _is_drawn(dataset: Dataset) -> bool:
    """Return whether the records are synthetic data, generated without regard to the loss."""
    return dataset.name in DATASETS and DATASETS.get(dataset.name).synthetic


def _first_invalid(loss: LossTensors, column: Field, batch_size: int) -> _Invalid | None:
    """Return the first record whose label is not a probability.

    None if there is no such record, or if the loss does not read probabilities.
    """
    classes, regression = loss.classification, loss.regression
    if regression is not None and regression.probabilities:
        hint = "LinearRegressionOutput reads labels as numbers of any size"
        return _first_outside(column, "numbers from 0 to 1", hint)
    if classes is None or classes.labelled:
        return None
    elements = column.records[0].size * batch_size
    # Labels that are neither classes nor of the data's shape: MXNet reads only some of them.
    if elements != classes.predictions * classes.classes:
        return None
    hint = "divide each record's numbers by their sum; classes by number are labels without an axis"
    expected = "for each record numbers from 0 to 1 that have the sum 1"
    outside = _first_outside(column, expected, hint)
    if outside is not None:
        return outside
    for start, labels in _chunks(column):
        shape = (len(labels), -1, classes.classes, classes.positions)
        sums = labels.reshape(shape).sum(axis=2, dtype=np.float64).reshape(len(labels), -1)
        wrong = np.abs(sums - 1) > _SUM_TOLERANCE
        if wrong.any():
            row = int(wrong.any(axis=1).argmax())
            total = sums[row, wrong[row].argmax()]
            return _Invalid(start + row, expected, f"the sum {total:g}", hint)
    return None


def _first_outside(column: Field, expected: str, hint: str) -> _Invalid | None:
    """Return the first record with a number below 0 or above 1, or None."""
    for start, labels in _chunks(column):
        rows = labels.reshape(len(labels), -1)
        wrong = ~((rows >= -_RANGE_TOLERANCE) & (rows <= 1 + _RANGE_TOLERANCE))
        if wrong.any():
            row = int(wrong.any(axis=1).argmax())
            return _Invalid(start + row, expected, f"{rows[row, wrong[row].argmax()]:g}", hint)
    return None


def _chunks(column: Field) -> Iterator[tuple[int, Array]]:
    """Yield values [records, *shape] of consecutive records, and the number of the first."""
    step = max(1, _CHUNK_ELEMENTS // max(1, column.records[0].size))
    for start in range(0, len(column.records), step):
        yield start, values(column.records[start : start + step], column.scale)
