"""Agreement of all ranks at the end of a step: what they measured, and whether the step counts.

A rank whose record cannot be read, or that was told to stop, goes on to the end of the step like
the others, so that none of them waits for a message that never comes. Then all end at that step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.io.loading.bad_records import BadRecord, BadRecords
from mxrun.io.loading.iterator import RecordError
from mxrun.runtime.rank_watch import RankActivity
from mxrun.runtime.ranks import RankGroup
from mxrun.train.interruption import WaitEnded
from mxrun.train.measure import Measure

Array = npt.NDArray[Any]
# Numbers at the beginning of a rank's row: whether it failed, was told to stop, and has losses that
# are not finite, and has something to save; then its records, what they add to the divisor of
# gradients, those that were left out, and a checksum of its parameters.
_FAILED, _INTERRUPTED, _INFINITE, _DUE, _RECORDS, _COUNTED, _BAD, _CHECKSUM = range(8)
_HEAD = 8


class Agreement:
    """What all ranks agreed on last: whether to stop, and whether all losses are finite.

    records: those of all batch parts; counted: what they add to the divisor of gradients.
    wants_stop, due: asked in each agreement. is_due: whether the first rank saves. count: number of
    agreements so far. is_waiting, doing: what this rank does at the moment, for the others if that
    never ends.
    """

    def __init__(self, ranks: RankGroup, bad_records: Mapping[str, BadRecords]) -> None:
        """`bad_records`: by section of the data, those that are left out."""
        self.ranks, self._bad_records = ranks, bad_records
        for each in bad_records.values():
            each.uncounted = [] if ranks.size > 1 else None
        self.wants_stop: Callable[[], bool] = lambda: False
        self.due: Callable[[], bool] = lambda: False
        self.interrupted = self.is_due = False
        self.is_finite = True
        self.records = self.counted = self.count = 0
        self.is_waiting, self.doing = False, "preparing"

    def activity(self) -> RankActivity:
        """Return what this rank does."""
        return RankActivity(self.count, self.is_waiting, self.doing)

    @property
    def bad(self) -> int:
        """Number of records that were left out on this rank and are not counted yet."""
        return sum(len(each.uncounted or ()) for each in self._bad_records.values())

    def count_bad_records(self) -> None:
        """Count the records that all ranks have left out, in the order of the batch parts.

        Raises RecordError on every rank if there are too many.
        """
        own = {role: each.uncounted or [] for role, each in self._bad_records.items()}
        text = json.dumps({role: [bad.to_json() for bad in found] for role, found in own.items()})
        for found in own.values():
            found.clear()
        texts = self.ranks.gather_texts(text)
        try:
            for shared in map(json.loads, texts):
                for role, listed in shared.items():
                    self._bad_records[role].count(BadRecord(**each) for each in listed)
        except RecordError:
            self.ranks.ends_together = True
            raise

    def share_bad_records(self) -> None:
        """Count the records that the first rank has counted before."""
        known = {role: [*each.found] for role, each in self._bad_records.items()}
        text = json.dumps({role: [bad.to_json() for bad in found] for role, found in known.items()})
        first = json.loads(self.ranks.gather_texts(text)[0])
        for role, each in self._bad_records.items():
            each.begin([BadRecord(**bad) for bad in first[role]], each.on_new)

    def is_true_everywhere(self, value: bool) -> bool:
        """Return whether a value is true on all ranks."""
        return bool(self.ranks.gather(np.array([value])).all())

    def take(self, heads: Array) -> None:
        """Set what the first numbers of all rows say, [ranks, numbers].

        Raises UserError if checksums of parameters differ.
        """
        self.count += 1
        self.is_waiting, self.doing = False, "updating parameters, saving or reporting"
        self.interrupted = bool(heads[:, _INTERRUPTED].any())
        self.is_due = bool(heads[0, _DUE])
        self.is_finite = not heads[:, _INFINITE].any()
        self.records, self.counted = (int(heads[:, at].sum()) for at in (_RECORDS, _COUNTED))
        checksums = heads[:, _CHECKSUM].astype(np.int64).tolist()
        if len({*checksums}) > 1:
            self.ranks.ends_together = True
            raise _different_parameters(checksums)


class PartSums:
    """Sums of one phase over batches whose parts are measured on several ranks.

    Every part is measured from zero, and added in the order of the parts, so that the sums do not
    depend on the number of ranks. On one rank the parts come in this order.
    """

    def __init__(self, agreement: Agreement, parts: int, measure: Measure) -> None:
        """`parts`: number of those of each rank. measure: the sums of the phase."""
        self._agreement, self._measure = agreement, measure
        self._is_alone = agreement.ranks.size == 1
        # A metric may share the sums of its loss.
        arrays = {id(array): array for array in measure.state().values()}
        self._arrays = [] if self._is_alone else [*arrays.values()]
        self._before = [array.copy() for array in self._arrays]
        self._size = sum(array.size for array in self._arrays)
        self._row = np.zeros(_HEAD + parts * self._size)

    def begin(self) -> None:
        """Begin the parts of a batch."""
        self._row[:_HEAD] = 0
        for array, before in zip(self._arrays, self._before, strict=True):
            np.copyto(before, array)

    def measure(self, part: int, add: Callable[[], None]) -> None:
        """Measure part number `part` of this rank by `add`."""
        for array in self._arrays:
            array.fill(0)
        add()
        self._row[_INFINITE] += not self._measure.is_finite
        at = _HEAD + part * self._size
        for array in self._arrays:
            self._row[at : at + array.size] = array.reshape(-1)
            at += array.size

    def agree(
        self, records: int, counted: int, error: BaseException | None, checksum: int = 0
    ) -> None:
        """Exchange the rows of all ranks, and add up what they measured.

        error: the reason why this rank has failed. checksum: of its parameters. Raises the error of
        the first rank that has failed, the sums are then as they were, and UserError if checksums
        differ.
        """
        agreement, row = self._agreement, self._row
        row[_FAILED], row[_RECORDS], row[_COUNTED] = error is not None, records, counted
        row[_INTERRUPTED], row[_CHECKSUM] = agreement.wants_stop(), checksum
        row[_BAD], row[_DUE] = agreement.bad, agreement.due()
        rows = agreement.ranks.gather(row)
        agreement.take(rows[:, :_HEAD])
        for array, before in zip(self._arrays, self._before, strict=True):
            np.copyto(array, before)
        has_bad = rows[:, _BAD].any()
        if rows[:, _FAILED].any():
            raise _first_failure(agreement.ranks, error)
        if has_bad:
            agreement.count_bad_records()
        for measured in rows[:, _HEAD:].reshape(-1, self._size) if self._size else ():
            at = 0
            for array in self._arrays:
                flat = array.reshape(-1)
                flat += measured[at : at + array.size]
                at += array.size


def _different_parameters(checksums: list[int]) -> UserError:
    """Return the error for ranks whose parameters should have the same bits."""
    common = max(checksums, key=checksums.count)
    others = [f"rank {rank}" for rank, each in enumerate(checksums) if each != common]
    who = ", ".join(others)
    if 2 * len(others) == len(checksums):
        who += " or the other ranks"
    return UserError(
        Diagnostic(
            f"the parameters differ between ranks: those of {who} have changed by themselves",
            expected="the same bits on every rank",
            got=", ".join(f"{each:08x} on rank {rank}" for rank, each in enumerate(checksums)),
            hint="a processor or memory may be defective; the last checkpoint is from before",
        )
    )


def _first_failure(ranks: RankGroup, own: BaseException | None) -> BaseException:
    """Return the error of the first rank that has failed, of a record before others."""
    if ranks.size == 1:
        assert own is not None
        return own
    diagnostics = own.diagnostics if isinstance(own, UserError) else ()
    texts = ranks.gather_texts(json.dumps([asdict(each) for each in diagnostics]))
    ranks.ends_together = True
    found = next((problems for text in texts if (problems := json.loads(text))), None)
    return WaitEnded() if found is None else RecordError(map(_diagnostic, found))


def _diagnostic(values: dict[str, Any]) -> Diagnostic:
    place = values["place"]
    location = None if place is None else SourceLocation(**place)
    return Diagnostic(**{**values, "place": location, "chain": tuple(values["chain"])})
