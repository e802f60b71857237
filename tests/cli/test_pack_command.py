"""`mxrun pack`: its output, errors and interruptions, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import HANG_S, MXRUN, mxrun, on_terminal, refused, result, succeeded
from photos import damage, write_photos
from PIL import Image

# More records than are packed between two commits.
COUNT, BLOCKED = 600, 560


def test_a_folder_is_packed_and_trained_on(tmp_path: Path) -> None:
    folder = write_photos(tmp_path)
    text = succeeded(mxrun("pack", "photos", "photos.rec", cwd=folder)).stdout
    assert "10 records" in text
    assert 'train: {dataset: recordio, path: "photos.rec"}' in text
    config = (folder / "photos.yaml").read_text()
    config = config.replace("image_folder, path: photos", "recordio, path: photos.rec")
    (folder / "packed.yaml").write_text(config.replace("image_folder", "recordio"))
    report = result("datasets", "stats", "packed.yaml", cwd=folder)
    assert report["sections"]["train"]["classes"] == {"blue": 5, "red": 5}
    assert "photos.rec exists already" in refused("pack", "photos", "photos.rec", cwd=folder)


def test_configs_and_lists_are_packed(tmp_path: Path) -> None:
    folder = write_photos(tmp_path)
    rows = "".join(
        f"photos/{kind}/{at}.png,{kind}\n" for at in range(5) for kind in ("red", "blue")
    )
    (folder / "list.csv").write_text(rows)
    listed = result("pack", "list.csv", "list.rec", cwd=folder)
    assert (listed["records"], listed["options"]["encoding"]) == (10, "keep")
    arguments = ("digits_lenet", "digits.tar", "--split", "eval", "--shards", "2")
    digits = result("pack", *arguments, cwd=folder)
    assert (digits["records"], digits["options"]["encoding"]) == (359, "png")
    assert digits["config"] == '{dataset: webdataset, path: "digits-*.tar"}'
    assert len(digits["files"]) == 2
    small = result("pack", "photos.yaml", "small.rec", "--resize", "4", cwd=folder)
    assert small["options"]["encoding"] == "jpeg"


def test_damaged_images_are_listed(tmp_path: Path) -> None:
    folder = write_photos(tmp_path)
    damage(folder)
    assert "blue/1.png" in refused("pack", "photos", "a.rec", cwd=folder)
    skips = ("pack", "photos", "a.rec", "--on-bad-record", "skip")
    done = succeeded(mxrun(*skips, cwd=folder))
    assert "2 records left out" in done.stdout
    assert "red/3.png" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("photos", "out"), "--format rec or tar"),
        (("photos", "out.rec", "--format", "tar"), "does not fit"),
        (("photos", "out.rec", "--encoding", "keep", "--resize", "8"), "--resize changes them"),
        (("photos", "out.rec", "--encoding", "png", "--quality", "8"), "--quality is for JPEG"),
        (("photos", "out.rec", "--shards", "2", "--shard-size", "1 KiB"), "give one of them"),
        (("photos", "out.rec", "--shard-size", "many"), "is not a size"),
        (("photos", "out.rec", "--channels", "2"), "neither 1 (grey) nor 3"),
        (("photos", "out.rec", "--split", "val"), "no folder for the split 'val'"),
        (("photos", "out.rec", "train.epochs=2"), "KEY=VALUE changes a config"),
        (("nowhere", "out.rec"), "no such file or folder"),
        (("photos.yaml", "out.rec", "--split", "test"), "no data.test"),
        (("mlp_regression", "out.rec"), "are not images"),
    ],
)
def test_wrong_requests_are_the_users(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    folder = write_photos(tmp_path)
    assert problem in refused("pack", *arguments, cwd=folder)
    assert not [name for name in os.listdir(folder) if "out" in name]


def test_progress_and_result_on_a_terminal(tmp_path: Path) -> None:
    code, shown = on_terminal("pack", "photos", "a.tar", cwd=write_photos(tmp_path))
    assert code == 0
    assert "a.tar" in shown


# A data set of images, one of which comes from a pipe.
WAITING = f"""
from pathlib import Path

import numpy as np

from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.dataset.registry import register
from mxrun.io.images.encoded import EncodedImage


def record(index):
    path = Path("images", f"{{index:03}}.png")
    return EncodedImage(path.read_bytes(), str(path))


@register("waiting", Parameters, ("all",), lazy=True)
def read(options, split, inputs):
    labels = Field(np.zeros({COUNT}, np.int32))
    images = LazyField.images(record, {COUNT}, (1, None, None))
    return Dataset("waiting", {{"label": labels}}, (), split, lazy={{"data": images}})
"""
WAITING_CONFIG = """
name: waiting
plugins: [waiting.py]
network:
  inputs: {data: [1, 3, 3], label: []}
  layers: [{FullyConnected: {num_hidden: 2}}, SoftmaxOutput: {label: label}]
data: {batch_size: 1, train: {dataset: waiting}}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_pack_continues(tmp_path: Path, number: signal.Signals) -> None:
    """A pack that waits for an image, which comes from a pipe, is interrupted."""
    (tmp_path / "waiting.py").write_text(WAITING)
    (tmp_path / "waiting.yaml").write_text(WAITING_CONFIG)
    images = tmp_path / "images"
    images.mkdir()
    for at in range(COUNT):
        Image.new("L", (3, 3), at % 256).save(images / f"{at:03}.png")
    blocked = images / f"{BLOCKED}.png"
    content = blocked.read_bytes()
    blocked.unlink()
    os.mkfifo(blocked)
    arguments = ("--encoding", "keep", "--allow-plugins")
    command = [*MXRUN, "pack", "waiting.yaml", "a.rec", *arguments, "--workers", "2", "--json"]
    journal = tmp_path / ".a.rec.packing" / "journal"
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        while not journal.exists() or journal.read_bytes().count(b"\n") < 2:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        if number is signal.SIGINT:
            feed(process, blocked, content)
        _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == (75 if number is signal.SIGINT else -number), errors
    assert ("the same command continues" in errors) == (number is signal.SIGINT)
    assert not (tmp_path / "a.rec").exists()
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        feed(process, blocked, content)
        output, _ = process.communicate(timeout=HANG_S)
    report = json.loads(output)
    assert report["records"] == COUNT
    assert 512 <= report["resumed"] < COUNT
    blocked.unlink()
    blocked.write_bytes(content)
    whole = result("pack", "waiting.yaml", "b/a.rec", *arguments, cwd=tmp_path)
    assert whole["sha256"] == report["sha256"]


def feed(process: subprocess.Popen[str], pipe: Path, content: bytes) -> None:
    """Write into a pipe when the process reads from it, unless it ends before that."""
    while process.poll() is None:
        time.sleep(0.01)
        with contextlib.suppress(OSError):
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, content)
            os.close(descriptor)
            return
