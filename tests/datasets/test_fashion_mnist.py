"""Fashion-MNIST: MNIST's files with the names of its own classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.fetch.files import SOURCE_FILE
from mxrun.survey.arrays import known_files

INPUTS = {"data": TensorSpec((1, 28, 28)), "label": TensorSpec((), "int32")}


def write(folder: Path, labels: list[int]) -> None:
    """Write IDX files of the test part: images of one value each, and their labels."""
    count = len(labels)
    pixels = np.repeat(np.arange(count, dtype=np.uint8), 784).tobytes()
    sizes = b"".join(size.to_bytes(4, "big") for size in (count, 28, 28))
    (folder / "t10k-images-idx3-ubyte").write_bytes(bytes([0, 0, 8, 3]) + sizes + pixels)
    header = bytes([0, 0, 8, 1]) + count.to_bytes(4, "big")
    (folder / "t10k-labels-idx1-ubyte").write_bytes(header + bytes(labels))


def opened(folder: Path) -> Dataset:
    request = request_dataset("fashion_mnist", {"path": str(folder)}, "test")
    return open_datasets({"it": request}, INPUTS)["it"]


def test_classes_have_names(tmp_path: Path) -> None:
    write(tmp_path, [9, 0, 7])
    dataset = opened(tmp_path)
    assert [dataset.classes[label] for label in dataset.fields["label"].records] == [
        "Ankle boot",
        "T-shirt/top",
        "Sneaker",
    ]
    assert dataset.fields["data"].records[2].max() == 2
    assert len(dataset.classes) == 10


def test_labels_beyond_the_classes_are_refused(tmp_path: Path) -> None:
    write(tmp_path, [1, 10])
    with pytest.raises(UserError, match="label of record 1 is not a class"):
        opened(tmp_path)


def test_init_knows_them_by_their_fetch(tmp_path: Path) -> None:
    write(tmp_path, [1, 2])
    assert known_files(tmp_path) == ("mnist", ("test",))
    (tmp_path / SOURCE_FILE).write_text(json.dumps({"dataset": "fashion_mnist", "files": {}}))
    assert known_files(tmp_path) == ("fashion_mnist", ("test",))
    (tmp_path / SOURCE_FILE).write_text(json.dumps({"dataset": "cifar10"}))
    assert known_files(tmp_path) == ("mnist", ("test",))
    (tmp_path / SOURCE_FILE).write_text("[not JSON")
    assert known_files(tmp_path) == ("mnist", ("test",))
