"""A data set whose rows identify their records, and slots for its batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.loading.iterator import DataIterator


def make_dataset(count: int = 1000) -> Dataset:
    """Return a data set in which record i holds the two bytes of i."""
    numbers = np.arange(count)
    image = np.stack([numbers % 256, numbers // 256], axis=1).astype(np.uint8)
    return Dataset(
        "numbered",
        {
            "data": Field(image.reshape(count, 1, 2), scale=1 / 255),
            "label": Field(numbers.astype(np.int32)),
        },
    )


def make_slots(iterator: DataIterator) -> dict[str, NDArray[Any]]:
    """Slots full of values that a row must overwrite."""
    return {
        name: np.full(spec.shape, np.nan if spec.dtype == "float32" else -1, spec.dtype)
        for name, spec in iterator.specs.items()
    }
