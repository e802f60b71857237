"""What an iterator promises about a batch, and the record it returns for one it has written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The input that weighs each row of a batch: 1 for a record, 0 for padding.
SAMPLE_WEIGHT = "sample_weight"


def is_label(name: str) -> bool:
    """Whether a field is a label, by MXNet's naming: `label`, `softmax_label`, ..."""
    return name.endswith("label")


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch that lies in its slots.

    `indices` int64 [batch size] are the rows' records in the data set, read-only and valid until
    the iterator's next reset; the first `valid` rows are records, each once, the rest is padding.
    """

    valid: int
    indices: NDArray[np.int64]

    @property
    def pad(self) -> int:
        """Number of padded rows, all at the end; MXNet's `getpad`."""
        return len(self.indices) - self.valid
