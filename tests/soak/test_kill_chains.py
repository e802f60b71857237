"""Runs of every kind, killed ten times each, end with the bytes of an uninterrupted run."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from interrupted_runs import CONFIG, Started, left
from killed_runs import OPERATIONS, Killed, Moment, assert_little_is_redone, chain

pytestmark = pytest.mark.soak

CHAINS, KILLS = 3, 10
# Batch normalisation requires entire batches.
PLAIN = "\n".join(line for line in CONFIG.splitlines() if "BatchNorm" not in line) + "\n"
MICRO = ("memory.budget=60%", "memory.micro_batches=true")
PLATEAU = "train.schedule={plateau: {patience: 0, factor: 0.5, threshold: 0.2}}"
# Ends after seven of nine epochs.
STOPPING = ("train.epochs=9", "train.early_stopping={metric: loss, patience: 1, min_delta: 0.1}")
# Half as many steps in an epoch learn half as fast.
LATER = "train.early_stopping.min_delta=0.05"
# Config and overrides; the number of loader threads is random for each chain.
RUNS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "as it is": (CONFIG, ()),
    "accumulation": (CONFIG, ("train.accumulate=2", "train.epochs=4")),
    "plateau": (CONFIG, (PLATEAU,)),
    "early stopping": (CONFIG, STOPPING),
    "micro-batches": (PLAIN, MICRO),
    "all of it": (PLAIN, (*MICRO, PLATEAU, *STOPPING, "train.accumulate=2", LATER)),
}


def moments(draw: random.Random, steps: int) -> list[Moment]:
    """Return moments in order: a third before a file operation, the others at any time."""
    drawn = [
        Moment(draw.randrange(steps), operation=1 + draw.randrange(OPERATIONS))
        if draw.random() < 1 / 3
        else Moment(draw.randrange(steps), seconds=draw.uniform(0.0, 0.02))
        for _ in range(KILLS)
    ]
    return sorted(drawn, key=lambda moment: moment.step)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_killed_ten_times_is_the_same_run(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    config, overrides = RUNS[name]
    started = Started(tmp_path / "whole", *overrides, config=config)
    code, _, errors = started.end()
    assert code == 0, errors
    whole, steps = left(tmp_path / "whole"), started.step

    def killed(number: int) -> list[Killed]:
        draw = random.Random(f"{name} {number}")
        workers = f"data.workers={draw.choice((1, 2, 4))}"
        folder = tmp_path / str(number)
        return chain(folder, moments(draw, steps), *overrides, workers, config=config)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(killed, range(CHAINS)))
    for number, processes in enumerate(found):
        assert left(tmp_path / str(number)) == whole
        assert_little_is_redone(processes)
    record_property("steps", steps)
    record_property("kills", CHAINS * KILLS)
    record_property("places resumed from", len({each.resumed for one in found for each in one}))
