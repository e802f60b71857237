"""MNIST's IDX files: real ones, and all kinds of damaged files."""

import gzip
import os
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from damage import damage
from refusals import only_problem

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset

INPUTS = {"data": TensorSpec((1, 28, 28)), "label": TensorSpec((), "int32")}
IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
COUNT = 5


def open_mnist(folder: Path | str, split: object = "test") -> Dataset:
    request = request_dataset(
        "mnist", {"path": str(folder)}, split, {"path": SourceLocation("c.yaml", 7, 3)}
    )
    return open_datasets({"it": request}, INPUTS)["it"]


def image_bytes(count: int = COUNT) -> bytes:
    header = bytes.fromhex("00000803") + count.to_bytes(4, "big") + bytes.fromhex("0000001c") * 2
    return header + bytes(i * 7 % 256 for i in range(count * 784))


def label_bytes(count: int = COUNT) -> bytes:
    return (
        bytes.fromhex("00000801") + count.to_bytes(4, "big") + bytes(i % 10 for i in range(count))
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / IMAGES).write_bytes(image_bytes())
    (tmp_path / LABELS).write_bytes(label_bytes())
    return tmp_path


def failure(folder: Path | str, split: object = "test") -> str:
    found = only_problem(open_mnist, folder, split)
    assert found.place == SourceLocation("c.yaml", 7, 3)
    return str(found)


@pytest.mark.skipif("MXRUN_TEST_DATA" not in os.environ, reason="MXRUN_TEST_DATA is not set")
def test_the_real_test_files_hold_what_is_published():
    real = Path(os.environ["MXRUN_TEST_DATA"])
    test = open_mnist(real)
    labels, images = test.fields["label"].records, test.fields["data"].records
    assert (len(test), images.dtype, images.shape[1:]) == (10000, np.uint8, (1, 28, 28))
    assert labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(labels).tolist() == counts
    with gzip.open(real / f"{IMAGES}.gz") as file:
        content = file.read()
    assert images.tobytes() == content[16:]
    train = open_mnist(real, {"of": "test", "range": [0, 9000]})
    rest = open_mnist(real, {"of": "test", "range": [9000, 10000]})
    assert (len(train), len(rest)) == (9000, 1000)
    both = train.fields["label"].records.tolist() + rest.fields["label"].records.tolist()
    assert both == labels.tolist()


def test_plain_and_compressed_files_give_the_same(folder):
    plain = open_mnist(folder)
    for name in (IMAGES, LABELS):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    packed = open_mnist(folder)
    for name in ("data", "label"):
        assert np.array_equal(plain.fields[name].records, packed.fields[name].records)
    assert plain.fields["label"].records.tolist() == [0, 1, 2, 3, 4]
    assert plain.fields["data"].records.tobytes() == image_bytes()[16:]
    assert not plain.fields["data"].records.flags.writeable


@pytest.mark.parametrize("split", ["train", "test"])
def test_missing_files_are_named(tmp_path, split):
    prefix = {"train": "train", "test": "t10k"}[split]
    text = failure(tmp_path, split)
    assert f"{prefix}-images-idx3-ubyte" in text
    assert str(tmp_path) in text


@pytest.mark.parametrize(
    "path", ["/no/such/folder", "a\0b", "x" * 5000, "~nobody-of-this-name/x", "."]
)
def test_a_path_that_is_no_mnist_folder_is_explained(path, empty_folder):
    assert IMAGES in failure(path)


def test_a_file_instead_of_the_folder_and_a_folder_instead_of_a_file(folder):
    assert "got: a file" in failure(folder / IMAGES)
    (folder / LABELS).unlink()
    (folder / LABELS).mkdir()
    assert LABELS in failure(folder)


@pytest.mark.parametrize(
    ("offset", "new", "words"),
    [
        (0, b"\x01", ("byte 0", "not an IDX file")),
        (2, b"\x0d", ("byte 2", "element type", "float")),
        (2, b"\x77", ("byte 2", "0x77")),
        (3, b"\x01", ("byte 3", "number of dimensions", "expected: 3")),
        (4, b"\0\0\0\0", ("byte 4", "at least 1")),
        (4, b"\0\0\0\x06", (f"byte {16 + 784 * COUNT}", "ends early", "[6, 28, 28]")),
        (4, b"\0\0\0\x04", (f"byte {16 + 784 * 4}", "more data")),
        (4, b"\xff\xff\xff\xff", ("byte 4", "announces too much")),
        (8, b"\0\0\0\x1d", ("byte 8", "dimension 1", "expected: 28", "got: 29")),
        (12, b"\xff\xff\xff\xff", ("byte 12", "dimension 2")),
    ],
)
def test_a_wrong_image_header_is_named_with_its_offset(folder, offset, new, words):
    content = bytearray(image_bytes())
    content[offset : offset + len(new)] = new
    (folder / IMAGES).write_bytes(content)
    text = failure(folder)
    assert all(word in text for word in (IMAGES, *words))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 7, 15, 16, 17, 16 + 784 * COUNT - 1])
@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_file_is_named_with_its_offset(folder, size, packed):
    content = image_bytes()[:size]
    (folder / IMAGES).write_bytes(gzip.compress(content) if packed else content)
    text = failure(folder)
    assert IMAGES in text
    assert f"byte {size}:" in text or (size < 4 and "byte 0:" in text)


def test_files_that_do_not_belong_together(folder):
    (folder / LABELS).write_bytes(label_bytes(COUNT + 1))
    text = failure(folder)
    assert all(word in text for word in (LABELS, "byte 4", "expected: 5", "got: 6"))


def test_a_label_that_is_no_digit(folder):
    content = bytearray(label_bytes())
    content[8 + 3] = 10
    (folder / LABELS).write_bytes(content)
    text = failure(folder)
    assert all(word in text for word in (LABELS, "byte 11", "record 3", "got: 10"))


def test_a_decompression_bomb_is_bounded(folder):
    """A valid header followed by 64 MB of zeros: reading stops one byte after the declared size."""
    bomb = gzip.compress(image_bytes() + bytes(64 << 20))
    (folder / IMAGES).write_bytes(bomb)
    tracemalloc.start()
    try:
        text = failure(folder)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "more data" in text
    assert peak < 1 << 20


@pytest.mark.parametrize("packed", [False, True])
def test_damaged_files_give_an_error_or_a_valid_data_set(folder, packed):
    """300 seeded flips, cuts, insertions and repeats of both files."""
    originals = {IMAGES: image_bytes(2), LABELS: label_bytes(2)}
    if packed:
        originals = {name: gzip.compress(data, mtime=0) for name, data in originals.items()}
    errors, valid = [], 0
    draw = random.Random(20)
    for _ in range(300):
        for name, data in originals.items():
            (folder / name).write_bytes(data)
        name = draw.choice(list(originals))
        (folder / name).write_bytes(damage(originals[name], draw))
        try:
            dataset = open_mnist(folder)
        except UserError as error:
            errors.append(str(error))
        else:
            labels = dataset.fields["label"].records
            assert len(dataset) == len(labels) >= 1
            assert 0 <= labels.min() <= labels.max() <= 9
            assert dataset.specs == INPUTS
            valid += 1
    assert len(errors) > 100
    assert valid > (0 if packed else 30)
    assert all(str(folder) in text and "byte " in text for text in errors)
