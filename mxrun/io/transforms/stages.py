"""Stages of a program that transform values, whole chunks, or single records in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import InternalError, UserError
from mxrun.io.transforms.base import ChunkTransform, ValueTransform
from mxrun.io.transforms.chunk import Item, Items, RecordChunk, Stack
from mxrun.io.transforms.pipeline import TransformStep


class Stage(Protocol):
    """One or several transforms that are applied together to a chunk of records."""

    def run(self, items: Items, chunk: RecordChunk) -> Items:
        """Return the results of the records; None for those that failed."""


class ValueStage:
    """Transform of float32 values."""

    def __init__(self, step: TransformStep) -> None:
        if not isinstance(step.transform, ValueTransform):
            raise InternalError(f"{step.transform.name} does not change values")
        self.step, self._transform = step, step.transform

    def change(self, rows: NDArray[np.float32], chunk: RecordChunk) -> None:
        """Change the rows of a chunk, [n, ...], in place; those of failed records as well."""
        uniform = chunk.uniform(self.step, self._transform.draws)
        if self._check(range(len(rows)), rows.shape[1:], chunk):
            self._transform.change(rows, uniform)

    def run(self, items: Items, chunk: RecordChunk) -> list[Item]:
        """Return the changed records, each of its own shape."""
        uniform = chunk.uniform(self.step, self._transform.draws)
        found: list[Item] = []
        for row, record in enumerate(chunk.arrays(items)):
            if record is None or not self._check((row,), record.shape, chunk):
                found.append(None)
                continue
            result = np.array(chunk.values(record), order="C")
            self._transform.change(result[np.newaxis], uniform[row : row + 1])
            found.append(result)
        return found

    def _check(self, rows: Sequence[int], shape: tuple[int, ...], chunk: RecordChunk) -> bool:
        """Return whether the transform takes records of a shape; note the error of `rows`."""
        try:
            self._transform.output(shape)
        except UserError as error:
            for row in rows:
                chunk.failed.setdefault(row, self.step.locate(error))
            return False
        return True


class ChunkStage:
    """Transform of a chunk of records of one shape."""

    def __init__(self, step: TransformStep) -> None:
        if not isinstance(step.transform, ChunkTransform):
            raise InternalError(f"{step.transform.name} does not convert chunks")
        self._step, self._transform = step, step.transform

    def run(self, items: Items, chunk: RecordChunk) -> Items:
        """Return the converted records."""
        if isinstance(items, Stack):
            return self._converted(items.gathered(), range(len(items)), chunk)
        found: list[Item] = []
        for row, record in enumerate(chunk.arrays(items)):
            if record is None:
                found.append(None)
                continue
            (result,) = self._converted(record[np.newaxis], (row,), chunk).records
            found.append(None if row in chunk.failed else result)
        return found

    def _converted(
        self, records: NDArray[np.generic], rows: Sequence[int], chunk: RecordChunk
    ) -> Stack:
        everything = np.arange(len(records))
        try:
            self._transform.output(records.shape[1:])
        except UserError as error:
            for row in rows:
                chunk.failed.setdefault(row, self._step.locate(error))
            return Stack(records, everything)
        for at in np.flatnonzero(self._transform.unfit(records)).tolist():
            refused = self._transform.refusal(records[at])
            chunk.failed.setdefault(rows[at], self._step.locate(refused))
        return Stack(self._transform.convert(records), everything)


class PythonStage:
    """Users' own transforms, of bytes or of values, applied to one record after the other."""

    def __init__(self, steps: Sequence[TransformStep]) -> None:
        self._steps = steps
        self._on_values = steps[0].transform.works_on_values

    def run(self, items: Items, chunk: RecordChunk) -> list[Item]:
        """Return the results of the records."""
        found: list[Item] = [None] * len(chunk)
        rows, records = [], []
        for row, record in enumerate(chunk.arrays(items)):
            if record is not None:
                rows.append(row)
                records.append(chunk.values(record) if self._on_values else record)
        draws = [chunk.draws(row) for row in rows]
        results = chunk.python.run(self._steps, chunk.name, records, draws)
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, UserError):
                chunk.failed[row] = result
            else:
                found[row] = result
        return found
