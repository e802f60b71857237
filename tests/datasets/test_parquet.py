"""Columns of Parquet and Arrow files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_contents import pixels, png
from lazy_columns import record_of

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fingerprint import fingerprint
from mxrun.io.dataset.request import open_datasets, request_dataset

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow, an extra, is not installed")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

CLASS = TensorSpec((), "int32")
IMAGE = TensorSpec((3, 6, 8))


def images(count: int, kind: str) -> Any:
    contents = [png(number) for number in range(count)]
    if kind == "bytes":
        return pyarrow.array(contents, pyarrow.binary())
    return pyarrow.array([{"bytes": each, "path": "a.png"} for each in contents])


def write(path: Path, columns: Mapping[str, Any], rows: int = 2) -> Path:
    """Write a file with groups of two rows, or of another number."""
    table = columns if isinstance(columns, pyarrow.Table) else pyarrow.table(dict(columns))
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=rows)
    else:
        feather.write_feather(table, path, compression="uncompressed", chunksize=rows)
    return path


def open_table(
    path: Path | str, data: TensorSpec, label: TensorSpec = CLASS, **options: Any
) -> Dataset:
    request = request_dataset("parquet", {"path": str(path), **options}, None)
    return open_datasets({"it": request}, {"data": data, "label": label})["it"]


def records(dataset: Dataset, name: str = "data") -> list[Any]:
    found: list[Any] = dataset.fields[name].records.tolist()
    return found


@pytest.fixture(params=["parquet", "arrow"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"table.{request.param}"


def test_numbers_are_columns(path):
    write(path, {"x": [1, 2, 3], "y": [0.5, 1.5, 2.5], "label": [2, 0, 1], "note": ["a", "b", "c"]})
    dataset = open_table(path, TensorSpec((2,)), columns={"data": ["x", "y"]})
    assert records(dataset) == [[1, 0.5], [2, 1.5], [3, 2.5]]
    assert records(dataset, "label") == [2, 0, 1]
    assert str(dataset.lazy) == "{}"
    assert records(open_table(path, TensorSpec((1,)), columns={"data": "x"})) == [[1], [2], [3]]
    words = open_table(path, TensorSpec(()), columns={"data": "x", "label": "note"})
    assert (records(words, "label"), words.classes) == ([0, 1, 2], ("a", "b", "c"))


def test_lists_have_the_networks_shape(path):
    values = np.arange(24, dtype=np.uint8).reshape(3, 8)
    lists = pyarrow.FixedSizeListArray.from_arrays(values.reshape(-1), 8)
    vectors = [[0.5, 1], [2, 3], [4, 5]]
    write(path, {"data": lists, "label": vectors})
    dataset = open_table(path, TensorSpec((1, 2, 4)), TensorSpec((2,)))
    assert (dataset.fields["data"].scale, dataset.whites) == (1.0, {})
    assert np.array_equal(dataset.fields["data"].records, values.reshape(3, 1, 2, 4))
    assert records(dataset, "label") == vectors
    given = TensorSpec((1, 2, 4)), TensorSpec((2,))
    assert open_table(path, *given, images={"data": 23}).fields["data"].scale == 1 / 23
    write(path, {"data": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], "label": [0, 1]})
    assert records(open_table(path, TensorSpec((2, 2)))) == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


def test_decimals_are_numbers(path):
    """Against Python's conversion of decimals."""
    prices = [Decimal("19.99"), Decimal("-0.01"), Decimal("12345678.25")]
    for kind in (pyarrow.decimal128(12, 2), pyarrow.decimal256(40, 2)):
        column = pyarrow.array(prices, kind)
        write(path, {"data": column, "label": column})
        dataset = open_table(path, TensorSpec(()), TensorSpec((), "float32"))
        expected = np.array([float(price) for price in prices], np.float32).tolist()
        assert records(dataset) == records(dataset, "label") == expected
    write(path, {"data": pyarrow.array([prices[:2]] * 2, pyarrow.list_(kind)), "label": [0, 1]})
    assert records(open_table(path, TensorSpec((2,)))) == [np.float32([19.99, -0.01]).tolist()] * 2


@pytest.mark.parametrize("kind", ["timestamp[us]", "date32[day]", "time32[s]", "duration[s]"])
def test_dates_and_times_are_refused_with_what_reads_them(path, kind):
    column = pyarrow.array([3, 4], "int32" if "32" in kind else "int64").cast(kind)
    write(path, {"data": column, "label": [0, 1]})
    with pytest.raises(UserError, match=r"column 'data' holds dates or times\n(.*\n)*.*CSV"):
        open_table(path, TensorSpec(()))


