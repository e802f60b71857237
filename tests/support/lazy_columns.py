"""Records of lazily read columns, decoded as a batch needs them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.images.decode import decoded


def record_of(dataset: Dataset, index: int, name: str = "data") -> NDArray[Any]:
    """Return a record of a lazily read column; raises UserError as reading and decoding do."""
    column = dataset.lazy[name]
    return decoded(column.record(index), column.shape)
