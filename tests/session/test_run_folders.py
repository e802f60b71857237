"""What a run leaves behind when another is there, the disk is full, or it is killed."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import MXRUN, digests, mxrun, refused, result

SHORT = ("train", "digits_lenet", "train.epochs=1", "threads=1")


def test_a_second_run_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    run = tmp_path / result(*SHORT, cwd=tmp_path)["run_dir"]
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    text = refused(*SHORT, "seed=1", cwd=tmp_path)
    assert "holds another run" in text
    assert "--overwrite" in text
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    result(*SHORT, "seed=1", "train.epochs=2", "--overwrite", cwd=tmp_path)
    assert sorted(path.name for path in run.iterdir()) == [
        "checkpoint-23",
        "checkpoint-46",
        "config.yaml",
        "metrics.jsonl",
        "summary.json",
        "timing.jsonl",
    ]
    assert digests(run)["config.yaml"] != hashlib.sha256(before[run / "config.yaml"]).hexdigest()


def whole_checkpoints(run: Path) -> list[Path]:
    """The checkpoints under their final names; each must be whole."""
    found = []
    for folder in run.iterdir():
        if folder.name.startswith("checkpoint-"):
            manifest = json.loads((folder / "manifest.json").read_text())
            for name, entry in manifest["files"].items():
                content = (folder / name).read_bytes()
                assert entry["sha256"] == hashlib.sha256(content).hexdigest()
            found.append(folder)
    return found


def test_a_full_disk_is_one_error_and_no_checkpoint(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: small files fit, parameters do not."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    # Compiled loops are in the cache already, which the limit would keep from being written.
    result(*SHORT, "name=first", cwd=tmp_path)
    done = subprocess.run(
        [*MXRUN, *SHORT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=limited,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("cannot write") == 1
    assert "checkpoint-23" in done.stderr
    run = tmp_path / "runs/digits_lenet"
    assert whole_checkpoints(run) == []
    assert not (run / "summary.json").exists()
    result(*SHORT, "--overwrite", cwd=tmp_path)
    assert len(whole_checkpoints(run)) == 1


@pytest.mark.parametrize("wait", [0.0, 0.02, 0.05])
def test_a_killed_run_leaves_no_broken_checkpoint(wait: float, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*MXRUN, *SHORT], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    run = tmp_path / "runs/digits_lenet"
    # Killed from the end of its only epoch on: while the checkpoint is written or just after.
    while not (run / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.001)
    time.sleep(wait)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(whole_checkpoints(run)) <= 1
    for line in (run / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line)["epoch"] == 1
    held = "another run" if (run / "summary.json").exists() else "an unfinished run"
    assert f"holds {held}" in refused(*SHORT, cwd=tmp_path)
    summary = result(*SHORT, "--overwrite", cwd=tmp_path)
    assert len(whole_checkpoints(tmp_path / summary["run_dir"])) == 1
    assert not [path for path in run.iterdir() if path.name.endswith(".partial")]


def test_a_run_killed_while_training_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*MXRUN, "train", "digits_lenet", "train.epochs=100000", "threads=1"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    run = tmp_path / "runs/digits_lenet"
    while not (run / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (run / "summary.json").exists()
    assert len(whole_checkpoints(run)) <= 4


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    done = mxrun(*SHORT, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "cannot write runs" in done.stderr
