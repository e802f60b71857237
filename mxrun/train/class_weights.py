"""Class weights: factors of the training loss and its gradient for the records of each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.io.loading.batch import SAMPLE_WEIGHT

BALANCED = "balanced"


@dataclass(frozen=True, eq=False)
class ClassWeights:
    """Weight of each class.

    label: input with the class of each record; table: float32 [classes].
    """

    label: str
    table: npt.NDArray[np.float32]


class RowWeights:
    """Writer of the weights of a batch's rows, beside the labels of the rows. Allocates nothing."""

    def __init__(self, weights: ClassWeights, slots: Mapping[str, npt.NDArray[Any]]) -> None:
        """`slots`: the io slots as host arrays."""
        self._table = weights.table
        self._labels = slots[weights.label].reshape(-1)
        self._rows = slots[SAMPLE_WEIGHT]
        self._indices = np.zeros(len(self._rows), np.intp)

    def write(self, valid: int) -> None:
        """Write the weights of a batch of which `valid` rows are records; other rows get 0."""
        np.copyto(self._indices, self._labels, casting="unsafe")
        # An ignored label may be outside of the table; its loss is 0 whatever its weight.
        self._table.take(self._indices, out=self._rows, mode="clip")
        self._rows[valid:] = 0


def balanced(labels: npt.NDArray[Any], classes: int) -> npt.NDArray[np.float64]:
    """Return n / (k * n_class) float64 [classes], as scikit-learn's class_weight="balanced" does.

    labels: class of each record, [n]; k is the number of classes that occur. Others have weight 1.
    The mean weight of the records is 1.
    """
    counts = np.bincount(labels, minlength=classes)[:classes]
    weights = np.ones(classes)
    occurs = counts > 0
    weights[occurs] = counts.sum() / (np.count_nonzero(occurs) * counts[occurs])
    return weights
