"""Records that are unreadable or never arrive end a run; the trained state is saved."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import HANG_S, MXRUN
from layer_configs import config_file
from PIL import Image

from mxrun import library
from mxrun.base.errors import Stopped, UserError
from mxrun.commands import train as command
from mxrun.commands.runs import compare_runs, list_runs
from mxrun.commands.train import TrainingResult
from mxrun.datasets import image_folder
from mxrun.datasets.image_folder import ImageFolderOptions
from mxrun.device.cpu.pool import available_cores
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.registry import DATASETS, register
from mxrun.io.images.encoded import EncodedImage
from mxrun.options.runs import RunsOptions
from mxrun.options.train import TrainOptions
from mxrun.train.checkpoint import checkpoint_folder, load_checkpoint
from mxrun.train.checkpoint_manager import saved_steps
from mxrun.train.observer import EpochDone
from mxrun.train.replay import NullObserver

RUN = Path("runs/net")
TWO = "context=[cpu:0, cpu:1]"
two_cores = pytest.mark.skipif(available_cores() < 2, reason="two CPU contexts need two cores")
# Images that are resized are read in every epoch. Four batches an epoch; where two make a step, the
# last record is in a step's second part.
CONFIG = """\
name: net
threads: 1
network:
  inputs: {data: [1, 4, 4], label: []}
  layers:
    - BatchNorm: {name: bn}
    - FullyConnected: {name: fc, num_hidden: 2}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 4
  prefetch: 2
  train: {dataset: image_folder, path: train, split: all, transforms: [{resize: {size: 4}}]}
  eval: {dataset: image_folder, path: eval, split: all, transforms: [{resize: {size: 4}}]}
train:
  epochs: 4
  optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
  checkpoint: {every: 10 minutes}
"""


def image(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = (np.arange(16) * (3 * number + 5) % 256).astype(np.uint8).reshape(4, 4)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def config(empty_folder: Path) -> Path:
    """Write a config and a folder of images: 16 for training, the last train/b/7.png, and 16
    others.
    """
    for part in ("train", "eval"):
        for number in range(16):
            image(empty_folder / part / "ab"[number // 8] / f"{number % 8}.png", number)
    return config_file(empty_folder, CONFIG)


@pytest.fixture
def waiting_folder(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Register an `image_folder` that reads pipes, too; returns the overrides that select it.

    A pipe without a writer simulates a disk that does not respond.
    """
    library.load()
    monkeypatch.setattr(DATASETS, "_entries", dict(DATASETS._entries))

    def read(options: ImageFolderOptions, split: str, inputs: Inputs) -> Dataset:
        dataset = image_folder.read(options, split, inputs)
        data = dataset.lazy["data"]

        def read_file(index: int) -> EncodedImage:
            file = str(data.source(index))
            return EncodedImage(Path(file).read_bytes(), file)

        return replace(dataset, lazy={"data": replace(data, read=read_file)})

    find_split = image_folder.find_split
    register("waiting_folder", ImageFolderOptions, (), lazy=True, find_split=find_split)(read)
    return tuple(f"data.{section}.dataset=waiting_folder" for section in ("train", "eval"))


class After(NullObserver):
    """Observer with one action after an epoch, and another when a long wait is reported."""

    def __init__(self, epoch: int, change: Callable[[], None]) -> None:
        self._epoch, self._change = epoch, change
        self.notes: list[str] = []

    def epoch_done(self, event: EpochDone) -> None:
        """Run the action after its epoch."""
        if event.epoch == self._epoch:
            self._change()

    def note(self, text: str) -> None:
        """Record a note; stop the run if it waits."""
        self.notes.append(text)
        if text.startswith("waiting for"):
            os.kill(os.getpid(), signal.SIGTERM)


def train(
    config: Path, observer: NullObserver, *overrides: str, **existing: bool
) -> TrainingResult:
    """Train; a resumed run may have changed."""
    changes = existing.get("resume", False)
    options = TrainOptions(
        config=str(config), overrides=overrides, allow_changes=changes, **existing
    )
    return command.train(options, observer)


def final_state(config: Path, *overrides: str, **existing: bool) -> dict[str, bytes]:
    """Train to the end; return the bytes of all tensors, and the evaluation."""
    train(config, NullObserver(), *overrides, **existing)
    checkpoint = load_checkpoint(checkpoint_folder(RUN, saved_steps(RUN)[-1]))
    groups = (checkpoint.parameters, checkpoint.optimizer, checkpoint.auxiliary)
    found = {name: array.tobytes() for group in groups for name, array in group.items()}
    return found | {"evaluation": repr(checkpoint.manifest.progress.evaluation).encode()}


