"""The bundled plays."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import pytest

from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset

SPEC = TensorSpec((32,), "int32")


def open_plays(split: str, **options: object) -> Dataset:
    request = request_dataset("shakespeare", options, split)
    return open_datasets({"it": request}, {"data": SPEC, "label": SPEC})["it"]


def test_the_text_is_small_and_has_62_characters():
    text = (files("mxrun.datasets") / "shakespeare.txt").read_text()
    assert len(text) == len(text.encode()) < 200_000
    train, test = open_plays("train"), open_plays("test")
    assert train.vocabulary is not None
    assert test.vocabulary is not None
    assert [train.vocabulary.token(number) for number in range(62)] == sorted(set(text))
    assert train.vocabulary.sha256 == test.vocabulary.sha256
    cut = int(0.9 * len(text))
    assert (len(train), len(test)) == ((cut - 1) // 32, (len(text) - cut - 1) // 32)
    assert train.vocabulary.decode(test.fields["data"].records[0]) == text[cut : cut + 32]


@pytest.mark.skipif("MXRUN_TEST_DATA" not in os.environ, reason="MXRUN_TEST_DATA is not set")
def test_its_parts_are_those_of_the_larger_text():
    text = (files("mxrun.datasets") / "shakespeare.txt").read_text()
    whole = (Path(os.environ["MXRUN_TEST_DATA"]) / "tinyshakespeare.txt").read_text()
    for begin, end in ((0, 66220), (66221, 132287), (132288, 198372)):
        assert text[begin:end] in whole
