"""Work on every record of a data set, on several threads, with results in the order of records."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import UserError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.images.decode import decode_image
from mxrun.io.images.encoded import EncodedImage

T = TypeVar("T")
Advance = Callable[[int], None]
# Records of one piece of work, and pieces that a thread has ahead.
_CHUNK, _AHEAD = 32, 2


def scan(
    count: int, work: Callable[[range], T], workers: int, advance: Advance, done: int = 0
) -> Iterator[T]:
    """Yield the results of `work` for consecutive ranges of `count` records, in their order.

    workers: number of threads. advance: receives the number of records that are done; `done` are
    those of earlier data sets. The ranges do not depend on the number of threads.
    """
    waiting: deque[tuple[range, Future[T]]] = deque()
    pool = ThreadPoolExecutor(workers, "scan")
    try:
        starts = iter(range(0, count, _CHUNK))
        while True:
            while len(waiting) < workers * _AHEAD:
                start = next(starts, None)
                if start is None:
                    break
                records = range(start, min(start + _CHUNK, count))
                waiting.append((records, pool.submit(work, records)))
            if not waiting:
                return
            records, future = waiting.popleft()
            result = future.result()
            advance(done + records.stop)
            yield result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def stored_record(dataset: Dataset, name: str, index: int) -> NDArray[Any]:
    """Return a field's record as its files hold it, before scale and transforms; images decoded.

    Raises UserError for a record that cannot be read.
    """
    column = dataset.lazy.get(name)
    if column is None:
        return np.asarray(dataset.fields[name].records[index])
    record: object = column.record(index)
    if isinstance(record, EncodedImage):
        (channels, *_) = column.shape
        return decode_image(io.BytesIO(record.content), record.source, channels or 3)
    return np.asarray(record)


def scale_of(dataset: Dataset, name: str) -> float | None:
    """Return the factor from the stored numbers of a field to its values; None without one."""
    column = dataset.lazy.get(name) or dataset.fields[name]
    return column.scale


def location_of_record(dataset: Dataset, index: int) -> RecordLocation | None:
    """Return the place of a record in its files; None if it is not known."""
    for column in dataset.lazy.values():
        if (location := column.source(index)) is not None:
            return location
    return None


def number_of_record(dataset: Dataset, index: int) -> int:
    """Return a record's number in the complete split."""
    return index if dataset.numbers is None else int(dataset.numbers[index])


def problem_of(error: UserError) -> str:
    """Return what is wrong, on one line."""
    first = error.diagnostics[0]
    detail = (
        f" (expected {first.expected}, got {first.got})" if first.expected and first.got else ""
    )
    return f"{first.problem}{detail}"