@pytest.mark.parametrize(
    ("file", "overrides", "step"),
    [
        ("train/b/7.png", (), 2 * 4 + 3),
        ("train/b/7.png", ("train.accumulate=2",), 2 * 2 + 1),
        ("eval/b/7.png", (), 3 * 4),
        pytest.param("train/b/7.png", (TWO,), 2 * 4 + 3, marks=two_cores),
        pytest.param("train/b/7.png", (TWO, "train.accumulate=2"), 2 * 2 + 1, marks=two_cores),
        pytest.param("eval/b/7.png", (TWO,), 3 * 4, marks=two_cores),
    ],
)
def test_what_was_trained_before_an_unreadable_record_is_saved(config, file, overrides, step):
    whole = final_state(config, *overrides)
    content = Path(file).read_bytes()
    damage = After(2, lambda: Path(file).write_bytes(b"no image"))
    with pytest.raises(UserError) as caught:
        train(config, damage, *overrides, overwrite=True)
    record, end = caught.value.diagnostics
    assert "record 15 of data set 'image_folder'" in record.problem
    assert file in record.problem
    assert f"after step {step}, saved in runs/net" in end.problem
    assert saved_steps(RUN) == [step]
    Path(file).write_bytes(content)
    assert final_state(config, *overrides, resume=True) == whole


def test_a_record_that_is_gone_does_not_prevent_the_saving(config):
    with pytest.raises(UserError, match=r"0\.png: cannot be read"):
        train(config, After(1, Path("train/b/0.png").unlink))
    assert saved_steps(RUN) == [4 + 2]


def test_a_run_that_came_to_nothing_blocks_no_other(config):
    image_file = Path("train/a/1.png")
    content = image_file.read_bytes()
    image_file.write_bytes(b"no image")
    for _ in range(2):
        with pytest.raises(UserError, match="record 1 of") as caught:
            train(config, NullObserver())
        assert caught.value.diagnostics[1].problem.endswith("first step: nothing was saved")
        assert "the same command tries again" in caught.value.diagnostics[1].hint
        # It is listed, and known by its name.
        assert [run["state"] for run in list_runs(RunsOptions())["runs"]] == ["failed"]
        assert compare_runs(RunsOptions(names=("net",)))["runs"][0]["state"] == "failed"
    image_file.write_bytes(content)
    assert train(config, NullObserver()).summary.steps == 16
    with pytest.raises(UserError, match="exists already"):
        train(config, NullObserver())


@pytest.mark.parametrize(
    "words", [(), pytest.param((TWO,), marks=two_cores)], ids=["one context", "two contexts"]
)
@pytest.mark.full
@pytest.mark.parametrize(("file", "step"), [("train/b/7.png", 4 + 3), ("eval/a/0.png", 2 * 4)])
def test_a_run_that_waits_for_a_record_says_so_and_stops_when_asked(
    config, waiting_folder, file, step, words
):
    words += waiting_folder
    os.mkfifo("pipe")
    content = Path(file).read_bytes()
    observer = After(1, lambda: Path("pipe").replace(file))
    with pytest.raises(Stopped, match=f"after step {step} and saved"):
        train(config, observer, *words)
    *_, note = observer.notes
    assert note.startswith("waiting for ")
    assert f"{file}, for " in note
    # The thread that reads is let go.
    os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))
    Path(file).unlink()
    Path(file).write_bytes(content)
    assert train(config, NullObserver(), *words, resume=True).summary.resumed_from == step


def writer_to(pipe: Path, process: subprocess.Popen[str]) -> int:
    """Open the writing end of a pipe once the process reads it, however long that takes."""
    while process.poll() is None:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            # No process has it open.
            if error.errno != errno.ENXIO:
                raise
        time.sleep(0.01)
    raise AssertionError(process.communicate()[1])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -15), (signal.SIGINT, 130)])
def test_a_signal_before_there_is_anything_to_save_ends_the_process(tmp_path, number, code):
    os.mkfifo(tmp_path / "records.npz")
    data = "{batch_size: 4, train: {dataset: npz, path: records.npz}}"
    text = CONFIG[: CONFIG.index("data:\n")] + CONFIG[CONFIG.index("train:\n") :]
    (tmp_path / "net.yaml").write_text(text + f"data: {data}\n")
    command = [*MXRUN, "train", "net.yaml"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    writer = writer_to(tmp_path / "records.npz", process)
    process.send_signal(number)
    errors = process.communicate(timeout=HANG_S)[1]
    os.close(writer)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert not (tmp_path / "runs").exists()
