"""Decoded pixels of small data sets, kept so that every file is read and decoded once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.locks import new_lock

Int64 = NDArray[np.int64]
# Bytes of the pixels up to which those of all records are kept: less than a process needs without.
_KEPT_BYTES = 1 << 26


class DecodedImages:
    """Images of one size that were decoded at their full size, by record; thread-safe.

    Nothing is kept if the images of all records, as large as the first one, would be too large, and
    no image of another size. An image that cannot be decoded is never kept.
    """

    def __init__(self, count: int) -> None:
        """`count`: number of records."""
        self._count = count
        self._images: NDArray[np.uint8] | None = None
        self._is_kept = np.zeros(count, np.bool_)
        self._lock = new_lock()

    def keep(self, record: int, pixels: NDArray[np.uint8]) -> None:
        """Keep the pixels of a record, [height, width, channels]."""
        planes = pixels.transpose(2, 0, 1)
        if self._images is None:
            if planes.size * self._count > _KEPT_BYTES:
                return
            with self._lock:
                if self._images is None:
                    self._images = np.empty((self._count, *planes.shape), np.uint8)
        if planes.shape == self._images.shape[1:]:
            self._images[record] = planes
            self._is_kept[record] = True

    def of(self, records: Int64) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the images of all records, [count, channels, height, width], and which of some
        records are among them, [n].
        """
        is_kept = self._is_kept[records]
        return np.empty(0) if self._images is None else self._images, is_kept
