"""Agreement of all ranks at the end of a step: what they measured, and whether the step counts.

A rank whose record cannot be read, or that was told to stop, goes on to the end of the step like
the others, so that none of them waits for a message that never comes. Then all end at that step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.io.loading.iterator import RecordError
from mxrun.runtime.ranks import RankGroup
from mxrun.train.interruption import WaitEnded
from mxrun.train.measure import Measure

Array = npt.NDArray[Any]
# Numbers at the beginning of a rank's row: whether it failed, was told to stop, and has losses that
# are not finite; then its records, and what they add to the divisor of gradients.
_FAILED, _INTERRUPTED, _INFINITE, _RECORDS, _COUNTED = range(5)
_HEAD = 5


class Agreement:
    """What all ranks agreed on last: whether to stop, and whether all losses are finite.

    records: those of all batch parts; counted: what they add to the divisor of gradients.
    wants_stop: asked in each agreement.
    """

    def __init__(self, ranks: RankGroup) -> None:
        self.ranks = ranks
        self.wants_stop: Callable[[], bool] = lambda: False
        self.interrupted = False
        self.is_finite = True
        self.records = self.counted = 0

    def take(self, heads: Array) -> None:
        """Set what the first numbers of all rows say, [ranks, numbers]."""
        self.interrupted = bool(heads[:, _INTERRUPTED].any())
        self.is_finite = not heads[:, _INFINITE].any()
        self.records, self.counted = (int(heads[:, at].sum()) for at in (_RECORDS, _COUNTED))


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

    def agree(self, records: int, counted: int, error: BaseException | None) -> None:
        """Exchange the rows of all ranks, and add up what they measured.

        error: the reason why this rank has failed. Raises the error of the first rank that has
        failed; the sums are then as they were.
        """
        agreement, row = self._agreement, self._row
        row[_FAILED], row[_RECORDS], row[_COUNTED] = error is not None, records, counted
        row[_INTERRUPTED] = agreement.wants_stop()
        rows = agreement.ranks.gather(row)
        agreement.take(rows[:, :_HEAD])
        for array, before in zip(self._arrays, self._before, strict=True):
            np.copyto(array, before)
        if rows[:, _FAILED].any():
            raise _first_failure(agreement.ranks, error)
        for measured in rows[:, _HEAD:].reshape(-1, self._size) if self._size else ():
            at = 0
            for array in self._arrays:
                flat = array.reshape(-1)
                flat += measured[at : at + array.size]
                at += array.size


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
