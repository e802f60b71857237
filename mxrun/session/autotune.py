"""`implementation: auto`: candidates are timed once on this machine, and their times kept.

They lie as plain JSON in the user's cache folder, in files named by all that they depend on: the
work, the candidates, the machine, oneDNN, and the size of the team.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from mxrun.base import disk_cache
from mxrun.base.waits import WAIT_NOTICE_S
from mxrun.executor.timing import time_candidates
from mxrun.operator.kernel import Candidate, Kernels
from mxrun.runtime.machine import description

# The folder of these times among what is kept.
KIND = "candidates"


class Autotuner:
    """Times candidates on a team of `threads`, those of one question once.

    Times that other work disturbed are not kept, and choose nothing.
    `say` hears from time to time how far it is, where that takes long.
    """

    def __init__(self, threads: int, say: Callable[[str], None]) -> None:
        self._threads, self._say = threads, say
        self._known: dict[str, Mapping[str, Candidate]] = {}
        self._timed = self._disturbed = 0
        self._seconds = 0.0
        # The next notice comes after twice the time.
        self._notice_s = WAIT_NOTICE_S

    def __call__(self, question: str, candidates: Mapping[str, Kernels]) -> Mapping[str, Candidate]:
        """What the candidates take: as it is known, or measured now."""
        key = key_of(question, tuple(candidates), self._machine)
        if key not in self._known:
            found = _read(disk_cache.get(KIND, key), candidates)
            if found is None:
                found = self._measured(candidates)
                if found:
                    disk_cache.put(KIND, key, figures_of(found))
            self._known[key] = found
        return self._known[key]

    @cached_property
    def _machine(self) -> str:
        """Once there is a question: whoever has none need not wait for it."""
        return description(self._threads)

    def _measured(self, candidates: Mapping[str, Kernels]) -> Mapping[str, Candidate]:
        begun = time.monotonic()
        found = time_candidates(candidates, self._threads)
        self._timed += 1
        self._disturbed += not found
        self._seconds += time.monotonic() - begun
        if self._seconds > self._notice_s:
            lost = f", {self._disturbed} disturbed by other work" if self._disturbed else ""
            count = f"{self._timed} in {self._seconds:.0f} s{lost}"
            self._say(f"choosing the fastest kernels: {count}")
            self._notice_s *= 2
        return found


def key_of(question: str, candidates: Sequence[str], machine: str) -> str:
    """What times are kept under: all that they depend on, in words."""
    return "\n".join([question, f"candidates: {', '.join(candidates)}", machine])


def figures_of(found: Mapping[str, Candidate]) -> Any:
    """What is kept of times, as plain JSON."""
    return [
        {"name": name, "implementation": candidate.implementation, "seconds": candidate.seconds}
        for name, candidate in found.items()
    ]


def _read(figures: Any, candidates: Mapping[str, Kernels]) -> Mapping[str, Candidate] | None:
    """What `figures_of` gave, of these candidates, the preferred first; None for anything else."""
    try:
        found = {
            str(row["name"]): Candidate(str(row["implementation"]), float(row["seconds"]))
            for row in figures
        }
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    sound = all(0 < candidate.seconds < math.inf for candidate in found.values())
    known = found.keys() <= candidates.keys()
    first = next(iter(found), None) == next(iter(candidates))
    return found if sound and known and first else None
