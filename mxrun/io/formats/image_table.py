"""Images in container files, by the places of their bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import Shape
from mxrun.io.dataset.fields import ArrayReader
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.formats.extents import FileExtents, Int64, small_extents
from mxrun.io.images.encoded import EncodedImage


@dataclass(frozen=True, eq=False)
class ImageTable(ABC):
    """Images of container files, in the files' order, that are read one by one, by several threads.

    file_numbers, numbers, starts, sizes: int64 [records]: the file of a record, its number in it,
    and the extent of its bytes. shapes: the shapes of the images that are arrays; None among them
    stands for image files. headers: the bytes before the arrays.
    """

    files: tuple[ByteFile, ...]
    file_numbers: NDArray[np.int64]
    numbers: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    shapes: frozenset[Shape | None]
    headers: frozenset[bytes]

    def __len__(self) -> int:
        return len(self.starts)

    def locate(self, record: int) -> RecordLocation:
        """Return the place of a record's bytes."""
        file = self.files[self.file_numbers[record]]
        return RecordLocation(str(file.path), int(self.numbers[record]), int(self.starts[record]))

    @abstractmethod
    def image(self, channels: int, record: int) -> EncodedImage | NDArray[Any]:
        """Return the image of a record; thread-safe. Raises UserError if it cannot be read."""

    def array_reader(self, shape: Shape) -> ArrayReader | None:
        """Return the reader of many arrays of one shape at once; None if that takes no less time
        than one after the other, or is not possible.
        """
        extents = small_extents(self.files, self._extents, int(self.sizes.max()))
        if len(self.headers) != 1 or extents is None:
            return None
        (header,) = self.headers
        return self.reader_of(extents, header, shape)

    @abstractmethod
    def reader_of(self, extents: FileExtents, header: bytes, shape: Shape) -> ArrayReader:
        """Return the reader of arrays of one shape that follow this header."""

    @abstractmethod
    def digest(self) -> str:
        """Return the SHA-256 of what decides the records."""

    def _extents(self, records: Int64) -> tuple[Int64, Int64, Int64]:
        return self.file_numbers[records], self.starts[records], self.sizes[records]
