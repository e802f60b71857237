"""Saves on failing disks: earlier checkpoints remain, and one error gives the cause."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest
from commands import MXRUN, digests, python_output, result
from preloaded import SUPPORT, compile_library

from mxrun.base.interval import Interval
from mxrun.train.checkpoint_manager import CheckpointManager, Policy
from mxrun.train.observer import EpochDone
from mxrun.train.progress import Progress
from mxrun.train.run_directory import RunDirectory
from mxrun.train.saver import RunSaver

pytestmark = pytest.mark.commands

SHORT = ("train", "digits_lenet", "threads=1", "train.epochs=3", "train.checkpoint.keep=1")


@pytest.fixture(scope="module")
def failing_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("failing"), "failing_files")


def test_F5_every_file_operation_fails_once(failing_files: Path, tmp_path: Path) -> None:
    """No space, a device error, a short write with and without space for the rest.

    The script asserts after each failure: one error that names the path, a complete newest
    checkpoint, no partial file after the next start, and the same files once the failed action is
    repeated.
    """
    env = {**os.environ, "LD_PRELOAD": str(failing_files)}
    script = SUPPORT / "failing_saves.py"
    report = json.loads(python_output(script, tmp_path / "run", env=env))
    assert report.keys() == {"end_of_epoch", "beside_steps", "save_again", "go_on"}
    for action in report.values():
        assert action["operations"] >= 20
        assert {"open", "write", "fsync", "rename", "unlink"} <= set(action["failed"])
        assert action["reported"] + action["harmless"] == 4 * action["operations"]
        assert action["reported"] > 2 * action["operations"]
    assert "mkdir" in report["end_of_epoch"]["failed"]


def in_full_file_system(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the shell in a file system of 180 KiB that only it sees."""
    mount = f"mount -t tmpfs -o size=180k none {shlex.quote(str(folder))}"
    command = f"set -e; {mount}; cd {shlex.quote(str(folder))}; {script}"
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare to mount a small file system with")
    probe = subprocess.run([unshare, "-rm", "sh", "-c", mount], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("this system lets no process mount a file system of its own")
    return subprocess.run(
        [unshare, "-rm", "sh", "-c", command],
        capture_output=True,
        text=True,
        env={**os.environ, "MXRUN_DEBUG": "0"},
        check=False,
    )


def test_F5_a_full_file_system(tmp_path: Path) -> None:
    """The file system has space for a checkpoint and a half: the second save fails. With more
    space, the run resumes from the first checkpoint.
    """
    small, kept, whole = (tmp_path / name for name in ("small", "kept", "whole"))
    for folder in (small, kept, whole):
        folder.mkdir()
    result(*SHORT, cwd=whole)
    train = shlex.join([*MXRUN, *SHORT, "--json"])
    script = f"""
    set +e
    {train}; echo $? >{kept}/first
    cp -r runs {kept}/failed
    mount -o remount,size=4m {small}
    {train} --resume >{kept}/summary; echo $? >{kept}/second
    cp -r runs {kept}/runs
    """
    done = in_full_file_system(small, script)
    assert (kept / "first").read_text() == "2\n", done.stderr
    assert "Traceback" not in done.stderr
    problem = "cannot write runs/digits_lenet/checkpoint-46: no space left on device"
    assert done.stderr.count("cannot write") == done.stderr.count(problem) == 1
    left = sorted(path.name for path in (kept / "failed/digits_lenet").iterdir())
    assert left == ["checkpoint-23", "config.yaml", "metrics.jsonl", "timing.jsonl"]
    assert (kept / "second").read_text() == "0\n", done.stderr
    assert json.loads((kept / "summary").read_text())["resumed_from"] == 23
    assert digests(kept / "runs/digits_lenet") == digests(whole / "runs/digits_lenet")


def test_an_evaluation_that_is_no_number_is_told_once(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", "name: run\n", False)
    keeper = CheckpointManager(run.path, Policy(Interval(9, "epochs"), keep=1))
    said: list[str] = []

    def snapshot(progress: Progress, due: bool) -> NoReturn:
        raise AssertionError("nothing is due")

    saver = RunSaver(run, keeper, snapshot, None, said.append)
    for epoch, loss in enumerate((0.5, math.nan, math.inf), 1):
        done = EpochDone(epoch, epoch, 0.1, {"loss": 1.0}, {"loss": loss}, 64, 1.0, seconds=1.0)
        saver.after_epoch(done, Progress(step=epoch, epoch=epoch + 1), improved=False)
    assert said == ["epoch 2: loss of the evaluation is nan"]
