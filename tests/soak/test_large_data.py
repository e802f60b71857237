"""Data far larger than the memory that a run may have."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import HANG_S, MXRUN
from PIL import Image

pytestmark = pytest.mark.soak

RECORDS, SIDE, CLASSES = 24_000, 96, 4
# Less than half of the images' bytes, including Python and its libraries.
LIMIT = 300 << 20
CONFIG = f"""\
name: large
threads: 1
network:
  inputs: {{data: [3, {SIDE}, {SIDE}], label: []}}
  layers:
    - Pooling: {{pool_type: avg, kernel: [8, 8], stride: [8, 8]}}
    - FullyConnected: {{num_hidden: {CLASSES}}}
    - SoftmaxOutput: {{name: softmax, label: label}}
data:
  batch_size: 64
  workers: 4
  train: {{dataset: image_folder, path: images, split: all, shuffle: true, transforms: [flip]}}
train:
  epochs: 2
  optimizer: {{sgd: {{lr: 0.1}}}}
"""


def write_images(folder: Path) -> None:
    """Images whose class is their brightness, in folders of the classes."""
    for label in range(CLASSES):
        (folder / str(label)).mkdir(parents=True)
    stripes = np.arange(SIDE, dtype=np.uint8)[:, None, None]
    for number in range(RECORDS):
        label = number % CLASSES
        pixels = np.empty((SIDE, SIDE, 3), np.uint8)
        pixels[...] = stripes // 8 + 60 * label + number % 7
        Image.fromarray(pixels).save(folder / str(label) / f"{number}.bmp")


def test_images_of_more_than_twice_the_memory_are_learned(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    write_images(tmp_path / "images")
    (tmp_path / "net.yaml").write_text(CONFIG)
    done = subprocess.run(
        [*MXRUN, "train", "net.yaml", "--json"],
        cwd=tmp_path,
        env={**os.environ, "MXRUN_DEBUG": "0"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT)),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    pixels = RECORDS * SIDE * SIDE * 3
    peak = summary["memory"]["rss_peak_bytes"]
    record_property("records", RECORDS)
    record_property("MiB of pixels", pixels >> 20)
    record_property("MiB of memory allowed", LIMIT >> 20)
    record_property("MiB resident at the peak", peak >> 20)
    assert summary["steps"] == 2 * RECORDS // 64
    assert 2 * peak < pixels
