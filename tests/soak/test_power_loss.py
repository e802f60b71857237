"""Runs resume to the same bits from every state that a loss of power may leave on the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import (
    Disk,
    Scenario,
    Scenarios,
    folder_in_memory,
    fresh,
    keeping_one,
    overwriting,
    resumed,
)

pytestmark = pytest.mark.soak

# Random subsets of changes that are not durable, after each call of a process.
LOADED, RESUMED = 300, 4


@pytest.mark.parametrize("scenario", [fresh, keeping_one, resumed, overwriting])
def test_a_run_goes_on_from_every_state_of_the_disk(
    scenario: Scenario,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    with folder_in_memory() as folder:
        recorded = Scenarios(folder).recorded(scenario)
        (folder / "disk").mkdir()
        monkeypatch.chdir(folder / "disk")
        disk = Disk(recorded, Path.cwd())
        loaded, resumable = recorded.crashes(LOADED), recorded.crashes(RESUMED)
        for crash in loaded:
            assert not disk.problem(crash), crash.call
        for crash in resumable:
            disk.go_on(crash)
        monkeypatch.undo()
    record_property("calls", len(recorded.calls))
    record_property("states loaded", len(loaded))
    record_property("states resumed from", len(resumable))
