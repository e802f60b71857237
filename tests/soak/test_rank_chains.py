"""Ranks: the bits of one process on networks of all kinds, and through kills and signals."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import MXRUN, digests, mxrun, succeeded
from hang import HANG_S
from interrupted_runs import CONFIG
from rank_jobs import MPIRUN, mxrun_on, rank_words

_has_mpirun = pytest.mark.skipif(
    not MPIRUN.exists(), reason="needs mpirun beside Python: pip install mpich"
)
pytestmark = [pytest.mark.soak, _has_mpirun]

DISTRIBUTED = "kvstore=dist_sync"
STEPS = 200
SYNTHETIC = ("data.train={dataset: synthetic}", "data.eval=null", "train.metrics=[]")
NETWORKS = {
    "digits_lenet": (),
    "resnet20_cifar10": (*SYNTHETIC, "data.batch_size=16", "train.checkpoint.best=null"),
    "gpt_tiny": (),
    "lstm_tiny": (),
}
KILLS, SIGNALS = 40, 20


def learned(run: Path) -> dict[str, str]:
    """Return the digests of a run's arrays and metrics."""
    found = digests(run)
    return {name: each for name, each in found.items() if name.endswith(("tensors", "jsonl"))}


@pytest.mark.parametrize("network", NETWORKS)
def test_ranks_give_the_bits_of_one_process(network: str, empty_folder: Path) -> None:
    length = ("train.epochs=null", f"train.max_steps={STEPS}", *NETWORKS[network])
    succeeded(mxrun("train", network, *length, "name=one", "batch_parts=4"))
    for ranks in (2, 4):
        succeeded(mxrun_on(ranks, "train", network, *length, f"name=on{ranks}", DISTRIBUTED))
        assert learned(Path(f"runs/on{ranks}")) == learned(Path("runs/one"))


@pytest.mark.parametrize(("number", "count"), [(signal.SIGKILL, KILLS), (signal.SIGTERM, SIGNALS)])
def test_a_run_ended_again_and_again_is_the_same_run(
    number: signal.Signals,
    count: int,
    empty_folder: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Random ranks are ended at random moments, and as many as 1, 2 or 4 go on."""
    text = CONFIG.replace("name: killed", "name: net").replace("epochs: 3", "epochs: 60")
    Path("net.yaml").write_text(text)
    succeeded(mxrun("train", "net.yaml", "name=whole", "batch_parts=4"))
    draw, ended, steps = random.Random(int(number)), 0, set()
    code = -1
    while code != 0:
        ranks = draw.choice((1, 2, 4))
        command = [*MXRUN, "train", "net.yaml", "--resume", DISTRIBUTED, "threads=1"]
        environment = {**os.environ, "MXRUN_DEBUG": "0"}
        with subprocess.Popen(
            rank_words((ranks, command)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            if ended < count:
                before = time.monotonic() + draw.uniform(1.5, 5.0)
                while process.poll() is None and time.monotonic() < before:
                    time.sleep(0.01)
                found = [pid for pid in _children(process.pid) if _is_rank(pid)]
                if found and process.poll() is None:
                    os.kill(draw.choice(found), number)
                    ended += 1
            _, errors = process.communicate(timeout=HANG_S)
        code = process.returncode
        # Before its handlers are there, a signal ends a rank at once.
        assert code in (0, 75, int(number)), errors
        steps.update(path.name for path in Path("runs/net").glob("checkpoint-*"))
    assert learned(Path("runs/net")) == learned(Path("runs/whole"))
    record_property(f"times {number.name}", ended)
    record_property("checkpoints seen", len(steps))


def _children(pid: int) -> list[int]:
    """Return the processes below one, as the system lists them now."""
    found: list[int] = []
    for path in Path("/proc").glob(f"{pid}/task/*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *_children(child)]
    return found


def _is_rank(pid: int) -> bool:
    """Return whether a process is a rank of mxrun."""
    try:
        return b"mxrun" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
