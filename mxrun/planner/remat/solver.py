"""Fastest schedule of a chain of stages, forward and backward, within a memory limit.

A chain is a network cut where a single tensor passes from one stage to the next. Backward of a
stage needs its input, the gradient of its output, and the values that its forward retained; missing
ones are recomputed. Dynamic programming over the sub-chains and the free memory finds the fastest
schedule (after Herrmann et al., "Optimal checkpointing for heterogeneous chains",
arXiv:1911.13214). It is the fastest among schedules in which a retained stage input stays until the
stage's backward, with the offered retentions, and with sizes rounded up to slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Retention:
    """One choice of the values that a stage retains for backward, beside its input and output.

    saved: bytes that are live between its forward and its backward. forward_peak, backward_peak:
    peak memory of either, without the stage's input. extra_s: seconds that backward takes longer
    because it recomputes dropped values.
    """

    saved: int
    forward_peak: int
    backward_peak: int
    extra_s: float


@dataclass(frozen=True)
class ChainStage:
    """Costs of one stage of a chain.

    seconds: time of its forward. input_bytes: size of the tensor from the previous stage.
    gradient_bytes: size of its output's gradient. passing_peak: peak memory, without its input, of
    a forward that retains nothing but its output. retentions: the choices.
    """

    seconds: float
    input_bytes: int
    gradient_bytes: int
    passing_peak: int
    retentions: tuple[Retention, ...]


class Move(Enum):
    """Operation on a stage."""

    PASS = "forward, keeping its output alone"
    KEEP = "forward, keeping what backward needs"
    BACK = "backward"


@dataclass(frozen=True)
class Action:
    """One move of a stage; `retention` is the index of its retention, for KEEP and BACK."""

    move: Move
    stage: int
    retention: int = 0


class ChainPlans:
    """Fastest schedules of a chain for every memory of 0 to `slots` slots of `slot_bytes`.

    seconds: by slots of memory, the time of all forwards, repeated ones included, plus the extra
    time of backwards due to retentions; infinite if there is no schedule.
    """

    def __init__(self, stages: Sequence[ChainStage], slot_bytes: int, slots: int) -> None:
        self._stages, self._slot_bytes, self._slots = stages, slot_bytes, slots
        self._seconds: dict[tuple[int, int], Seconds] = {}
        self._choices: dict[tuple[int, int], npt.NDArray[np.int16]] = {}
        count = len(stages)
        for length in range(count):
            for first in range(count - length):
                self._solve(first, first + length)
        self.seconds = self._seconds[0, count - 1]

    def actions(self, slots: int) -> Iterator[Action]:
        """Yield the fastest schedule for a memory in which one exists."""
        return self._actions(0, len(self._stages) - 1, slots)

    def _in_slots(self, nbytes: int) -> int:
        return -(-nbytes // self._slot_bytes)

    def _solve(self, first: int, last: int) -> None:
        """Solve the sub-chain from `first` to `last`, given the input of the first stage."""
        found = np.stack(list(self._options(first, last)))
        choice = found.argmin(axis=0)
        self._choices[first, last] = choice.astype(np.int16)
        self._seconds[first, last] = np.take_along_axis(found, choice[None], axis=0)[0]

    def _options(self, first: int, last: int) -> Iterator[Seconds]:
        """Yield seconds by memory: for each retention, then for passing up to each later stage."""
        stage, arriving = self._stages[first], self._stages[last].gradient_bytes
        for retention in stage.retentions:
            need = max(arriving + retention.forward_peak, retention.backward_peak)
            rest = np.zeros(self._slots + 1)
            if first < last:
                retained = self._stages[first + 1].input_bytes + retention.saved
                rest = _with_less(self._seconds[first + 1, last], self._in_slots(retained))
            yield _from(stage.seconds + retention.extra_s + rest, self._in_slots(need))
        passing, peak = 0.0, 0
        for split in range(first + 1, last + 1):
            passed = self._stages[split - 1]
            given = passed.input_bytes if split - 1 > first else 0
            peak = max(peak, given + passed.passing_peak)
            passing += passed.seconds
            retained = self._in_slots(self._stages[split].input_bytes)
            rest = (
                _with_less(self._seconds[split, last], retained) + self._seconds[first, split - 1]
            )
            yield _from(passing + rest, self._in_slots(arriving + peak))

    def _actions(self, first: int, last: int, slots: int) -> Iterator[Action]:
        stage, choice = self._stages[first], int(self._choices[first, last][slots])
        if choice < len(stage.retentions):
            yield Action(Move.KEEP, first, choice)
            if first < last:
                retained = self._stages[first + 1].input_bytes + stage.retentions[choice].saved
                yield from self._actions(first + 1, last, slots - self._in_slots(retained))
            yield Action(Move.BACK, first, choice)
            return
        split = first + 1 + choice - len(stage.retentions)
        for passed in range(first, split):
            yield Action(Move.PASS, passed)
        retained = self._in_slots(self._stages[split].input_bytes)
        yield from self._actions(split, last, slots - retained)
        yield from self._actions(first, split - 1, slots)


def _with_less(seconds: Seconds, slots: int) -> Seconds:
    """Return the seconds by memory if `slots` slots are already occupied."""
    found = np.full_like(seconds, np.inf)
    if slots < len(seconds):
        found[slots:] = seconds[: len(seconds) - slots]
    return found


def _from(seconds: Seconds, need: int) -> Seconds:
    """Return the seconds with infinity below `need` slots of memory."""
    seconds[:need] = np.inf
    return seconds
