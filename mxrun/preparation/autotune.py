"""Autotuning for `implementation: auto`: candidates are timed once per machine, with a disk cache.

The times are stored as plain JSON in the user's cache folder. The key covers everything that they
depend on: the work, the candidates, and the device with its libraries and threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mxrun.base import disk_cache
from mxrun.base.once import cached_property
from mxrun.base.waits import WAIT_NOTICE_S
from mxrun.device.interface import Device
from mxrun.executor.timing import time_candidates
from mxrun.operator.kernel import Candidate, Kernels
from mxrun.preparation.notes import Notify

# Name of this disk cache.
KIND = "candidates"


class Autotuner:
    """Callable that times candidates on a device, each question once.

    Times disturbed by other processes are discarded and select nothing. notify: receives progress
    notes if the timing takes long.
    """

    def __init__(self, device: Device, notify: Notify) -> None:
        self._device, self._notify = device, notify
        self._known: dict[str, Mapping[str, Candidate]] = {}
        self._timed = self._disturbed = 0
        self._seconds = 0.0
        # Seconds until the next notice, doubled after each.
        self._notice_s = WAIT_NOTICE_S

    def __call__(self, question: str, candidates: Mapping[str, Kernels]) -> Mapping[str, Candidate]:
        """Return the times of the candidates, from the cache or measured now."""
        key = key_of(question, tuple(candidates), self._identity)
        if key not in self._known:
            found = _read(disk_cache.get(KIND, key), candidates)
            if found is None:
                found = self._measured(candidates)
                if found:
                    disk_cache.put(KIND, key, figures_of(found))
            self._known[key] = found
        return self._known[key]

    @cached_property
    def _identity(self) -> str:
        """Text of everything about the device, made on first use because it takes time."""
        return self._device.identity()

    def _measured(self, candidates: Mapping[str, Kernels]) -> Mapping[str, Candidate]:
        started = time.monotonic()
        found = time_candidates(candidates, self._device)
        self._timed += 1
        self._disturbed += not found
        self._seconds += time.monotonic() - started
        if self._seconds > self._notice_s:
            disturbed = f", {self._disturbed} disturbed by other work" if self._disturbed else ""
            count = f"{self._timed} in {self._seconds:.0f} s{disturbed}"
            self._notify(f"autotuning kernels: {count}")
            self._notice_s *= 2
        return found


def key_of(question: str, candidates: Sequence[str], identity: str) -> str:
    """Return the cache key of times: text of everything that they depend on.

    identity: that of the device.
    """
    return "\n".join([question, f"candidates: {', '.join(candidates)}", identity])


def figures_of(found: Mapping[str, Candidate]) -> Any:
    """Return times in their cached form, as plain JSON."""
    return [
        {"name": name, "implementation": candidate.implementation, "seconds": candidate.seconds}
        for name, candidate in found.items()
    ]


def _read(figures: Any, candidates: Mapping[str, Kernels]) -> Mapping[str, Candidate] | None:
    """Return the times in a cache entry, the preferred candidate first; None if it is invalid."""
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
