"""Description of one batch that an iterator has written, and names of its special inputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass

# Name of the input that holds the weight of each row of a batch: 1 for a record, 0 for padding.
SAMPLE_WEIGHT = "sample_weight"


def is_label(name: str) -> bool:
    """Return whether a field is a label, by MXNet's naming: `label`, `softmax_label`, ..."""
    return name.endswith("label")


@dataclass(frozen=True, slots=True)
class Batch:
    """Batch that an iterator has written into its slots.

    `indices` int64 [batch size] holds the record number of each row; it is read-only and valid
    until the iterator's next reset. The first `valid` rows are records, each once; the other rows
    are padding.
    """

    valid: int
    indices: NDArray[np.int64]

    @property
    def pad(self) -> int:
        """Number of padded rows, all at the end of the batch; MXNet's `getpad`."""
        return len(self.indices) - self.valid
