"""Step times of two commits in alternating processes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from proof.installation import Installation
from proof.networks import Case

_SLOWER = 1.03
MIN_ROUNDS = 7
# Approximate duration of a timing run, without start-up.
_TURN_S = 2.0


def step_ms(mxrun: Installation, case: Case, phase: str, steps: int) -> float:
    """Median time of a step of one process."""
    shared = (case.config, *case.plan, "--phase", phase, "--threads", str(mxrun.threads))
    timed = mxrun.report("bench", *shared, "--steps", str(steps), "--warmup", "3")
    return float(timed["mxrun"]["step_ms"]["median"])


@dataclass(frozen=True)
class Row:
    """Step times of both commits in alternating runs, in ms."""

    base: Sequence[float]
    work: Sequence[float]

    @property
    def ratio(self) -> float:
        """Median of the working tree's time over the base's, pair by pair: above 1 is slower."""
        return statistics.median(now / then for then, now in zip(self.base, self.work, strict=True))

    @property
    def is_slower(self) -> bool:
        """Return whether the ratio is above 1.03 and the quartiles do not overlap."""
        highest = statistics.quantiles(self.base, n=4)[2]
        lowest = statistics.quantiles(self.work, n=4)[0]
        return self.ratio > _SLOWER and lowest > highest

    def __str__(self) -> str:
        base, work = map(statistics.median, (self.base, self.work))
        verdict = "SLOWER" if self.is_slower else ""
        return f"{base:10.3f} {work:10.3f} {self.ratio:7.3f}  {verdict}"


def timed_row(base: Installation, work: Installation, case: Case, phase: str, rounds: int) -> Row:
    """Return the times of alternating processes; the order alternates too."""
    first = step_ms(base, case, phase, 2)
    steps = max(3, min(2000, int(_TURN_S * 1e3 / first)))
    times: dict[str, list[float]] = {"base": [], "work": []}
    order = [base, work]
    for _ in range(rounds):
        for mxrun in order:
            times[mxrun.name].append(step_ms(mxrun, case, phase, steps))
        order.reverse()
    return Row(times["base"], times["work"])
