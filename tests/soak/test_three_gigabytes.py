"""Three gigabytes of records, in an archive and in RecordIO, under a limit of one gigabyte."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import HANG_S, MXRUN
from numpy.lib import format as npy
from PIL import Image

from mxrun.io.formats.image_record import pack_image_record
from mxrun.io.formats.recordio import RecordWriter

pytestmark = pytest.mark.soak

SIDE, CLASSES, CHUNK = 96, 4, 1000
PIXELS = 3 * SIDE * SIDE
COUNT = 3_000_000_000 // PIXELS // CHUNK * CHUNK + CHUNK
LIMIT = 1_000_000_000
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
  train: {{split: all, shuffle: true, transforms: [flip]}}
train:
  epochs: 1
  optimizer: {{sgd: {{lr: 0.1}}}}
"""
ARCHIVE = ("data.train.dataset=npz", "data.train.path=records.npz")
RECORDS = ("data.train.dataset=recordio", "data.train.path=records.rec")


def chunks() -> Iterator[np.ndarray]:
    """Yield the records in chunks, uint8 [CHUNK, 3, SIDE, SIDE]; the class is their brightness."""
    random = np.random.default_rng(0)
    label = np.arange(CHUNK) % CLASSES
    for _ in range(COUNT // CHUNK):
        noise = random.integers(0, 60, (CHUNK, 3, SIDE, SIDE), np.uint8)
        yield noise + (60 * label).astype(np.uint8)[:, None, None, None]


def write_records(folder: Path) -> None:
    """Write the same records as an archive of arrays, and as RecordIO of lossless images."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (COUNT, 3, SIDE, SIDE)}
    number = 0
    with (
        zipfile.ZipFile(folder / "records.npz", "w", zipfile.ZIP_STORED) as archive,
        (folder / "records.rec").open("wb") as file,
        (folder / "records.idx").open("wb") as index,
    ):
        writer = RecordWriter(file, index)
        with archive.open("data.npy", "w", force_zip64=True) as array:
            npy.write_array_header_1_0(array, header)
            for chunk in chunks():
                array.write(chunk.tobytes())
                for pixels in chunk:
                    stream = io.BytesIO()
                    Image.fromarray(pixels.transpose(1, 2, 0)).save(stream, "BMP")
                    content = stream.getvalue()
                    writer.write(number, pack_image_record(number % CLASSES, number, content))
                    number += 1
        with archive.open("label.npy", "w") as array:
            npy.write_array(array, (np.arange(COUNT) % CLASSES).astype(np.int32))


def train(folder: Path, name: str, overrides: tuple[str, ...], limit: int | None) -> dict[str, Any]:
    """Train, and return the summary and the bytes that depend on the order of records."""
    command = [*MXRUN, "train", "net.yaml", *overrides, f"name={name}", "--json"]

    def restrict() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    environment = {**os.environ, "MXRUN_DEBUG": "0"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        preexec_fn=restrict,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = folder / "runs" / name
    last = max(run.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
    summary: dict[str, Any] = json.loads(done.stdout)
    left = [run / "metrics.jsonl", *sorted(last.glob("*.safetensors"))]
    return {**summary, "left": [path.read_bytes() for path in left]}


def test_three_gigabytes_are_learned_in_one_in_the_order_of_memory(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    write_records(tmp_path)
    (tmp_path / "net.yaml").write_text(CONFIG)
    assert (tmp_path / "records.npz").stat().st_size > 3_000_000_000
    assert (tmp_path / "records.rec").stat().st_size > 3_000_000_000
    record_property("records", COUNT)
    inside = train(tmp_path, "inside", ARCHIVE, None)
    assert inside["memory"]["rss_peak_bytes"] > 3_000_000_000
    mapped = (*ARCHIVE, "data.train.in_memory=false")
    for name, overrides in (("archive", mapped), ("RecordIO", RECORDS)):
        found = train(tmp_path, name, overrides, LIMIT)
        peak = found["memory"]["rss_peak_bytes"]
        record_property(f"MiB resident at the peak of {name}", peak >> 20)
        assert peak < LIMIT
        assert found["left"] == inside["left"], name