@pytest.mark.parametrize("kind", ["bytes", "struct"])
def test_images_are_bytes_or_structures(path, kind):
    write(path, {"image": images(5, kind), "label": [1, 0, 1, 0, 1]})
    dataset = open_table(path, IMAGE, columns={"data": "image"})
    for number in (4, 0, 3, 1, 2):
        assert np.array_equal(record_of(dataset, number), pixels(number).transpose(2, 0, 1))
    assert str(dataset.lazy["data"].source(3)) == str(path)
    assert dataset.lazy["data"].source(3).number == 3


def test_several_files_follow_each_other(tmp_path):
    for part in range(2):
        column = pyarrow.array([png(2 * part + at) for at in range(2)], pyarrow.binary())
        write(tmp_path / f"{part}.parquet", {"data": column, "label": [part, 1 - part]})
    dataset = open_table(tmp_path / "*.parquet", IMAGE)
    assert records(dataset, "label") == [0, 1, 1, 0]
    assert np.array_equal(record_of(dataset, 3), pixels(3).transpose(2, 0, 1))
    assert dataset.lazy["data"].source(3).file == str(tmp_path / "1.parquet")
    before = fingerprint(dataset)
    write(tmp_path / "1.parquet", {"data": images(2, "bytes"), "label": [1, 0]})
    assert fingerprint(open_table(tmp_path / "*.parquet", IMAGE)) != before
    write(tmp_path / "1.parquet", {"data": [1, 2], "label": [1, 0]})
    with pytest.raises(UserError, match=r"1\.parquet: column 'data' has another type"):
        open_table(tmp_path / "*.parquet", IMAGE)


def test_classes_of_hugging_face_have_their_names(path):
    features = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pyarrow.table({"data": [1.0, 2.0], "label": [1, 0]}).replace_schema_metadata(metadata)
    write(path, table)
    dataset = open_table(path, TensorSpec(()))
    assert (records(dataset, "label"), dataset.classes) == ([1, 0], ("cat", "dog"))


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"data": [1.0, None], "label": [0, 1]}, "column 'data' has no value"),
        ({"data": [1.0, 2.0], "label": [0, None]}, "column 'label' has no value"),
        ({"data": [1.0, 2.0], "label": [0.5, 1]}, "cannot be converted to int32"),
        ({"data": ["a", "b"], "label": [0, 1]}, "holds words, not numbers"),
        ({"data": [[1.0], [2.0, 3.0]], "label": [0, 1]}, "lists of different lengths"),
        ({"data": [[1.0], [None]], "label": [0, 1]}, "lists of different lengths"),
        ({"data": [{"x": 1}, {"x": 2}], "label": [0, 1]}, "neither numbers nor words"),
        ({"dat": [1.0, 2.0], "label": [0, 1]}, "no column is named 'data'"),
        ({"data": pyarrow.array([], pyarrow.float32()), "label": []}, "holds no records"),
    ],
)
def test_columns_that_cannot_be_used_are_named(path, columns, problem):
    write(path, columns)
    with pytest.raises(UserError, match=problem) as caught:
        open_table(path, TensorSpec(()))
    assert str(path) in str(caught.value)


def test_an_image_that_is_missing_is_named(path):
    write(path, {"data": pyarrow.array([png(0), None, png(2)], pyarrow.binary()), "label": [0] * 3})
    with pytest.raises(UserError, match="column 'data' has no image"):
        record_of(open_table(path, IMAGE), 1)


def test_other_files_are_named(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("label,data\n")
    with pytest.raises(UserError, match="neither a Parquet nor an Arrow file"):
        open_table(path, TensorSpec(()))


def test_without_pyarrow_the_error_names_the_extra(tmp_path):
    path = write(tmp_path / "a.parquet", {"data": [1.0], "label": [0]})
    script = f"""
import sys
sys.modules["pyarrow"] = None
from mxrun import library
from mxrun.base.errors import UserError
from mxrun.io.dataset.request import open_datasets, request_dataset
library.load()
try:
    open_datasets({{"it": request_dataset("parquet", {{"path": {str(path)!r}}}, None)}}, {{}})
except UserError as error:
    print(error)
"""
    command = [sys.executable, "-c", script]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "pip install 'mxrun[arrow]'" in text
