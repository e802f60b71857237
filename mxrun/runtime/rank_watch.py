"""Watchdog of ranks: one that was stopped, or does not go on, ends all of them, with its number.

Every rank tells the next one several times within the limit what it does. That one ends all if it
hears nothing for longer than the limit, or if it waits for its neighbour for as long.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from typing_extensions import Self

from mxrun.base.dataclass import dataclass
from mxrun.base.threads import start_thread
from mxrun.runtime.ranks import RankGroup

_EXIT_CODE = 1
_MAX_PERIOD_S = 1.0


@dataclass(frozen=True)
class RankActivity:
    """Activity of a rank.

    count: number of its messages to all others so far. is_waiting: whether it waits for the next.
    """

    count: int
    is_waiting: bool
    doing: str

    def to_text(self) -> str:
        """Return the activity as a text."""
        return f"{self.count} {self.is_waiting:d} {self.doing}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the activity that `to_text` has written."""
        count, is_waiting, doing = text.split(" ", 2)
        return cls(int(count), is_waiting == "1", doing)


class RankWatch:
    """Thread that exchanges signs of life with the neighbours while its context is open.

    ranks: with messages of their own. limit: seconds. activity: returns what this rank does.
    """

    def __init__(
        self, ranks: RankGroup, limit: float, activity: Callable[[], RankActivity]
    ) -> None:
        self._ranks, self._limit, self._activity = ranks, limit, activity
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._thread = start_thread(self._watch, name="rank watch")
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        heard = went_on = time.monotonic()
        theirs, before = RankActivity(-1, False, "starting"), -1
        while not self._over.wait(min(_MAX_PERIOD_S, self._limit / 4)):
            own = self._activity()
            self._ranks.tell_next(own.to_text())
            now = time.monotonic()
            for text in self._ranks.told_by_previous():
                heard, theirs = now, RankActivity.from_text(text)
            if own.count != before or not own.is_waiting or theirs.is_waiting:
                before, went_on = own.count, now
            if now - heard > self._limit:
                self._end(f"has given no sign of life for {self._limit:g} s", theirs)
            if now - went_on > self._limit and theirs.count <= own.count:
                self._end(f"keeps the others waiting for {self._limit:g} s", theirs)

    def _end(self, problem: str, theirs: RankActivity) -> None:
        ranks = self._ranks
        sys.stderr.write(
            f"rank {(ranks.rank - 1) % ranks.size} of {ranks.size} {problem}, which ends all "
            f"ranks; it was {theirs.doing}\n"
        )
        ranks.abort(_EXIT_CODE)
