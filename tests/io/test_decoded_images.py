"""Decoded images of small data sets are kept: later epochs read no file and have the same bits."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.formats.image_record import pack_image_record
from mxrun.io.formats.recordio import RecordWriter
from mxrun.io.loading.python_transforms import ThreadTransforms
from mxrun.io.loading.rows import BatchRows, ReadsInProgress
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.pipeline import pipeline

COUNT, SIDES = 7, (12, 16)
INPUTS = {"data": TensorSpec((3, *SIDES)), "label": TensorSpec((), "int32")}
RECORDS = np.array([3, 0, 6, 3, 1, 2, 5, 4])
CROPS = [("pad_crop", {"pad": 2}), ("flip", {}), ("normalize", {"mean": 0.5, "std": 0.25})]


def write(path: Path, kind: str, sides: tuple[int, int] = SIDES) -> None:
    random = np.random.default_rng(0)
    with path.open("wb") as stream:
        writer = RecordWriter(stream)
        for number in range(COUNT):
            image = io.BytesIO()
            pixels = random.integers(0, 256, (*sides, 3), np.uint8)
            Image.fromarray(pixels).save(image, kind)
            writer.write(number, pack_image_record(0.0, number, image.getvalue()))


def open_records(path: Path, transforms: list[tuple[str, dict]]) -> Dataset:
    request = request_dataset("recordio", {"path": str(path)}, None)
    steps = [(TRANSFORMS.get(name)(**given), None) for name, given in transforms]
    request = replace(request, pipeline=pipeline(steps))
    return open_datasets({"it": request}, INPUTS)["it"]


def made(rows: BatchRows, epoch: int, records: np.ndarray = RECORDS) -> tuple[bytes, dict, int]:
    """Return the rows of records, their errors, and the bytes that were read."""
    target = {
        name: np.ones((len(records), *spec.shape), spec.dtype) for name, spec in INPUTS.items()
    }
    content = rows.read(records)
    read = rows.reading.taken_bytes()
    errors = rows.write(content, records, np.full(len(records), epoch), target)
    return target["data"].tobytes(), {row: str(error) for row, error in errors.items()}, read


def rows_of(dataset: Dataset) -> BatchRows:
    return BatchRows(dataset, 5, ReadsInProgress(), ThreadTransforms())


@pytest.mark.parametrize("kind", ["jpeg", "png"])
@pytest.mark.parametrize("transforms", [[], CROPS])
def test_D4_kept_images_give_the_rows_of_those_that_are_decoded(tmp_path, kind, transforms):
    write(tmp_path / "a.rec", kind)
    dataset = open_records(tmp_path / "a.rec", transforms)
    rows = rows_of(dataset)
    assert made(rows, 0)[2] > 0
    for epoch in range(3):
        pixels, errors, read = made(rows, epoch)
        assert (errors, read) == ({}, 0)
        assert (pixels, errors) == made(rows_of(dataset), epoch)[:2]
    some = rows_of(dataset)
    made(some, 0, RECORDS[:3])
    assert made(some, 1)[0] == made(rows, 1)[0]


def test_an_image_that_cannot_be_decoded_has_its_error_in_every_epoch(tmp_path):
    write(tmp_path / "a.rec", "jpeg")
    dataset = open_records(tmp_path / "a.rec", [])
    assert dataset.lazy["data"].locate is not None
    content = bytearray((tmp_path / "a.rec").read_bytes())
    place = dataset.lazy["data"].locate(6)
    content[place.offset + 40 : place.offset + 200] = bytes(160)
    (tmp_path / "a.rec").write_bytes(content)
    rows = rows_of(dataset)
    first, second = made(rows, 0), made(rows, 1)
    assert first[1] == second[1]
    assert [*first[1]] == [2]
    assert first[0] == second[0]


def test_images_that_are_resampled_are_decoded_for_each_crop(tmp_path):
    write(tmp_path / "a.rec", "jpeg", (40, 48))
    dataset = open_records(tmp_path / "a.rec", [("resize", {"size": SIDES})])
    rows = rows_of(dataset)
    assert made(rows, 0)[2] == made(rows, 1)[2] > 0


def test_images_of_a_users_own_data_set_are_read_in_every_epoch(tmp_path):
    write(tmp_path / "a.rec", "jpeg")
    dataset = open_records(tmp_path / "a.rec", [])
    column = dataset.lazy["data"]
    own = replace(column, read=lambda number: column.read(number))
    rows = rows_of(replace(dataset, lazy={"data": own}))
    assert made(rows, 0)[2] == made(rows, 1)[2] > 0
