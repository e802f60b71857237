"""Records that cannot be read, decoded or transformed, and those that are left out for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.files import with_prefix
from mxrun.io.loading.iterator import RecordError

# Records of which an error lists the reasons.
_SHOWN = 3
# Default of the greatest number of bad records: a share of the data set, but at least some.
_SHARE, _LEAST = 0.01, 10


@dataclass(frozen=True)
class BadRecord:
    """Record that is left out.

    record: its number in the part of the data set that is read. file, number, byte: the file that
    holds it, its number there and the byte where it begins; None if it was in memory. reason: why
    it is left out.
    """

    record: int
    file: str | None
    number: int | None
    byte: int | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON."""
        return asdict(self)


class BadRecords:
    """Records of one data set, or other source, that are left out; each is counted once.

    limit: their greatest number. on_new: called for each one, in the order of batches and rows.
    uncounted: those that wait for `count`, with those of other ranks; None if they are counted at
    once.
    """

    def __init__(
        self, name: str, count: int, limit: int | None = None, place: SourceLocation | None = None
    ) -> None:
        """`name`: that of the source of `count` records, which the config names at `place`.

        limit: None stands for 1 % of the records, but at least 10. One record must be good.
        """
        self.limit = min(max(_LEAST, int(count * _SHARE)) if limit is None else limit, count - 1)
        self.on_new: Callable[[BadRecord], None] = lambda bad: None
        self.uncounted: list[BadRecord] | None = None
        self._name, self._count, self._place = name, count, place
        self._found: dict[int, BadRecord] = {}

    @classmethod
    def of(cls, dataset: Dataset, limit: int | None) -> BadRecords:
        """Return the counter of a data set."""
        return cls(f"data set {dataset.name!r}", len(dataset), limit, dataset.place)

    @property
    def found(self) -> tuple[BadRecord, ...]:
        """The records left out so far."""
        return tuple(self._found.values())

    @property
    def note(self) -> str:
        """Note for the user on the records left out; empty if there are none."""
        if not self._found:
            return ""
        return f"bad records of {self._name} are left out: {self._text(self.found)}"

    def begin(self, known: Iterable[BadRecord], on_new: Callable[[BadRecord], None]) -> None:
        """Begin to count: first those that the same run has left out before."""
        self._found = {bad.record: bad for bad in known}
        self.on_new = on_new

    def leave_out(self, bad: Iterable[BadRecord]) -> None:
        """Leave out records, and count them; raises RecordError as `count` does."""
        if self.uncounted is None:
            self.count(bad)
        else:
            self.uncounted += bad

    def count(self, bad: Iterable[BadRecord]) -> None:
        """Count records; raises RecordError, and counts none of them, if they exceed the limit."""
        new = {each.record: each for each in bad if each.record not in self._found}
        if len(self._found) + len(new) > self.limit:
            raise self._too_many((*self.found, *new.values()))
        for record, each in new.items():
            self._found[record] = each
            self.on_new(each)

    def _too_many(self, bad: Sequence[BadRecord]) -> RecordError:
        return RecordError(
            Diagnostic(
                f"too many bad records of {self._name}: {self._text(bad)}",
                self._place,
                f"at most {self.limit} of {self._count:,} records",
                str(len(bad)),
                hint="repair them, or raise data.max_bad_records",
            )
        )

    @staticmethod
    def _text(bad: Sequence[BadRecord]) -> str:
        reasons = "; ".join(f"record {each.record}: {each.reason}" for each in bad[:_SHOWN])
        return reasons + (f"; and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else "")


def location_of(dataset: Dataset, record: int) -> RecordLocation | None:
    """Return the place of a record in the files of a data set; None if it is not in a file."""
    found = (column.source(record) for column in dataset.lazy.values())
    return next((place for place in found if place is not None), None)


def bad_record(dataset: Dataset, record: int, error: UserError) -> BadRecord:
    """Return the description of a record that is left out because of an error."""
    reason = "; ".join(each.problem for each in error.diagnostics)
    place = location_of(dataset, record)
    if place is None:
        return BadRecord(record, None, None, None, reason)
    return BadRecord(record, place.file, place.number, place.offset, reason)


def record_error(dataset: Dataset, record: int, error: UserError) -> RecordError:
    """Return the error for a record: with its number, its file and the byte where it begins."""
    where = f"record {record} of data set {dataset.name!r}"
    place = location_of(dataset, record)
    named = " ".join(each.problem for each in error.diagnostics)
    if place is not None and (place.offset or place.file not in named):
        where += f" ({place})"
    return RecordError(with_prefix(error, where, dataset.place).diagnostics)
