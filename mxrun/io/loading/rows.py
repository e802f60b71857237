"""Rows of a batch, made for chunks of records, and the record that is being read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import UserError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.loading.iterator import Slots
from mxrun.io.loading.own_columns import guarded
from mxrun.io.loading.python_transforms import TransformRunner
from mxrun.io.transforms.boxes import ImageMove
from mxrun.io.transforms.mixing import mix_batch
from mxrun.io.transforms.program import Raw, RowProgram

Numbers = NDArray[np.int64]

# Field of the images, whose boxes labels may hold.
_IMAGES = "data"


class ReadsInProgress:
    """Records that threads are reading, and the bytes that they have read."""

    def __init__(self) -> None:
        # By thread: the time at which the record was begun, its column, and its number there.
        self._current: dict[int, tuple[float, LazyField, int]] = {}
        self._bytes: dict[int, int] = {}
        self.is_cancelled: Callable[[], bool] = lambda: False

    def watched(self, column: LazyField) -> LazyField:
        """Return the column with its reads recorded here."""
        return replace(column, read=partial(self._read, guarded(column)))

    def _read(self, column: LazyField, number: int) -> Any:
        if self.is_cancelled():
            raise UserError("reading is cancelled")
        thread = threading.get_ident()
        self._current[thread] = (time.monotonic(), column, number)
        try:
            content = column.read(number)
        finally:
            del self._current[thread]
        self._bytes[thread] = self._bytes.get(thread, 0) + _size(content)
        return content

    def taken_bytes(self) -> int:
        """Return the bytes that this thread has read since the last call."""
        return self._bytes.pop(threading.get_ident(), 0)

    def longest(self) -> tuple[float, str]:
        """Return for how many seconds a record has been read, and its file.

        It is the record that takes longest; without one, no time and an empty text.
        """
        current = list(self._current.values())
        if not current:
            return 0.0, ""
        since, column, number = min(current, key=lambda each: each[0])
        place = None if column.locate is None else column.locate(number)
        name = f"record {number}" if place is None else place.file
        return time.monotonic() - since, name


def _size(content: Any) -> int:
    return len(content.content) if isinstance(content, EncodedImage) else int(content.nbytes)


class BatchRows:
    """Rows of all inputs of a batch; thread-safe."""

    def __init__(
        self, dataset: Dataset, seed: int, reading: ReadsInProgress, python: TransformRunner
    ) -> None:
        """`python`: applies the transforms that are the user's own."""
        self.dataset, self.reading, self._seed = dataset, reading, seed
        columns: dict[str, Field | LazyField] = {
            **dataset.fields,
            **{name: reading.watched(column) for name, column in dataset.lazy.items()},
        }
        self._programs = {
            name: RowProgram(dataset.pipeline, name, columns[name], spec, seed, python)
            for name, spec in dataset.inputs.items()
        }

    def read(self, records: Numbers) -> Mapping[str, Raw]:
        """Read the content of records from their files."""
        return {name: program.read(records) for name, program in self._programs.items()}

    def mix(self, rows: Slots, valid: int, epoch: int, batch: int) -> None:
        """Apply the transforms of batches to the first `valid` rows of a batch."""
        mix_batch(self.dataset.pipeline, self._seed, epoch, batch, rows, valid)

    def write(
        self, content: Mapping[str, Raw], records: Numbers, epochs: Numbers, rows: Slots
    ) -> dict[int, UserError]:
        """Decode and transform records, and write them into `rows`, one a record.

        epochs: of each record, the number that selects its random draws. Returns the errors of
        records by row; their rows are zero in the inputs that have them.
        """
        errors: dict[int, UserError] = {}
        moves: Sequence[ImageMove] = ()
        # The images first: their transforms move the boxes of labels.
        for name in sorted(self._programs, key=lambda name: name != _IMAGES):
            program = self._programs[name]
            failed = program.write(content[name], records, epochs, rows[name], moves)
            moves = failed.moves if name == _IMAGES else moves
            for row, error in failed:
                errors.setdefault(row, error)
        return errors
