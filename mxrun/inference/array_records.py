"""Inputs of inference: records from arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from mxrun.base.array_file import Arrays
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.executor.executor import Executor
from mxrun.inference.records import Records, RecordSource
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.io.sample import Sample, array_samples


class ArraySource(RecordSource):
    """Records of arrays, one for each data input; they are read like .npy files."""

    def __init__(self, samples: Mapping[str, Sample], arrays: Arrays) -> None:
        """Read all records. Raises UserError if one does not fit, or if their numbers differ.

        samples: how each input reads them. arrays: by input, [records, *record] or one record.
        """
        self._rows: dict[str, list[npt.NDArray[Any]]] = {}
        remarks: list[str] = []
        for field, array in arrays.items():
            sample = samples[field].for_records()
            self._rows[field] = list(array_samples(array, f"array {field!r}", sample))
            self.tally = self.tally if sample.encoding is None else sample.tally
            remarks += sample.remarks
        self.remarks = remarks[:1]
        counts = {field: len(rows) for field, rows in self._rows.items()}
        if len({*counts.values()}) > 1:
            raise UserError(
                Diagnostic(
                    "the arrays have different numbers of records",
                    expected="one record in each array for every sample",
                    got=", ".join(f"{field}: {count}" for field, count in counts.items()),
                )
            )
        self.total = min(counts.values())

    def available(self, limit: int) -> int:
        """Return the number of records in the first batch."""
        assert self.total is not None
        return min(limit, self.total)

    def staged(self, batch_size: int) -> Mapping[str, TensorSpec]:
        """Return no tensors: all records are in memory."""
        return {}

    def batches(self, executor: Executor, batch_size: int) -> Iterator[Records]:
        """Yield batches of the inputs that have an array; other inputs remain zero."""
        assert self.total is not None
        slots = {field: executor.tensor(field).mirror() for field in self._rows}
        if SAMPLE_WEIGHT in executor.plan.specs:
            executor.tensor(SAMPLE_WEIGHT).write(1)
        for start in range(0, self.total, batch_size):
            numbers = range(start, min(start + batch_size, self.total))
            for field, slot in slots.items():
                for row, number in enumerate(numbers):
                    slot.array[row] = self._rows[field][number]
                slot.store()
            yield Records([("", number) for number in numbers])


def named_arrays(arrays: Arrays, data: Sequence[str]) -> Arrays:
    """Return the arrays of the inputs `data`; a single array without a name is of the only input.

    Raises UserError for other names.
    """
    if len(data) == 1 and [*arrays] == [""]:
        return {data[0]: arrays[""]}
    if arrays.keys() != {*data}:
        raise UserError(
            Diagnostic(
                "the arrays are not those of the network's inputs",
                expected=f"one array for each of {', '.join(data)}",
                got=", ".join(arrays).strip() or "one array without a name",
            )
        )
    return arrays
