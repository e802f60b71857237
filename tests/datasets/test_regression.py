"""Synthetic regression: a function of seed and split that a network can learn."""

from __future__ import annotations

import numpy as np
import pytest

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset

INPUTS = {"data": TensorSpec((4,)), "label": TensorSpec(())}


def open_regression(split: str = "train", inputs=INPUTS, **options: object) -> Dataset:
    return open_datasets({"it": request_dataset("regression", options, split)}, inputs)["it"]


def test_shapes_are_the_networks():
    inputs = {"data": TensorSpec((2, 3)), "label": TensorSpec((5,))}
    dataset = open_regression(inputs=inputs, records=7)
    assert dataset.specs == inputs
    assert len(dataset) == 7
    assert abs(dataset.fields["data"].records).max() <= 1


def test_the_same_seed_gives_the_same_bytes_and_others_differ():
    def content(**options: object) -> bytes:
        fields = open_regression(records=20, **options).fields
        return b"".join(field.records.tobytes() for field in fields.values())

    assert content(seed=1) == content(seed=1)
    assert len({content(seed=1), content(seed=2), content(seed=1, split="test")}) == 3


def features(dataset: Dataset) -> np.ndarray:
    """Return 1, x and all products of two elements of x; the labels are linear in these."""
    x = dataset.fields["data"].records.astype(float)
    products = [x[:, i] * x[:, j] for i in range(4) for j in range(i, 4)]
    return np.stack([np.ones(len(x)), *x.T, *products], axis=1)


def test_the_test_split_has_the_same_function():
    train, test = open_regression(records=500), open_regression("test", records=500)
    labels = train.fields["label"].records, test.fields["label"].records
    fit, *_ = np.linalg.lstsq(features(train), labels[0], rcond=None)
    error = features(test) @ fit - labels[1]
    # The residual is the noise of 0.05; labels vary far more.
    assert 0.04 < error.std() < 0.06
    assert labels[1].std() > 0.3
    exact = open_regression(records=500, noise=0.0)
    fit, *_ = np.linalg.lstsq(features(exact), exact.fields["label"].records, rcond=None)
    assert np.abs(features(exact) @ fit - exact.fields["label"].records).max() < 1e-5


def test_classes_and_too_many_records_are_refused():
    with pytest.raises(UserError, match="float32"):
        open_regression(inputs={**INPUTS, "label": TensorSpec((), "int32")})
    with pytest.raises(UserError, match="too large"):
        open_regression(records=1 << 40)
    with pytest.raises(UserError, match="no field"):
        open_regression(inputs={**INPUTS, "mask": TensorSpec(())})
