"""Files outside any data set as inputs of a network, with the evaluation transforms."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from file_contents import npy
from PIL import Image

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.sample import Sample, read_samples, samples
from mxrun.io.tables.text import TableForm
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.pipeline import pipeline

SPEC = TensorSpec((3, 6, 8))
PIXELS = (np.arange(6 * 8 * 3) % 256).astype(np.uint8).reshape(6, 8, 3)
VALUES = PIXELS.transpose(2, 0, 1).astype(np.float32) * np.float32(1 / 255)


def png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


def test_an_image_is_one_row(tmp_path: Path) -> None:
    # The type of a file is determined by its first bytes, not by its name.
    (tmp_path / "x").write_bytes(png(PIXELS))
    (row,) = read_samples(tmp_path / "x", Sample(SPEC, white=255))
    assert row.dtype == np.float32
    assert np.array_equal(row, VALUES)
    (grey,) = samples(png(PIXELS[:, :, 0]), "x", Sample(TensorSpec((1, 6, 8)), white=255))
    assert np.array_equal(grey[0], VALUES[0])


@pytest.mark.parametrize("digit", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("blank", [b"\n", b" ", b"\n# a comment\n"])
def test_every_kind_of_netpbms_images_is_one(digit, blank):
    """Plain images (P1 to P3) hold their numbers as text."""
    count = 3 if digit % 3 == 0 else 1
    bits = np.arange(16 * count).reshape(2, 8, count) % 2
    head = b"P%d%b8 2\n%b" % (digit, blank, b"" if digit % 3 == 1 else b"255\n")
    # A bit of 1 is black.
    numbers = bits if digit % 3 == 1 else bits * 255
    text = " ".join(map(str, numbers.reshape(-1))).encode()
    packed = np.packbits(bits).tobytes() if digit == 4 else numbers.astype(np.uint8).tobytes()
    content = head + (text if digit < 4 else packed)
    (row,) = samples(content, "x", Sample(TensorSpec((count, 2, 8)), white=255))
    expected = 1 - bits if digit % 3 == 1 else bits
    assert np.array_equal(row, expected.transpose(2, 0, 1))


@pytest.mark.parametrize("name", ["BMI", "BM", "P5", "P2", "RIFF"])
@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_tables_may_begin_like_images(name, separator):
    content = separator.join([name, "age"]) + "\n" + separator.join("34")
    form = TableForm(separator, "maybe")
    (row,) = samples(content.encode(), "x.csv", Sample(TensorSpec((2,)), table=form))
    assert row.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("array", "spec", "count"),
    [
        (PIXELS.transpose(2, 0, 1), SPEC, 1),
        (np.stack([PIXELS.transpose(2, 0, 1)] * 4), SPEC, 4),
        (PIXELS[:, :, 0], TensorSpec((1, 6, 8)), 1),
        (np.stack([PIXELS[:, :, 0]] * 3), TensorSpec((1, 6, 8)), 3),
        (PIXELS[:, :, 0][np.newaxis], TensorSpec((1, 6, 8)), 1),
    ],
)
def test_an_array_is_one_row_or_several(array, spec, count):
    for dtype in (np.uint8, np.float64):
        given = array if dtype == np.uint8 else array * (1 / 255)
        rows = list(samples(npy(given), "x.npy", Sample(spec, white=255)))
        assert len(rows) == count
        for row in rows:
            assert np.abs(row - VALUES[: spec.shape[0]]).max() < 1e-7
            assert (row.dtype, row.shape) == (np.float32, spec.shape)


def test_a_table_is_a_row_a_line():
    rows = list(samples(b"1,2,3,4\n5,6,7,8\n", "x.csv", Sample(TensorSpec((1, 2, 2)))))
    assert [row.tolist() for row in rows] == [[[[1, 2], [3, 4]]], [[[5, 6], [7, 8]]]]
    (tokens,) = samples(b"1,2,3\n", "x.csv", Sample(TensorSpec((3,), "int32")))
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [1, 2, 3]


def test_bytes_are_what_they_were_in_training():
    """Arrays of any dtype and files are pixels where training read images, else numbers."""
    array = PIXELS.transpose(2, 0, 1)
    for dtype in (np.uint8, np.int64, np.float32, np.float64):
        (row,) = samples(npy((array % 17).astype(dtype)), "x.npy", Sample(SPEC, white=16))
        assert np.array_equal(row, (array % 17) * np.float32(1 / 16))
        (row,) = samples(npy(array.astype(dtype)), "x.npy", Sample(SPEC))
        assert np.array_equal(row, array.astype(np.float32))
    (row,) = samples(png(PIXELS), "x.png", Sample(SPEC, white=16))
    assert np.array_equal(row, VALUES)
    numbers = Sample(SPEC)
    (row,) = samples(png(PIXELS), "x.png", numbers)
    assert np.array_equal(row, array.astype(np.float32))
    assert "trained on numbers, not on images" in numbers.remarks[0]


def test_fractions_are_images_whose_white_is_1():
    fractions = Sample(SPEC, white=255)
    (row,) = samples(npy(VALUES), "x.npy", fractions)
    assert np.array_equal(row, VALUES)
    assert fractions.remarks == ["x.npy: data: images, 0..1 becomes 0..1"]
    # The dtype decides nothing, but that bytes are what a file stores.
    ones = (PIXELS.transpose(2, 0, 1) > 99).astype(np.uint8)
    for dtype in (bool, np.int64, np.float32):
        (row,) = samples(npy(ones.astype(dtype)), "x.npy", Sample(SPEC, white=255))
        assert np.array_equal(row, ones)
    (row,) = samples(npy(ones), "x.npy", Sample(SPEC, white=255))
    assert np.array_equal(row, ones * np.float32(1 / 255))


def test_fractions_that_exceed_1_are_refused_and_not_made_black():
    exceeding = VALUES / VALUES.max() * np.float32(1.02)
    with pytest.raises(UserError, match=r"fractions up to 1\.0(?s:.*)numpy\.clip"):
        list(samples(npy(exceeding), "x.npy", Sample(SPEC, white=255)))
    clipped = np.clip(exceeding, 0, 1)
    (row,) = samples(npy(clipped), "x.npy", Sample(SPEC, white=255))
    assert np.array_equal(row, clipped)


@pytest.mark.parametrize("wrong", [-1.0, 255.5])
def test_numbers_that_are_no_pixels_are_refused(wrong):
    array = PIXELS.transpose(2, 0, 1).astype(np.float32)
    array[0, 0, 0] = wrong
    with pytest.raises(
        UserError, match=r"x\.npy: not the pixels of images(?s:.*)255, which is white"
    ):
        list(samples(npy(array), "x.npy", Sample(SPEC, white=255)))


def test_an_array_of_rows_may_lie_flat():
    flat = np.arange(5 * 64, dtype=np.float32).reshape(5, 64)
    rows = list(samples(npy(flat), "x.npy", Sample(TensorSpec((1, 8, 8)))))
    assert [row.reshape(-1).tolist() for row in rows] == flat.tolist()


@pytest.mark.parametrize(
    ("content", "form", "rows"),
    [
        (b'"1","2"\n3," 4 "\n', TableForm(), [[1, 2], [3, 4]]),
        (b"1;2\n3;4\n", TableForm(";", "maybe"), [[1, 2], [3, 4]]),
        (b"width;height\n3;4\n", TableForm(";", "maybe"), [[3, 4]]),
    ],
)
def test_tables_are_read_as_the_training_data_was(content, form, rows):
    made = samples(content, "x.csv", Sample(TensorSpec((2,)), table=form))
    assert [row.tolist() for row in made] == rows


def test_rows_go_through_the_evaluations_transforms():
    chosen = [("random_crop", {"size": 4}), ("flip", {}), ("normalize", {"mean": 0.5, "std": 0.25})]
    steps = [(TRANSFORMS.get(name).model_validate(given), None) for name, given in chosen]
    spec = TensorSpec((3, 4, 4))
    prepared = Sample(spec, pipeline(steps).evaluation(), white=255)
    (row,) = samples(png(PIXELS), "x.png", prepared)
    assert np.abs(row - (VALUES[:, 1:5, 2:6] - 0.5) / 0.25).max() < 1e-6


@pytest.mark.parametrize(
    ("content", "spec", "words"),
    [
        (png(PIXELS), TensorSpec((3, 4, 4)), ("record 0", "[3, 4, 4]", "[3, 6, 8]", "resize")),
        (png(PIXELS), TensorSpec((48,)), ("not an image",)),
        (png(PIXELS)[:50], SPEC, ("byte", "cannot be decoded")),
        (npy(PIXELS[:5]), SPEC, ("record 0", "[5, 8, 3]")),
        (npy(PIXELS)[:-1], SPEC, ("byte", "announces")),
        (npy(np.array([np.inf])), TensorSpec((1,)), ("number 0", "finite")),
        (b"1,2\n3,x\n", TensorSpec((2,)), (":2:2:", "not a number")),
        (b"1,2\n", TensorSpec((3,)), ("record 0", "[3]", "[2]")),
        (b"1.5\n", TensorSpec((1,), "int32"), ("integer",)),
        (b"1_0,2\n", TensorSpec((2,)), (":1:1:", "not a number", "remove the row of names")),
        (b"", SPEC, ("holds no records", "an empty file")),
        (npy(np.float32(3)), SPEC, ("record 0", "[3, 6, 8]", "[]")),
        (npy(np.float32([2**31])), TensorSpec((1,), "int32"), ("number 0", "within int32")),
        (npy(np.float16([-np.inf])), TensorSpec((1,), "int32"), ("number 0", "within int32")),
        (b"<svg/>", SPEC, ("markup", "PNG")),
        (b"PK\x03\x04...", SPEC, ("damaged compressed data",)),
        (b"1,\x002\n", SPEC, ("binary data",)),
    ],
    ids=itertools.count(),
)
def test_what_cannot_be_a_row_is_told_with_its_file(content, spec, words):
    with pytest.raises(UserError) as caught:
        list(samples(content, "some/file", Sample(spec)))
    assert all(word in str(caught.value) for word in ("some/file", *words))


def test_a_transform_that_cannot_take_a_record_names_file_and_record():
    crop = pipeline([(TRANSFORMS.get("center_crop").model_validate({"size": 7}), None)])
    with pytest.raises(UserError, match=r"x\.png: record 0: center_crop: .*smaller"):
        list(samples(png(PIXELS), "x.png", Sample(SPEC, crop)))


@pytest.mark.parametrize(
    ("content", "spec", "has"),
    [
        # One channel could be broadcast to three without an error.
        (npy(np.zeros((1, 6, 8), "f4")), SPEC, "has 1 "),
        (npy(np.zeros((2, 4), "f4")), TensorSpec((3,)), "has 4 "),
        (b"1,2,3,4\n", TensorSpec((3,)), "has 4 "),
        (npy(np.float32(3)), TensorSpec((3,)), "has none"),
    ],
)
def test_numbers_per_channel_need_records_of_as_many_channels(content, spec, has):
    normalize = TRANSFORMS.get("normalize").model_validate({"mean": (0.1, 0.2, 0.3)})
    with pytest.raises(UserError) as caught:
        list(samples(content, "some/file", Sample(spec, pipeline([(normalize, None)]))))
    assert str(caught.value).startswith("some/file: record 0: normalize: mean is for 3 channels")
    assert has in str(caught.value)


@pytest.mark.parametrize(("content", "got"), [(b"", "an empty file"), (b"1,2\n", "not an image")])
def test_what_is_called_an_image_is_read_as_no_table(content, got):
    with pytest.raises(UserError, match=got):
        list(samples(content, "cat.JPG", Sample(TensorSpec((2,)))))


def test_a_table_without_the_names_of_its_columns_is_told_which_they_are():
    form = TableForm(header="maybe", data=("width", "height"), size=2)
    with pytest.raises(UserError, match="the first row must name the columns: width, height"):
        list(samples(b"1,x\n", "some/file", Sample(TensorSpec((2,)), table=form)))
