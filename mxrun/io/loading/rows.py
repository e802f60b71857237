"""Rows of a batch, made for chunks of records, and the record that is being read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.images.decode import decoded
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.loading.iterator import Slots
from mxrun.io.loading.python_transforms import TransformRunner
from mxrun.io.transforms.base import Record
from mxrun.io.transforms.pipeline import Draws, values

Numbers = NDArray[np.int64]


class ReadsInProgress:
    """Records that threads are reading, and the bytes that they have read."""

    def __init__(self) -> None:
        # By thread: the time at which the record was begun, its column, and its number there.
        self._current: dict[int, tuple[float, LazyField, int]] = {}
        self._bytes: dict[int, int] = {}
        self.is_cancelled: Callable[[], bool] = lambda: False

    def watched(self, column: LazyField) -> LazyField:
        """Return the column with its reads recorded here."""
        return replace(column, read=partial(self._read, column))

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
        self.dataset, self.reading = dataset, reading
        self._programs = {
            name: _Program(dataset, name, reading.watched(column) if lazy else column, seed, python)
            for name in dataset.inputs
            for column, lazy in [_column(dataset, name)]
        }

    def read(self, records: Numbers) -> Mapping[str, Any]:
        """Read the content of records from their files."""
        return {name: program.read(records) for name, program in self._programs.items()}

    def write(
        self, content: Mapping[str, Any], records: Numbers, epochs: Numbers, rows: Slots
    ) -> dict[int, UserError]:
        """Decode and transform records, and write them into `rows`, one a record.

        epochs: of each record, the number that selects its random draws. Returns the errors of
        records by row; their rows have arbitrary contents.
        """
        errors: dict[int, UserError] = {}
        for name, program in self._programs.items():
            for row, error in program.write(content[name], records, epochs, rows[name]):
                errors.setdefault(row, error)
        return errors


def _column(dataset: Dataset, name: str) -> tuple[Any, bool]:
    lazy = dataset.lazy.get(name)
    return (dataset.fields[name], False) if lazy is None else (lazy, True)


class _Program:
    def __init__(
        self,
        dataset: Dataset,
        name: str,
        column: Field | LazyField,
        seed: int,
        python: TransformRunner,
    ) -> None:
        self._dataset, self._name, self._column, self._seed = dataset, name, column, seed
        self._python = python
        self._steps = list(dataset.pipeline.of(name))
        self._own = self._steps and all(
            not type(s.transform).__module__.startswith("mxrun.") for s in self._steps
        )

    def read(self, records: Numbers) -> list[Any]:
        column = self._column
        if isinstance(column, Field):
            return [column.records[record] for record in records]
        found: list[Any] = []
        for record in records:
            try:
                found.append(column.record(int(record)))
            except UserError as error:
                found.append(error)
        return found

    def write(
        self, raw: list[Any], records: Numbers, epochs: Numbers, target: NDArray[Any]
    ) -> list[tuple[int, UserError]]:
        errors = []
        if self._own:
            draws2 = [
                Draws(self._seed, int(e), int(r)) for e, r in zip(epochs, records, strict=True)
            ]
            for row, result in enumerate(self._python.run(self._steps, self._name, raw, draws2)):
                if isinstance(result, UserError):
                    errors.append((row, result))
                else:
                    target[row] = result
            return errors
        for row, content in enumerate(raw):
            try:
                if isinstance(content, UserError):
                    raise content
                if isinstance(content, EncodedImage) and isinstance(self._column, LazyField):
                    content = decoded(content, self._column.shape)
                draws = Draws(self._seed, int(epochs[row]), int(records[row]))
                target[row] = self._row(content, draws, target.shape[1:])
            except UserError as error:
                errors.append((row, error))
        return errors

    def _row(self, raw: Record, draws: Draws, shape: tuple[int, ...]) -> Record:
        scale = self._column.scale
        row = self._dataset.pipeline.apply(self._name, raw, scale, draws)
        if row.shape != shape:
            problem = "the record does not fit the network's input"
            hint = "resize, center_crop, ... in `transforms` bring records to one size"
            expected, got = str(list(shape)), str(list(row.shape))
            raise UserError(Diagnostic(problem, None, expected, got, hint))
        return row if scale is None else values(row, scale)
