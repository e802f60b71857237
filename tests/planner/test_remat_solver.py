"""Rematerialisation of a chain: as fast as the fastest of all schedules."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache

import pytest

from mxrun.planner.remat.solver import Action, ChainPlans, ChainStage, Move, Retention

Points = frozenset[tuple[int, int]]


def drawn(seed: int, count: int) -> list[ChainStage]:
    """Return a random chain with small integer costs; the last stage has no incoming gradient."""
    draw = random.Random(seed)
    stages = []
    for index in range(count):
        ways = []
        for extra in (0, draw.randint(1, 4)):
            saved = draw.randint(0, 9 if extra == 0 else 3)
            ways.append(Retention(saved, saved + draw.randint(0, 5), draw.randint(1, 14), extra))
        stages.append(
            ChainStage(
                seconds=draw.randint(1, 9),
                input_bytes=draw.randint(1, 6) if index else 0,
                gradient_bytes=draw.randint(0, 4) if index < count - 1 else 0,
                passing_peak=draw.randint(1, 8),
                retentions=tuple(ways),
            )
        )
    return stages


def every_order(stages: Sequence[ChainStage]) -> Points:
    """Return (seconds, peak bytes) of every schedule, without any pruning."""

    @cache
    def orders(first: int, last: int) -> Points:
        stage, arriving = stages[first], stages[last].gradient_bytes
        found = set()
        for way in stage.retentions:
            own = max(arriving + way.forward_peak, way.backward_peak)
            if first == last:
                found.add((int(stage.seconds + way.extra_s), own))
                continue
            kept = stages[first + 1].input_bytes + way.saved
            for seconds, peak in orders(first + 1, last):
                found.add((int(stage.seconds + way.extra_s) + seconds, max(own, kept + peak)))
        for split in range(first + 1, last + 1):
            passed = range(first, split)
            seconds = int(sum(stages[each].seconds for each in passed))
            peak = arriving + max(
                stages[each].passing_peak + (stages[each].input_bytes if each > first else 0)
                for each in passed
            )
            kept = stages[split].input_bytes
            for after_s, after in orders(split, last):
                for before_s, before in orders(first, split - 1):
                    total = seconds + after_s + before_s
                    found.add((total, max(peak, kept + after, before)))
        return frozenset(found)

    return orders(0, len(stages) - 1)


def simulated(stages: Sequence[ChainStage], actions: Sequence[Action]) -> tuple[float, int]:
    """Return the seconds of the actions, and the peak of bytes that later actions read."""
    seconds, peak, pending = 0.0, 0, len(stages) - 1
    saved: dict[int, int] = {}
    for position, action in enumerate(actions):
        index, stage = action.stage, stages[action.stage]
        way = stage.retentions[action.retention]
        held = stage.input_bytes + sum(
            stages[other].input_bytes
            for other in range(1, len(stages))
            if other not in (index, index + 1) and is_read_later(other, actions, position)
        )
        if action.move is Move.BACK:
            assert index == pending, "backward comes out of turn"
            pending -= 1
            del saved[index]
            own, seconds = way.backward_peak, seconds + way.extra_s
        else:
            keeps = action.move is Move.KEEP
            own = stages[pending].gradient_bytes
            own += way.forward_peak if keeps else stage.passing_peak
            seconds += stage.seconds
        peak = max(peak, held + own + sum(saved.values()))
        if action.move is Move.KEEP:
            saved[index] = way.saved
    assert pending == -1, "not every stage came back"
    return seconds, peak


def is_read_later(stage: int, actions: Sequence[Action], position: int) -> bool:
    """Return whether a stage's input exists and is read before it is computed again."""

    def makes(action: Action) -> bool:
        return action.stage == stage - 1 and action.move is not Move.BACK

    if not any(map(makes, actions[:position])):
        return False
    for action in actions[position + 1 :]:
        if action.stage == stage:
            return True
        if makes(action):
            return False
    return False


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("seed", range(6))
def test_the_fastest_order_for_every_memory(count: int, seed: int) -> None:
    stages = drawn(100 * count + seed, count)
    known = every_order(stages)
    most = max(peak for _, peak in known)
    plans = ChainPlans(stages, slot_bytes=1, slots=most)
    for memory in range(most + 1):
        fastest = min((s for s, peak in known if peak <= memory), default=math.inf)
        assert plans.seconds[memory] == fastest
        if fastest < math.inf:
            seconds, peak = simulated(stages, list(plans.actions(memory)))
            assert seconds == fastest
            assert peak <= memory


def test_sizes_are_rounded_up_to_slots() -> None:
    stages = drawn(7, 5)
    exact, rough = ChainPlans(stages, 1, 200), ChainPlans(stages, 8, 25)
    for slots in range(26):
        assert rough.seconds[slots] >= exact.seconds[8 * slots]
        if rough.seconds[slots] < math.inf:
            assert simulated(stages, list(rough.actions(slots)))[1] <= 8 * slots
