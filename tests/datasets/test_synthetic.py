"""Synthetic records: a function of seed and split, in the network's shapes, learnable."""

import numpy as np
import pytest

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset

INPUTS = {"data": TensorSpec((3, 8, 8)), "label": TensorSpec((), "int32")}


def open_synthetic(split="train", inputs=INPUTS, **options) -> Dataset:
    request = request_dataset("synthetic", options, split)
    return open_datasets({"it": request}, inputs)["it"]


def test_records_take_the_shapes_of_the_network():
    inputs = {
        "left": TensorSpec((3, 8, 8)),
        "right": TensorSpec((5,)),
        "tokens": TensorSpec((7,), "int32"),
        "softmax_label": TensorSpec((), "int32"),
    }
    dataset = open_synthetic(inputs=inputs, records=50, classes=4)
    assert dataset.specs == inputs
    assert len(dataset) == 50
    for name in ("tokens", "softmax_label"):
        records = dataset.fields[name].records
        assert set(np.unique(records)) == {0, 1, 2, 3}
    assert dataset.classes == ()


def test_the_same_seed_gives_the_same_bytes_and_others_differ():
    def content(**options):
        fields = open_synthetic(records=20, **options).fields
        return b"".join(fields[name].records.tobytes() for name in INPUTS)

    assert content(seed=1) == content(seed=1)
    assert len({content(seed=1), content(seed=2), content(seed=1, split="test")}) == 3


def test_the_test_split_is_learnable_from_the_training_split():
    train, test = open_synthetic("train"), open_synthetic("test")

    def arrays(dataset):
        data = dataset.fields["data"].records.reshape(len(dataset), -1).astype(float)
        return data, dataset.fields["label"].records

    (data, label), (new, truth) = arrays(train), arrays(test)
    means = np.stack([data[label == kind].mean(0) for kind in range(10)])
    distance = ((new[:, None] - means) ** 2).sum(2)
    assert (distance.argmin(1) == truth).mean() > 0.99
    assert not (data[:100, None] == new[None, :100]).all(2).any()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"records": 0}, "records"),
        ({"records": "many"}, "records"),
        ({"records": True}, "records"),
        ({"classes": 0}, "classes"),
        ({"classes": 10**9}, "classes"),
        ({"seed": -1}, "seed"),
        ({"seeds": 1}, "'seed'"),
        ({"records": 10**15}, "too large"),
    ],
)
def test_options_out_of_range_are_explained(options, word):
    with pytest.raises(UserError, match=word):
        open_synthetic(**options)


def test_an_input_type_it_cannot_make_is_explained():
    with pytest.raises(UserError, match="float16"):
        open_synthetic(inputs={"data": TensorSpec((3,), "float16")})


def test_a_range_works_here_too():
    part = open_synthetic({"of": "train", "range": [3, 9]}, records=10)
    whole = open_synthetic(records=10)
    assert len(part) == 6
    assert np.array_equal(part.fields["data"].records, whole.fields["data"].records[3:9])
