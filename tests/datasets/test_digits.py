"""The bundled digits, compared with facts read from the file without the reader."""

import csv
import gzip
import io
from importlib.resources import files

import numpy as np
import pytest

from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset

INPUTS = {"data": TensorSpec((1, 8, 8)), "label": TensorSpec((), "int32")}


def open_split(split: object) -> Dataset:
    return open_datasets({"it": request_dataset("digits", {}, split)}, INPUTS)["it"]


@pytest.fixture(scope="module")
def rows() -> list[list[int]]:
    packed = (files("mxrun.datasets") / "digits.csv.gz").read_bytes()
    text = gzip.decompress(packed).decode()
    return [[int(value) for value in row] for row in csv.reader(io.StringIO(text))]


def test_all_records_in_the_order_of_the_file(rows):
    digits = open_split("all")
    assert len(digits) == len(rows) == 1797
    assert digits.specs == INPUTS
    assert digits.fields["label"].records.tolist() == [row[64] for row in rows]
    images = digits.fields["data"].records
    assert images.reshape(-1, 64).tolist() == [row[:64] for row in rows]
    assert images.dtype == np.uint8
    assert (images.min(), images.max()) == (0, 16)
    assert digits.fields["data"].scale == 1 / 16
    # The first records of scikit-learn's load_digits().target.
    assert digits.fields["label"].records[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


def test_counts_per_class_are_those_that_uci_publishes():
    counts = np.bincount(open_split("all").fields["label"].records)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_train_and_test_are_disjoint_and_complete(rows):
    train, test = open_split("train"), open_split("test")
    assert (len(train), len(test)) == (1438, 359)
    expected = {
        "train": [row for index, row in enumerate(rows) if index % 5 != 4],
        "test": [row for index, row in enumerate(rows) if index % 5 == 4],
    }
    for name, part in (("train", train), ("test", test)):
        assert part.fields["label"].records.tolist() == [row[64] for row in expected[name]]
        pixels = part.fields["data"].records.reshape(-1, 64)
        assert pixels.tolist() == [row[:64] for row in expected[name]]


def test_a_range_is_a_part_of_its_split():
    part = open_split({"of": "test", "range": [100, 359]})
    whole = open_split("test")
    assert len(part) == 259
    for name in whole.fields:
        assert np.array_equal(part.fields[name].records, whole.fields[name].records[100:])
    assert part.classes == tuple("0123456789")
