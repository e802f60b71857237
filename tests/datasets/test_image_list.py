"""Lists of images: MXNet's with several labels, other roots, several classes, several lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lazy_columns import record_of
from PIL import Image

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset

CLASS = TensorSpec((), "int32")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(3):
        pixels = np.full((6, 8, 3), 40 * number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    return tmp_path


def open_list(path: Path, label: TensorSpec = CLASS, **options: Any) -> Dataset:
    inputs = {"data": TensorSpec((3, 6, 8)), "label": label}
    request = request_dataset("image_list", {"path": str(path), **options}, None)
    return open_datasets({"it": request}, inputs)["it"]


def labels(dataset: Dataset) -> list[Any]:
    found: list[Any] = dataset.fields["label"].records.tolist()
    return found


def write(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def test_lists_of_mxnet_have_one_label_or_several(folder):
    """As im2rec writes them: number, labels, file, with tabs between."""
    path = write(folder / "a.lst", "7\t1.000000\tphotos/1.png", "2\t0.000000\tphotos/0.png")
    dataset = open_list(path)
    assert labels(dataset) == [1, 0]
    assert record_of(dataset, 0)[0, 0, 0] == 40
    write(path, "0\t0.5\t2.0\tphotos/1.png", "1\t-1.0\t3.0\tphotos/0.png")
    assert labels(open_list(path, TensorSpec((2,)))) == [[0.5, 2], [-1, 3]]


def test_boxes_are_padded_rows(folder):
    path = write(
        folder / "a.lst",
        "0\t2\t5\t1\t0.25\t0.5\t0.75\t1\tphotos/1.png",
        "1\t2\t5\t0\t0\t0\t0.5\t0.5\t2\t0.5\t0.5\t1\t1\tphotos/0.png",
    )
    found = labels(open_list(path, TensorSpec((2, 5))))
    assert found == [
        [[1, 0.25, 0.5, 0.75, 1], [-1] * 5],
        [[0, 0, 0, 0.5, 0.5], [2, 0.5, 0.5, 1, 1]],
    ]
    write(path, "0\t2\t5\t1\t0.25\t0.5\t0.75\tphotos/1.png")
    with pytest.raises(UserError, match=r"1\.png: the label ends within a box"):
        open_list(path, TensorSpec((2, 5)))


def test_names_of_files_start_at_another_folder(folder):
    path = write(folder / "a.csv", "0.png,cat", "2.png,dog")
    dataset = open_list(path, root="photos")
    assert (labels(dataset), dataset.classes) == ([0, 1], ("cat", "dog"))
    assert open_list(path, root=str(folder / "photos")).classes == ("cat", "dog")
    with pytest.raises(UserError, match=r"a\.csv:1: .*0\.png is not there"):
        open_list(path)


def test_several_classes_of_an_image_are_ones(folder):
    path = write(folder / "a.csv", "photos/0.png,dog|cat", "photos/1.png,fox")
    names = ["cat", "dog", "fox"]
    dataset = open_list(path, TensorSpec((3,)), separator="|", classes=names)
    assert labels(dataset) == [[1, 1, 0], [0, 0, 1]]
    assert dataset.classes == ("cat", "dog", "fox")
    with pytest.raises(UserError, match="the class is not known") as caught:
        open_list(path, TensorSpec((2,)), separator="|", classes=names[:2])
    assert "1.png" in str(caught.value)
    with pytest.raises(UserError, match="need a label with a number for each class"):
        open_list(path, CLASS, separator="|")


def test_several_lists_are_one_data_set(folder):
    write(folder / "a.csv", "photos/0.png,cat")
    write(folder / "b.csv", "photos/1.png,dog", "photos/2.png,cat")
    dataset = open_list(folder / "*.csv")
    assert labels(dataset) == [0, 1, 0]
    assert str(dataset.lazy["data"].source(2)) == str(folder / "photos" / "2.png")


def test_line_ends_are_those_of_text_files_alone(folder):
    path = write(folder / "a.csv", "photos/0.png,one\u2028two", "photos/1.png,a\x0cb")
    assert open_list(path).classes == ("a\x0cb", "one\u2028two")
    path.write_bytes(b"file,label\rphotos/0.png,cat\rphotos/1.png,dog\r")
    assert open_list(path).classes == ("cat", "dog")


def test_a_quote_that_is_never_closed_takes_no_rows(folder):
    path = write(folder / "a.csv", 'photos/0.png,"cat', "photos/1.png,dog", "photos/2.png,dog")
    with pytest.raises(UserError, match="a cell in quotes ends after the line"):
        open_list(path)


def test_names_that_look_alike_are_one_class(folder):
    path = write(folder / "a.csv", "photos/0.png,caf\u00e9", "photos/1.png,cafe\u0301")
    dataset = open_list(path)
    assert (dataset.classes, labels(dataset)) == (("caf\u00e9",), [0, 0])
    # Names that are given are taken as they are.
    both = ["cafe\u0301", "caf\u00e9"]
    assert labels(open_list(path, classes=both)) == [1, 0]


def test_a_missing_label_is_no_class_among_numbers(folder):
    path = write(folder / "a.csv", "photos/0.png,1", "photos/1.png,nan")
    with pytest.raises(UserError, match=r"1\.png: the label is not finite"):
        open_list(path)
