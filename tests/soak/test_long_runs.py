"""A long run needs no more memory, threads or open files at its end than at its start."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from interrupted_runs import EPOCH, Started
from process_usage import usage

pytestmark = pytest.mark.soak

STEPS, WARM, LOOKS = 20_000, 4_000, 8
# Memory that the allocator may still add for the last checkpoint and the longest line of metrics.
GROWTH = 2 << 20


@pytest.mark.parametrize("workers", [1, 4])
def test_20_000_steps_take_no_more_than_the_first(
    workers: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """With random transforms, an evaluation every 22 steps and a checkpoint every 1,000."""
    started = Started(
        tmp_path,
        f"train.epochs={STEPS // EPOCH}",
        "train.checkpoint.every=1000 steps",
        f"data.workers={workers}",
    )
    seen = []
    for look in range(LOOKS):
        while started.step < WARM + look * (STEPS - WARM) // LOOKS:
            assert started.process.poll() is None
            time.sleep(0.1)
        seen.append(usage(started.process.pid))
    code, _, errors = started.end()
    assert code == 0, errors
    assert started.step == STEPS // EPOCH * EPOCH
    resident = [each.resident for each in seen]
    record_property("steps", started.step)
    record_property("KiB more resident", (max(resident) - resident[0]) >> 10)
    record_property("MiB resident", max(resident) >> 20)
    record_property("threads", seen[0].threads)
    assert max(resident) - resident[0] < GROWTH, resident
    assert {each.threads for each in seen} == {seen[0].threads}
    # A file or two is open while a checkpoint is written.
    assert min(each.files for each in seen[LOOKS // 2 :]) <= seen[0].files
