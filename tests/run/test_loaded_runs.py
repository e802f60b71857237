"""Complete runs whose records are read from files and transformed, started as commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import digests, refused, result
from PIL import Image

from mxrun import library
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.request import open_datasets, request_dataset

CONFIG = """\
name: loaded
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Convolution: {num_filter: 8, kernel: [3, 3]}
    - Activation: {act_type: relu}
    - FullyConnected: {num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 64
  train: TRAIN
train: {epochs: 2, optimizer: {sgd: {lr: 0.1}}}
"""
AUGMENTED = """
    dataset: digits
    split: train
    shuffle: true
    transforms: [{pad_crop: {pad: 1}}, {cutout: {size: 2}}, {normalize: {mean: 0.3, std: 0.3}}]
  eval: {dataset: digits, split: test}
"""
IMAGES = """
    dataset: image_folder
    path: images
    split: all
    transforms: [{resize: {size: 8}}, {random_crop: {size: 8}}]
"""


def written(folder: Path, train: str) -> str:
    (folder / "net.yaml").write_text(CONFIG.replace("TRAIN", train.rstrip("\n")))
    return "net.yaml"


def outcome(folder: Path) -> dict[str, str]:
    """Return the digests of the run's results, without the config, which names the workers."""
    kept = (".safetensors", "metrics.jsonl")
    return {name: digest for name, digest in digests(folder).items() if name.endswith(kept)}


def test_D5_a_run_is_the_same_with_one_and_four_workers(tmp_path):
    config = written(tmp_path, AUGMENTED)
    outcomes = []
    for workers, prefetch in ((1, 2), (4, 3)):
        options = (f"data.workers={workers}", f"data.prefetch={prefetch}", f"name=w{workers}")
        summary = result("train", config, *options, cwd=tmp_path)
        assert summary["memory"]["touched_bytes"] == summary["memory"]["planned_bytes"]
        outcomes.append(outcome(tmp_path / "runs" / f"w{workers}"))
    assert outcomes[0] == outcomes[1]
    assert any(name.endswith("parameters.safetensors") for name in outcomes[0])


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A hundred of the bundled digits as images of 9x10 in folders named by their class."""
    library.load()
    inputs = {"data": TensorSpec((1, 8, 8)), "label": TensorSpec((), "int32")}
    digits = open_datasets({"it": request_dataset("digits", {}, "test")}, inputs)["it"]
    for index in range(100):
        pixels = digits.fields["data"].records[index, 0].astype(np.float32) * (255 / 16)
        folder = tmp_path / "images" / str(digits.fields["label"].records[index])
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).resize((10, 9)).save(folder / f"{index}.png")
    return tmp_path


def test_images_in_folders_are_trained_on(images):
    summary = result("train", written(images, IMAGES), "data.workers=2", cwd=images)
    assert summary["steps"] == 4
    assert summary["memory"]["touched_bytes"] == summary["memory"]["planned_bytes"]


def test_a_damaged_image_ends_the_run_with_its_name(images):
    damaged = sorted((images / "images" / "7").iterdir())[0]
    damaged.write_bytes(damaged.read_bytes()[:60])
    message = refused("train", written(images, IMAGES), cwd=images)
    assert f"{damaged}: byte " in message
    assert "record " in message
