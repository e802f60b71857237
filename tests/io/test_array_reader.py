"""Arrays of many records read at once: the same rows and errors as one record after the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from file_contents import npy

from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.formats.image_record import pack_image_record
from mxrun.io.formats.recordio import RecordWriter
from mxrun.io.formats.tar_shards import TarWriter
from mxrun.io.loading.array_iterator import ArrayIterator
from mxrun.io.loading.cached_columns import with_cached_columns
from mxrun.io.loading.iterator import RecordError
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.rows import ReadsInProgress
from mxrun.io.loading.staging import Staging, staging_specs
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.pipeline import pipeline
from mxrun.io.transforms.program import RowProgram

COUNT, SHAPE = 9, (1, 6, 5)
IMAGES = np.random.default_rng(1).integers(0, 256, (COUNT, *SHAPE), np.uint8)
INPUTS = {"data": TensorSpec(SHAPE), "label": TensorSpec((), "int32")}
MAGIC = b"\x0a\x23\xd7\xce"
ORDER = np.array([3, 0, 8, 8, 5, 1, 2, 4, 6, 7])


def write_records(path: Path, images: np.ndarray = IMAGES, labels: int = 1) -> None:
    with path.open("wb") as stream:
        writer = RecordWriter(stream)
        for number, image in enumerate(images):
            label = float(number) if labels == 1 else [float(number)] * labels
            writer.write(number, pack_image_record(label, number, npy(image)))


def write_tar(path: Path) -> None:
    with path.open("wb") as stream, TarWriter(stream) as writer:
        for number, image in enumerate(IMAGES):
            writer.write(f"{number:06d}", {"npy": npy(image), "cls": b"%d" % number})


def write_npz(path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, data=IMAGES, label=np.arange(COUNT))


def open_file(dataset: str, path: Path, **options: object) -> Dataset:
    request = request_dataset(dataset, {"path": str(path), **options}, None)
    return open_datasets({"it": request}, INPUTS)["it"]


def rows(column: LazyField, order: np.ndarray = ORDER) -> tuple[bytes, list[tuple[int, str]]]:
    """Return the rows of a chunk of records, and the errors."""
    spec = TensorSpec(SHAPE)
    program = RowProgram(pipeline([]), "data", column, spec, 7)
    target = np.ones((len(order), *spec.shape), np.float32)
    failed = program.write(program.read(order), order, np.zeros(len(order), np.int64), target)
    return target.tobytes(), [(row, str(error)) for row, error in failed]


def are_read(column: LazyField) -> list[bool]:
    """Return which records are read at once."""
    found = column.arrays(np.arange(column.count))
    assert found is not None
    return found[1].tolist()


FORMATS: dict[str, tuple[Callable[[Path], None], dict[str, object]]] = {
    "recordio": (write_records, {}),
    "webdataset": (write_tar, {}),
    "npz": (write_npz, {"in_memory": False, "images": {"data": 255}}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_D4_records_read_at_once_give_the_rows_of_those_read_alone(tmp_path, name):
    write, options = FORMATS[name]
    write(tmp_path / "a")
    column = open_file(name, tmp_path / "a", **options).lazy["data"]
    assert are_read(column) == [True] * COUNT
    expected = (IMAGES[ORDER] * np.float32(1 / 255)).tobytes(), []
    assert rows(column) == rows(replace(column, read_arrays=None)) == expected
    for part in (slice(2, 7), np.array([8, 1, 1, 3])):
        few = column.part(part)
        order = np.arange(few.count)[::-1].copy()
        expected = (IMAGES[part][order] * np.float32(1 / 255)).tobytes(), []
        assert rows(few, order) == rows(replace(few, read_arrays=None), order) == expected


def test_records_of_several_files_and_numbers_of_labels_are_read_at_once(tmp_path):
    write_records(tmp_path / "a.rec", IMAGES[:4])
    write_records(tmp_path / "b.rec", IMAGES[4:])
    column = open_file("recordio", tmp_path / "*.rec").lazy["data"]
    assert are_read(column) == [True] * COUNT
    assert rows(column)[0] == (IMAGES[ORDER] * np.float32(1 / 255)).tobytes()
    write_records(tmp_path / "c.rec", IMAGES, labels=3)
    wanted = {**INPUTS, "label": TensorSpec((3,))}
    request = request_dataset("recordio", {"path": str(tmp_path / "c.rec")}, None)
    column = open_datasets({"it": request}, wanted)["it"].lazy["data"]
    assert are_read(column) == [True] * COUNT
    assert rows(column)[0] == (IMAGES[ORDER] * np.float32(1 / 255)).tobytes()


def test_records_of_several_parts_are_read_alone_in_the_same_chunk(tmp_path):
    images = IMAGES.copy()
    # The first word of the pixels, which is at a multiple of four bytes of the payload.
    images[5].reshape(-1)[:4] = list(MAGIC)
    write_records(tmp_path / "a.rec", images)
    column = open_file("recordio", tmp_path / "a.rec").lazy["data"]
    assert are_read(column) == [number != 5 for number in range(COUNT)]
    assert rows(column) == ((images[ORDER] * np.float32(1 / 255)).tobytes(), [])


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_record_has_the_error_or_the_row_of_a_record_read_alone(tmp_path, name):
    write, options = FORMATS[name]
    path = tmp_path / "a"
    write(path)
    column = open_file(name, path, **options).lazy["data"]
    assert column.locate is not None
    start, end = column.locate(3).offset, column.locate(4).offset
    content, draw = path.read_bytes(), random.Random(2)
    for at in draw.sample(range(start, end), min(100, end - start)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        found = rows(column)
        assert found == rows(replace(column, read_arrays=None))
        assert {row for row, _ in found[1]} <= {0}
    for size in (end - 1, start + 1, start):
        path.write_bytes(content[:size])
        found = rows(column)
        assert found == rows(replace(column, read_arrays=None))
        # Those of the records after it, and, unless its padding alone is cut, its own.
        assert [row for row, _ in found[1]] in ([0, 2, 3, 4, 7, 8, 9], [2, 3, 4, 7, 8, 9])


def test_a_number_that_is_not_finite_is_found_in_records_read_at_once(tmp_path):
    values = np.random.default_rng(0).normal(size=(COUNT, *SHAPE)).astype(np.float32)
    np.savez(tmp_path / "a.npz", data=values, label=np.arange(COUNT))
    column = open_file("npz", tmp_path / "a.npz", in_memory=False).lazy["data"]
    assert are_read(column) == [True] * COUNT
    assert rows(column) == (values[ORDER].tobytes(), [])
    values[5, 0, 2, 2] = np.nan
    np.savez(tmp_path / "a.npz", data=values, label=np.arange(COUNT))
    column = open_file("npz", tmp_path / "a.npz", in_memory=False).lazy["data"]
    found = rows(column)
    assert found == rows(replace(column, read_arrays=None))
    assert [row for row, _ in found[1]] == [4]
    assert "cannot be converted to float32" in found[1][0][1]


def test_large_records_and_those_of_several_shapes_are_read_alone(tmp_path):
    large = np.zeros((2, 1, 200, 100), np.uint8)
    write_records(tmp_path / "large.rec", large)
    wanted = {**INPUTS, "data": TensorSpec((1, 200, 100))}
    request = request_dataset("recordio", {"path": str(tmp_path / "large.rec")}, None)
    assert open_datasets({"it": request}, wanted)["it"].lazy["data"].read_arrays is None
    with (tmp_path / "mixed.rec").open("wb") as stream:
        writer = RecordWriter(stream)
        for number, shape in enumerate([SHAPE, (1, 5, 6)]):
            content = npy(np.zeros(shape, np.uint8))
            writer.write(number, pack_image_record(0.0, number, content))
    assert open_file("recordio", tmp_path / "mixed.rec").lazy["data"].read_arrays is None


def test_the_record_that_is_being_read_at_once_is_known(monkeypatch):
    reading, now = ReadsInProgress(), [100.0]
    monkeypatch.setattr("mxrun.io.loading.rows.time.monotonic", lambda: now[0])
    seen = []

    def read_arrays(numbers, position):
        for at in range(len(numbers)):
            position[0] = at
            now[0] += 2
            seen.append(reading.longest())
            now[0] += 1
            seen.append(reading.longest())
        return np.zeros((len(numbers), 2), np.float32), np.ones(len(numbers), np.bool_)

    column = LazyField(
        lambda number: np.zeros(2, np.float32),
        9,
        (2,),
        "float32",
        locate=lambda number: RecordLocation(f"file {number}"),
        read_arrays=read_arrays,
    )
    watched = reading.watched(column)
    assert watched.arrays(np.array([7, 4])) is not None
    assert seen == [(2.0, "file 7"), (3.0, "file 7"), (0.0, "file 4"), (1.0, "file 4")]
    assert reading.longest() == (0.0, "")
    assert reading.taken_bytes() == 16
    reading.is_cancelled = lambda: True
    found = watched.arrays(np.array([7, 4]))
    assert found is not None
    assert not found[1].any()


def batches(dataset: Dataset, workers: int = 1) -> list[tuple[int, bytes, bytes]]:
    """Return the batches of two epochs."""
    memory = [
        {name: np.zeros(spec.shape, spec.dtype) for name, spec in staging_specs(INPUTS, 4).items()}
        for _ in range(3)
    ]
    iterator = open_iterator(
        dataset, 4, shuffle=True, seed=3, workers=workers, staging=Staging(memory[:2])
    )
    found = []
    try:
        for epoch in range(2):
            iterator.reset(epoch)
            while (batch := iterator.next_into(memory[2])) is not None:
                found.append((batch.valid, *(each.tobytes() for each in memory[2].values())))
    finally:
        iterator.close()
    return found


def read_alone(dataset: Dataset) -> Dataset:
    """Return a data set whose records are read one after the other."""
    lazy = {name: replace(each, read_arrays=None) for name, each in dataset.lazy.items()}
    return replace(dataset, lazy=lazy)


@pytest.mark.parametrize("name", FORMATS)
def test_D4_small_arrays_are_kept_in_memory_and_give_the_same_batches(tmp_path, name):
    write, options = FORMATS[name]
    path = tmp_path / "a"
    write(path)
    dataset = open_file(name, path, **options)
    expected = batches(read_alone(dataset))
    assert len(expected) == 6
    assert batches(dataset) == batches(dataset, workers=0) == expected
    iterator = open_iterator(dataset, 4)
    # They are read when the iterator is opened, and not again.
    path.write_bytes(b"")
    assert isinstance(iterator, ArrayIterator)
    assert not iterator.reads_records


def test_arrays_with_a_damaged_record_are_not_kept(tmp_path):
    path = tmp_path / "a.rec"
    write_records(path)
    dataset = open_file("recordio", path)
    content = bytearray(path.read_bytes())
    assert dataset.lazy["data"].locate is not None
    content[dataset.lazy["data"].locate(6).offset] ^= 1
    path.write_bytes(content)
    errors = []
    for each in (dataset, read_alone(dataset)):
        with pytest.raises(RecordError) as caught:
            batches(each)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert "record 6 of data set 'recordio'" in errors[0]


def test_arrays_that_are_transformed_or_have_boxes_are_not_kept(tmp_path):
    write_records(tmp_path / "a.rec")
    dataset = open_file("recordio", tmp_path / "a.rec")
    assert not with_cached_columns(dataset).lazy
    flip = pipeline([(TRANSFORMS.get("flip")(), None)])
    assert with_cached_columns(replace(dataset, pipeline=flip)).lazy
    boxes = Field(np.zeros((COUNT, 1, 5), np.float32), boxes=True)
    assert with_cached_columns(replace(dataset, fields={"label": boxes})).lazy
