"""`mxrun launch`: ranks that are restarted when one of them is lost."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import MXRUN, digests, mxrun, refused, succeeded
from hang import HANG_S
from interrupted_runs import CONFIG
from rank_jobs import MPIRUN

pytestmark = pytest.mark.skipif(
    not MPIRUN.exists(), reason="needs mpirun beside Python: pip install mpich"
)

DYING = '''\
"""Plugin that ends rank 1 before steps 30 and 31, once each."""

import os
import signal
import time
from pathlib import Path

from mxrun.base.launcher import launched_ranks
from mxrun.runtime.mpi import all_ranks
from mxrun.train.loop import TrainingLoop

take = TrainingLoop.step


def step(loop, number, parts):
    mark = Path(f"died-{number}")
    is_next = launched_ranks() > 1 and all_ranks().rank == 1
    if number in (30, 31) and is_next and not mark.exists():
        mark.touch()
        while not Path("runs/net/checkpoint-28").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return take(loop, number, parts)


TrainingLoop.step = step
'''


@pytest.fixture(autouse=True)
def _config(empty_folder: Path) -> None:
    Path("net.yaml").write_text(CONFIG.replace("name: killed", "name: net"))
    Path("dying.py").write_text(DYING)


def learned(run: str) -> dict[str, str]:
    """Return the digests of a run's arrays and metrics."""
    found = digests(Path(run))
    return {name: each for name, each in found.items() if name.endswith(("tensors", "jsonl"))}


def test_F5_a_lost_rank_is_restarted_and_then_with_fewer_to_the_same_bits() -> None:
    words = ("-n", "4", "--max-restarts", "2", "--min-ranks", "2", "plugins=[dying.py]")
    done = mxrun("launch", "net.yaml", *words, "train.checkpoint.every=28 steps")
    assert done.returncode == 0, done.stderr
    assert "restart 1 of 2 with 4 ranks from step 28" in done.stderr
    # No further checkpoint was written.
    assert "restart 2 of 2 with 2 ranks from step 28" in done.stderr
    words = ("name=whole", "batch_parts=4", "train.checkpoint.every=28 steps")
    succeeded(mxrun("train", "net.yaml", *words))
    assert learned("runs/net") == learned("runs/whole")


def test_F5_a_signal_to_the_launcher_stops_all_ranks_with_their_state_saved() -> None:
    command = [*MXRUN, "launch", "net.yaml", "-n", "2", "train.epochs=2000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + HANG_S
        while not Path("runs/net/checkpoint-7").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 75, errors
    assert errors.count("saved in runs/net") == 1


def test_a_number_of_ranks_that_does_not_fit_is_refused_before_any_is_started() -> None:
    assert "3 ranks cannot share 4 batch parts" in refused("launch", "net.yaml", "-n", "3")
    assert not Path("runs").exists()
