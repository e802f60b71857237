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

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import UserError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.loading.iterator import Slots
from mxrun.io.loading.own_columns import guarded, is_ours
from mxrun.io.loading.python_transforms import TransformRunner
from mxrun.io.transforms.boxes import ImageMove
from mxrun.io.transforms.mixing import mix_batch
from mxrun.io.transforms.program import Raw, RowProgram

Numbers = NDArray[np.int64]

# Field of the images, whose boxes labels may hold.
_IMAGES = "data"
# Position of a record that is read alone.
_FIRST = np.zeros(1, np.int64)


@dataclass
class _RunningRead:
    """Records that a thread is reading, of which it has come to that at `position` [1].

    since: time at which the record at position `seen` was found to be read.
    """

    column: LazyField
    numbers: Sequence[int] | Numbers
    position: Numbers
    since: float
    seen: int = 0

    def seconds(self, now: float) -> float:
        """Return for how long the record at the position has been read, as far as it is known."""
        at = int(self.position[0])
        if at != self.seen:
            self.seen, self.since = at, now
        return now - self.since

    def place(self) -> str:
        """Return the file of the record, or its number."""
        number = int(self.numbers[self.seen])
        place = None if self.column.locate is None else self.column.locate(number)
        return f"record {number}" if place is None else place.file


class ReadsInProgress:
    """Records that threads are reading, and the bytes that they have read."""

    def __init__(self) -> None:
        # By thread.
        self._current: dict[int, _RunningRead] = {}
        self._bytes: dict[int, int] = {}
        self.is_cancelled: Callable[[], bool] = lambda: False

    def watched(self, column: LazyField) -> LazyField:
        """Return the column with its reads recorded here."""
        read = partial(self._read, guarded(column))
        if column.read_arrays is None:
            return replace(column, read=read)
        return replace(column, read=read, read_arrays=partial(self._read_arrays, column))

    def _read(self, column: LazyField, number: int) -> Any:
        if self.is_cancelled():
            raise UserError("reading is cancelled")
        thread = threading.get_ident()
        self._current[thread] = _RunningRead(column, (number,), _FIRST, time.monotonic())
        try:
            content = column.read(number)
        finally:
            del self._current[thread]
        self._add(thread, _size(content))
        return content

    def _read_arrays(
        self, column: LazyField, numbers: Numbers, position: Numbers
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        assert column.read_arrays is not None
        if self.is_cancelled():
            # Each of them then has the error.
            return np.empty(0), np.zeros(len(numbers), np.bool_)
        thread = threading.get_ident()
        self._current[thread] = _RunningRead(column, numbers, position, time.monotonic())
        try:
            arrays, is_read = column.read_arrays(numbers, position)
        finally:
            del self._current[thread]
        self._add(thread, arrays.nbytes // len(numbers) * int(np.count_nonzero(is_read)))
        return arrays, is_read

    def _add(self, thread: int, size: int) -> None:
        self._bytes[thread] = self._bytes.get(thread, 0) + size

    def taken_bytes(self) -> int:
        """Return the bytes that this thread has read since the last call."""
        return self._bytes.pop(threading.get_ident(), 0)

    def longest(self) -> tuple[float, str]:
        """Return for how many seconds a record has been read, and its file.

        It is the record that takes longest; without one, no time and an empty text.
        """
        now = time.monotonic()
        found = [(each.seconds(now), each) for each in list(self._current.values())]
        if not found:
            return 0.0, ""
        seconds, reading = max(found, key=lambda each: each[0])
        return seconds, reading.place()


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
            name: RowProgram(
                dataset.pipeline,
                name,
                columns[name],
                spec,
                seed,
                python,
                keeps_decoded=name in dataset.lazy and is_ours(dataset.lazy[name].read),
            )
            for name, spec in dataset.inputs.items()
        }

    @property
    def runs_python(self) -> bool:
        """Whether a transform is a user's own."""
        return any(program.runs_python for program in self._programs.values())

    def read(self, records: Numbers) -> Mapping[str, Raw]:
        """Read the content of records from their files."""
        return {name: program.read(records) for name, program in self._programs.items()}

    def mix(self, rows: Slots, valid: int, epoch: int, batch: int) -> None:
        """Apply the transforms of batches to the first `valid` rows of a batch."""
        mix_batch(
            self.dataset.pipeline, seed=self._seed, epoch=epoch, batch=batch, rows=rows, valid=valid
        )

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
