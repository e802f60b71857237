"""Predictions in a loop: nothing is planned or allocated again, whatever form the records have."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import mxrun
from mxrun.executor.executor import Executor

IMAGES = np.random.default_rng(0).integers(0, 17, (11, 8, 8), np.uint8)
TABLE = """\
day,kind,size,label
2024-01-01,red,1.5,a
2024-02-01,blue,2.5,b
2024-03-01,red,,a
"""


@pytest.fixture
def digits(empty_folder: Path) -> mxrun.LoadedModel:
    """Return a network with its initial weights."""
    return mxrun.load("digits_lenet")


@pytest.fixture
def table(empty_folder: Path) -> mxrun.LoadedModel:
    """Return a network of a table with a date, words, numbers and a gap."""
    Path("things.csv").write_text(TABLE)
    columns = {"day": "date", "kind": "category", "size": "number"}
    return mxrun.load(
        {
            "network": {
                "inputs": {"data": [4], "label": []},
                "layers": [
                    {"FullyConnected": {"name": "fc1", "num_hidden": 2}},
                    {"SoftmaxOutput": {"name": "softmax", "label": "label"}},
                ],
            },
            "data": {
                "batch_size": 2,
                "train": {
                    "dataset": "csv",
                    "path": "things.csv",
                    "label": "label",
                    "columns": columns,
                },
            },
            "train": {"epochs": 1, "optimizer": {"sgd": {"lr": 0.1}}},
        }
    )


def executors() -> list[Executor]:
    """Return the executors that are alive."""
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is Executor]


def test_a_shape_is_bound_once(digits: mxrun.LoadedModel) -> None:
    first = digits.predict(IMAGES[:3]).values
    bound = executors()
    for start in (0, 3, 6, 0):
        again = digits.predict(IMAGES[start : start + 3]).values
    assert np.array_equal(again, first)
    assert executors() == bound
    # Other shapes and outputs have networks of their own, of which the last few are kept.
    for count in range(1, 9):
        digits.predict(IMAGES[:count], outputs=["fc1"])
    assert len(executors()) <= len(bound) + 4
    assert np.array_equal(digits.predict(IMAGES[:3]).values, first)


def test_predictor_runs_in_batches_of_one_size(digits: mxrun.LoadedModel) -> None:
    expected = digits.predict(IMAGES, batch=4).values
    predictor = digits.predictor(4)
    bound = executors()
    for count in (1, 4, 9, 11, 2):
        values = predictor.predict(IMAGES[:count]).values
        # A row is that of a batch of four, whatever is in the other rows.
        assert np.array_equal(values, expected[:count])
    assert executors() == bound
    with pytest.raises(mxrun.UserError, match="there are no records to infer"):
        predictor.predict(np.zeros((0, 1, 8, 8)))
    with pytest.raises(mxrun.UserError, match="batch cannot be 0"):
        digits.predictor(0)


def test_weights_are_those_of_the_call(digits: mxrun.LoadedModel) -> None:
    predictor = digits.predictor(11)
    before = digits.predict(IMAGES).values
    digits.parameters["fc2_bias"] = np.arange(10)
    assert not np.array_equal(digits.predict(IMAGES).values, before)
    assert np.array_equal(predictor.predict(IMAGES).values, before)


def test_threads_share_a_predictor(digits: mxrun.LoadedModel) -> None:
    predictor = digits.predictor(2)
    expected = [predictor.predict(image).values for image in IMAGES]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(20):
            found = threads.map(lambda image: predictor.predict(image).values, IMAGES)
            assert all(map(np.array_equal, found, expected))


def test_a_forked_process_predicts(digits: mxrun.LoadedModel) -> None:
    expected = digits.predict(IMAGES).values
    child = os.fork()
    if not child:
        os._exit(int(np.array_equal(digits.predict(IMAGES).values, expected)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_images_of_pillow_are_read_like_their_files(digits: mxrun.LoadedModel) -> None:
    files = []
    for number, image in enumerate(IMAGES[:4]):
        exif = Image.Exif()
        exif[274] = number + 5
        files.append(f"{number}.png")
        Image.fromarray(image * 15).convert("RGBA").save(files[-1], exif=exif)
    expected = digits.predict(files).values
    opened = [Image.open(file) for file in files]
    for data in (opened, {"data": opened}):
        assert np.array_equal(digits.predict(data).values, expected)
    assert np.array_equal(digits.predict(opened[0]).values, digits.predict(files[0]).values)
    with pytest.raises(mxrun.UserError, match="array 'data': record 0: unsupported pixel format"):
        digits.predict(Image.new("F", (8, 8)))


def test_channels_may_be_last(digits: mxrun.LoadedModel) -> None:
    expected = digits.predict(IMAGES).values
    for data in (IMAGES[..., np.newaxis], [*IMAGES[..., np.newaxis]]):
        assert np.array_equal(digits.predict(data, layout="HWC").values, expected)
    with pytest.raises(mxrun.UserError, match="unknown layout"):
        digits.predict(IMAGES, layout="NHWC")  # type: ignore[arg-type]


def test_images_of_several_sizes(empty_folder: Path) -> None:
    transforms = [{"resize": {"size": 8}}, {"center_crop": {"size": [8, 8]}}]
    model = mxrun.load("digits_lenet", {"data.train.transforms": transforms})
    images: Sequence[Any] = [np.tile(IMAGES[0], (side, side)) for side in (1, 2, 3)]
    expected = np.concatenate([model.predict(image[np.newaxis]).values for image in images])
    found = model.predict([image[..., np.newaxis] for image in images], layout="HWC").values
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_rows_of_a_table_by_name(table: mxrun.LoadedModel) -> None:
    expected = table.predict("things.csv").values
    rows: list[dict[str, object]] = [
        {"size": 1.5, "kind": "red", "day": "2024-01-01", "unused": 3},
        {"kind": "blue", "day": "2024-02-01", "size": "2.5"},
        {"kind": "red", "day": "2024-03-01"},
    ]
    found = table.predict(rows)
    assert np.array_equal(found.values, expected)
    assert found.notes == ("the records: missing values: size 1",)
    assert np.array_equal(table.predictor(2).predict(rows[0]).values, expected[:1])
    with pytest.raises(mxrun.UserError, match="row 1 lacks kind"):
        table.predict([rows[0], {"Kind": "red", "size": 1, "day": "2024-01-01"}])
    with pytest.raises(mxrun.UserError, match="row 0 lacks day"):
        table.predict([{}])


def test_columns_by_name_are_complete_and_of_one_length(table: mxrun.LoadedModel) -> None:
    columns = {"size": [1.5, 2.5], "kind": ["red", "blue"], "day": ["2024-01-01", "2024-02-01"]}
    assert len(table.predict(columns).names) == 2
    with pytest.raises(mxrun.UserError, match=r"the columns lack kind\n.*\n.*\n.*'kind'"):
        table.predict({**{k: v for k, v in columns.items() if k != "kind"}, "Kind": ["red"] * 2})
    with pytest.raises(mxrun.UserError, match="day: 2, kind: one value, size: 2"):
        table.predict({**columns, "kind": "red"})
    assert table.predict({"size": 1.5, "kind": "red"}).notes
