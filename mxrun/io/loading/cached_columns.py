"""Small columns of arrays, read into memory once instead of in every epoch."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, LazyField

# Bytes of a column up to which it is cached: less than a process needs without data.
_CACHED_BYTES = 1 << 26
_CHUNK = 256


def with_cached_columns(dataset: Dataset) -> Dataset:
    """Return a data set whose records are in memory, if they are small and need no work.

    These are arrays without transforms, all of which can be read. Otherwise it is returned as it
    is: an error is that of its record, when its batch is due.
    """
    moves_boxes = any(column.boxes for column in dataset.fields.values())
    if not dataset.lazy or dataset.pipeline or moves_boxes:
        return dataset
    found: dict[str, Field] = {}
    for name, column in dataset.lazy.items():
        cached = _cached(column)
        if cached is None:
            return dataset
        found[name] = cached
    fields = {**dataset.fields, **found}
    return replace(dataset, fields=fields, lazy={})


def _cached(column: LazyField) -> Field | None:
    """Return a column in memory; None if it is too large, or cannot be read at once."""
    shape = tuple(size for size in column.shape if size is not None)
    dtype = np.dtype(column.dtype)
    size = column.count * math.prod(shape) * dtype.itemsize
    if column.read_arrays is None or len(shape) < len(column.shape) or size > _CACHED_BYTES:
        return None
    records = np.empty((column.count, *shape), dtype)
    for start in range(0, column.count, _CHUNK):
        indices = np.arange(start, min(start + _CHUNK, column.count))
        read = column.arrays(indices)
        assert read is not None
        arrays, is_read = read
        if not is_read.all():
            return None
        records[indices] = arrays
    return Field(records, column.scale, column.white)
