"""Requests for data sets: all errors of the data section in one pass, each with its location."""

import ast
from pathlib import Path

import numpy as np
import pytest
from commands import python_output

from mxrun import datasets, io
from mxrun.base.docstrings import docstring
from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.dataset.split import Split

INPUTS = {"data": TensorSpec((1, 8, 8)), "label": TensorSpec((), "int32")}


def place(line: int) -> SourceLocation:
    return SourceLocation("c.yaml", line, 5)


PLACES = {"dataset": place(1), "split": place(2), "split.range": place(3), "path": place(4)}


def failures(*arguments, places=PLACES, inputs=INPUTS):
    with pytest.raises(UserError) as caught:
        open_datasets({"train": request_dataset(*arguments, places)}, inputs)
    return caught.value.diagnostics


def test_an_unknown_data_set_names_the_nearest():
    (found,) = failures("digit", {}, "train")
    assert found.place == place(1)
    assert "'digits'" in found.hint
    (found,) = failures("zzz", {}, "train")
    assert all(name in found.hint for name in ("csv", "digits", "mnist"))


def test_the_table_of_names_is_the_folder():
    folder = Path(next(iter(datasets.__path__)))
    assert set(DATASETS) >= {path.stem for path in folder.glob("*.py")} - {"__init__"}
    for name in ("digits", "mnist", "synthetic"):
        assert DATASETS.get(name).name == name
        assert docstring(DATASETS.get(name).read)
        for option in DATASETS.get(name).options.model_fields.values():
            assert option.description


def test_only_the_module_asked_for_is_imported():
    program = (
        "import sys, mxrun.datasets\n"
        "from mxrun.io.dataset.registry import DATASETS\n"
        "DATASETS.get('digits')\n"
        "print(sorted(name for name in sys.modules if name.startswith('mxrun.datasets.')))\n"
    )
    assert ast.literal_eval(python_output("-c", program)) == ["mxrun.datasets.digits"]


def test_options_and_split_are_reported_together_with_their_places():
    found = failures("mnist", {"pth": "x"}, {"of": "tset", "range": [5, 5]})
    assert [diagnostic.place for diagnostic in found] == [
        place(4),
        place(1),
        place(2),
        place(3),
    ]
    assert "'path'" in found[1].hint
    assert "'test'" in found[2].hint


@pytest.mark.parametrize(
    ("split", "word"),
    [
        (5, "has no name"),
        (["train"], "has no name"),
        ("Train ", "unknown split"),
        ({}, "the split is empty"),
        ({"of": "all", "range": None}, "two integers"),
        ({"share": 0.5, "range": [0, 5]}, "not both"),
        ({"range": [0, 5], "seed": 1}, "valid only with share"),
        ({"seed": 3}, "valid only with share"),
        ({"of": "all", "stratify": True}, "valid only with share"),
        ({"of": ["all"], "range": [0, 5]}, "unknown split"),
        ({"of": "all", "range": [0, 5], "step": 2}, "unknown key"),
        ({"of": "all", "range": [0]}, "two integers"),
        ({"of": "all", "range": [0, 5, 6]}, "two integers"),
        ({"of": "all", "range": [0.0, 5]}, "two integers"),
        ({"of": "all", "range": [False, True]}, "two integers"),
        ({"of": "all", "range": "05"}, "two integers"),
        ({"of": "all", "range": [-1, 5]}, "no records"),
        ({"of": "all", "range": [5, 5]}, "no records"),
        ({"of": "all", "range": [6, 5]}, "no records"),
        ({"of": "all", "range": [0, 1798]}, "has 1797 records"),
        ({"of": "all", "range": [10**30, 10**40]}, "has 1797 records"),
    ],
)
def test_a_split_that_cannot_be_is_explained(split, word):
    (found,) = failures("digits", {}, split)
    assert word in found.problem
    assert found.place in (place(2), place(3))


def test_a_mapping_may_only_name_the_split():
    assert request_dataset("digits", {}, {"of": "test"}).split == Split("test")


def test_the_valid_range_is_named():
    (found,) = failures("digits", {}, {"of": "test", "range": [300, 360]})
    assert found.place == place(3)
    assert "359" in found.expected
    assert found.got == "[300, 360]"


def test_fields_that_do_not_fit_the_network_are_reported():
    inputs = {"data": TensorSpec((1, 28, 28)), "lable": TensorSpec((), "int32")}
    shape, missing = failures("digits", {}, "train", inputs=inputs)
    assert (shape.expected, shape.got) == ("float32[1, 8, 8]", "float32[1, 28, 28]")
    assert "'label'" in missing.hint
    assert shape.place == missing.place == place(1)


def test_errors_of_several_data_sets_come_together():
    requests = {
        "train": request_dataset("mnist", {"path": "/no/such"}, "train"),
        "eval": request_dataset("digits", {}, {"of": "test", "range": [0, 1000]}),
    }
    with pytest.raises(UserError) as caught:
        open_datasets(requests, INPUTS)
    first, second = caught.value.diagnostics
    assert "train-images-idx3-ubyte" in first.problem
    assert "359" in second.problem


def test_a_shared_split_is_read_once():
    requests = {
        "train": request_dataset("digits", {}, {"of": "all", "range": [0, 1000]}),
        "eval": request_dataset("digits", {}, {"of": "all", "range": [1000, 1797]}),
    }
    opened = open_datasets(requests, INPUTS)
    train, test = opened["train"], opened["eval"]
    assert (len(train), len(test)) == (1000, 797)
    assert (train.split, test.split) == ("all[0:1000]", "all[1000:1797]")
    first, second = (part.fields["data"].records for part in (train, test))
    assert first.base is second.base is not None
    assert not np.shares_memory(first, second)


def test_splits_print_as_they_are_read():
    assert str(Split("test")) == "test"
    assert str(Split("test", 0, 9000)) == "test[0:9000]"


def test_nothing_is_unpickled():
    for package in (io, datasets):
        for file in Path(next(iter(package.__path__))).glob("*.py"):
            assert "pickle" not in file.read_text().lower()
