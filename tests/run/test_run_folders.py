"""Files of a run if another run exists, the disk is full, or the process is killed."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from commands import MXRUN, digests, mxrun, refused, result, succeeded
from layer_configs import classifier, config_text
from training import json_lines

from mxrun.commands.train import train
from mxrun.options.train import TrainOptions
from mxrun.train.replay import NullObserver

SHORT = ("train", "digits_lenet", "train.epochs=1", "threads=1")


def test_a_second_run_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    run = tmp_path / result(*SHORT, cwd=tmp_path)["run_dir"]
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    text = refused(*SHORT, "seed=1", cwd=tmp_path)
    assert "exists already" in text
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


def complete_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints under their final names; each must be complete."""
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
    """A limit on file sizes simulates a full disk: small files fit, parameters do not."""

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
    assert complete_checkpoints(run) == []
    assert not (run / "summary.json").exists()
    result(*SHORT, "--overwrite", cwd=tmp_path)
    assert len(complete_checkpoints(run)) == 1


@pytest.mark.parametrize("wait", [0.0, 0.02, 0.05])
def test_a_killed_run_leaves_no_broken_checkpoint(wait: float, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*MXRUN, *SHORT], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    run = tmp_path / "runs/digits_lenet"
    # Killed from the end of its only epoch on: while the checkpoint is written or just after.
    metrics = run / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None or metrics.exists()
        time.sleep(0.001)
    time.sleep(wait)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(complete_checkpoints(run)) <= 1
    for line in json_lines(run / "metrics.jsonl"):
        assert line["epoch"] == 1
    held = "exists already" if (run / "summary.json").exists() else "holds an unfinished run"
    assert held in refused(*SHORT, cwd=tmp_path)
    summary = result(*SHORT, "--overwrite", cwd=tmp_path)
    assert len(complete_checkpoints(tmp_path / summary["run_dir"])) == 1
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
    assert len(complete_checkpoints(run)) <= 4


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    done = mxrun(*SHORT, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "cannot write runs" in done.stderr


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_two_processes_do_not_write_one_run(option: str, tmp_path: Path) -> None:
    run = tmp_path / "runs/digits_lenet"
    long = ("train", "digits_lenet", "train.epochs=100000", "threads=1")
    with subprocess.Popen(
        [*MXRUN, *long], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while not (run / "metrics.jsonl").exists():
            assert process.poll() is None
            time.sleep(0.01)
        text = refused(*long, option, cwd=tmp_path)
        assert "another process is writing the run in runs/digits_lenet" in text
        assert f"process {process.pid}" in text
        process.kill()
    # The process's lock ends with it.
    succeeded(mxrun(*long[:2], "threads=1", "train.epochs=1", "--overwrite", cwd=tmp_path))
    assert not (run / ".lock").exists()


IMAGES = config_text(
    classifier(2),
    name="images",
    settings="threads: 1\n",
    inputs="{data: [3, 4, 4], label: []}",
    data="""\
data:
  batch_size: 4
  train: {dataset: image_folder, split: all, path: images}
""",
)


def image_network(folder: Path, seed: int = 0) -> None:
    """Write a config of a network on images in folders, and images of one size in bytes."""
    draw = np.random.default_rng(seed)
    for name in ("a", "b"):
        (folder / "images" / name).mkdir(parents=True, exist_ok=True)
        for number in range(8):
            pixels = draw.integers(0, 256, 48, dtype=np.uint8).tobytes()
            (folder / f"images/{name}/{number}.ppm").write_bytes(b"P6 4 4 255\n" + pixels)
    (folder / "net.yaml").write_text(IMAGES)


def test_a_run_is_replaced_only_by_one_that_can_begin(tmp_path: Path) -> None:
    image_network(tmp_path)
    result("train", "net.yaml", cwd=tmp_path)
    before = digests(tmp_path / "runs/images")
    for path in (tmp_path / "images").rglob("*.ppm"):
        path.write_bytes(b"P6 4 4 255\n")
    assert ".ppm" in refused("train", "net.yaml", "--overwrite", cwd=tmp_path)
    assert digests(tmp_path / "runs/images") == before
    assert (tmp_path / "runs/images/summary.json").exists()


def test_other_images_of_the_same_size_are_other_records(tmp_path: Path) -> None:
    image_network(tmp_path)
    result("train", "net.yaml", cwd=tmp_path)
    image_network(tmp_path)
    assert "already finished" in mxrun("train", "net.yaml", "--resume", cwd=tmp_path).stderr
    image_network(tmp_path, seed=1)
    text = refused("train", "net.yaml", "--resume", cwd=tmp_path)
    assert "data.train: its records have changed" in text


def test_a_run_that_is_over_needs_its_data_no_more(tmp_path: Path) -> None:
    """The images are removed while the last epoch's checkpoint is written."""
    image_network(tmp_path)

    class Removing(NullObserver):
        def epoch_done(self, event: object) -> None:
            shutil.rmtree(tmp_path / "images")

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        trained = train(TrainOptions(config="net.yaml"), Removing())
    memory = trained.summary.memory
    assert memory.touched_bytes == memory.planned_bytes
    assert (tmp_path / "runs/images/summary.json").exists()
