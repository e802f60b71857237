"""Losses of power at any moment of a run: a saved checkpoint remains, and the run resumes to the
bits of an uninterrupted one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from power_loss import Call, Crash
from recorded_runs import (
    RUN,
    Disk,
    Recorded,
    Scenario,
    Scenarios,
    folder_in_memory,
    fresh,
    keeping_one,
    resumed,
)

# Random subsets of changes that are not durable, after each call of a process.
FEW, MANY = 1, 20
# States of the disk that the plain tests load, of each process, and that tests resume from. The
# soak test resumes from all.
LOADED, RESUMED, RESUMED_IN_FULL = 400, 8, 80

RecordScenario = Callable[[Scenario], Recorded]
Fault = Callable[[Sequence[Call]], list[Call]]

# Other scenarios are tried in all their states by hand: tests/soak.
SCENARIOS = (fresh, resumed)


@pytest.fixture(scope="module")
def record_scenario() -> Iterator[RecordScenario]:
    with folder_in_memory() as folder:
        yield Scenarios(folder).recorded


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty folder, the current one during the test."""
    with folder_in_memory() as folder:
        monkeypatch.chdir(folder)
        yield folder
        monkeypatch.undo()


def spread(count: int, found: Sequence[Crash]) -> Sequence[Crash]:
    """Return about `count` of the states, spread evenly."""
    return found[:: max(1, len(found) // count)]


def check(recorded: Recorded, found: Sequence[Crash], folder: Path) -> None:
    """Check the files after each loss of power."""
    assert len({crash.step for crash in found}) >= 6
    disk = Disk(recorded, folder)
    problems = [f"{crash.call}: {problem}" for crash in found if (problem := disk.problem(crash))]
    assert not problems, problems[:5]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_F5_a_saved_checkpoint_remains(
    scenario: Scenario, record_scenario: RecordScenario, folder: Path
) -> None:
    recorded = record_scenario(scenario)
    check(recorded, spread(LOADED, recorded.crashes(FEW)), folder)


@pytest.mark.full
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_F5_a_saved_checkpoint_remains_in_every_state(
    scenario: Scenario, record_scenario: RecordScenario, folder: Path
) -> None:
    recorded = record_scenario(scenario)
    check(recorded, recorded.crashes(MANY), folder)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_F5_the_run_goes_on_to_the_same_bits(
    scenario: Scenario, record_scenario: RecordScenario, folder: Path
) -> None:
    recorded = record_scenario(scenario)
    disk = Disk(recorded, folder)
    for crash in spread(RESUMED, recorded.crashes(FEW)):
        disk.go_on(crash)


@pytest.mark.full
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_F5_the_run_goes_on_to_the_same_bits_from_many_states(
    scenario: Scenario, record_scenario: RecordScenario, folder: Path
) -> None:
    recorded = record_scenario(scenario)
    disk = Disk(recorded, folder)
    for crash in spread(RESUMED_IN_FULL, recorded.crashes(FEW)):
        disk.go_on(crash)


def without_sync(pattern: str) -> Fault:
    """Leave out the fsync of files and folders whose paths match."""

    def plant(calls: Sequence[Call]) -> list[Call]:
        return [
            call for call in calls if call.name != "sync" or not re.fullmatch(pattern, call.path)
        ]

    return plant


def names_checkpoint(call: Call) -> bool:
    return call.name == "rename" and re.fullmatch(f"{RUN}/checkpoint-.*", call.other) is not None


def named_first(calls: Sequence[Call]) -> list[Call]:
    """Give each checkpoint its name before its files are synced."""
    found: list[Call] = []
    held: list[Call] = []
    for call in calls:
        is_content = call.name == "sync" and ".partial" in call.path
        (held if is_content else found).append(call)
        if names_checkpoint(call):
            found += held
            held = []
    return found


def removed_first(calls: Sequence[Call]) -> list[Call]:
    """Remove old checkpoints before the new one has its name."""
    found: list[Call] = []
    removals: list[Call] = []
    for call in reversed(calls):
        if call.name == "open" and re.match(rf"{RUN}/(checkpoint-|\..*\.removed)", call.path):
            # Reads what may then be gone.
            continue
        (removals if ".removed" in call.path + call.other else found).append(call)
        if names_checkpoint(call):
            found += removals
            removals = []
    return found[::-1]


def removed_at_once(calls: Sequence[Call]) -> list[Call]:
    """Remove the files of old checkpoints before their hidden names are durable."""
    found: list[Call] = []
    for call in calls:
        is_sync = call.name == "sync" and call.path == str(RUN)
        if not (is_sync and found[-2].other.endswith(".removed")):
            found.append(call)
    return found


CONTENT = rf"{RUN}/\.checkpoint-[0-9]+\.partial"
# Change of the recorded calls, and part of a problem that is found then.
FAULTS: dict[str, tuple[Fault, str]] = {
    "parameters are not synced": (without_sync(rf"{CONTENT}/parameters.*"), "parameters"),
    "optimizer states are not synced": (without_sync(rf"{CONTENT}/optimizer.*"), "optimizer"),
    "the manifest is not synced": (without_sync(rf"{CONTENT}/manifest.json"), "manifest"),
    "the checkpoint's folder is not synced": (without_sync(CONTENT), "no such file"),
    "the run's folder is not synced": (without_sync(f"{RUN}"), "is found"),
    "the folder of runs is not synced": (without_sync("runs"), "there is no checkpoint"),
    "the current folder is not synced": (without_sync(""), "there is no checkpoint"),
    "metrics are not synced": (without_sync(f"{RUN}/metrics.jsonl"), "metrics.jsonl lacks"),
    "times are not synced": (without_sync(f"{RUN}/timing.jsonl"), "timing.jsonl lacks"),
    "the config is not synced": (without_sync(rf"{RUN}/\.config.*"), "config.yaml"),
    "the summary is not synced": (without_sync(rf"{RUN}/\.summary.*"), "summary.json"),
    "a checkpoint is named before it is synced": (named_first, "cannot use"),
    "an old checkpoint is removed first": (removed_first, "is found"),
    "an old checkpoint is removed at once": (removed_at_once, "no such file"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_F5_a_planted_fault_is_found(
    name: str, record_scenario: RecordScenario, folder: Path
) -> None:
    recorded = record_scenario(keeping_one)
    fault, expected = FAULTS[name]
    faulty = replace(recorded, calls=fault(recorded.calls))
    assert faulty.calls != recorded.calls
    disk = Disk(faulty, folder)
    # Late states miss most.
    assert any(expected in disk.problem(crash) for crash in reversed(faulty.crashes(0)))
