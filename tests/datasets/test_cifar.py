"""CIFAR's binary files: every byte in its place, and all kinds of damaged files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from damage import damage
from refusals import only_problem

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset

INPUTS = {"data": TensorSpec((3, 32, 32)), "label": TensorSpec((), "int32")}
PLACE = SourceLocation("c.yaml", 7, 3)
TEN, HUNDRED = 1 + 3072, 2 + 3072


def open_cifar(name: str, folder: Path, split: str = "test", **options: str) -> Dataset:
    request = request_dataset(name, {"path": str(folder), **options}, split, {"path": PLACE})
    return open_datasets({"it": request}, INPUTS)["it"]


def records(count: int, first: int = 0, labels: int = 1) -> bytes:
    """Record n: label n mod 10 (of two: n mod 20, then n), then 3,072 bytes."""
    result = bytearray()
    for n in range(first, first + count):
        result += bytes([n % 10]) if labels == 1 else bytes([n % 20, n])
        result += bytes((n * 31 + i * 7) % 256 for i in range(3072))
    return bytes(result)


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    for number in range(5):
        (tmp_path / f"data_batch_{number + 1}.bin").write_bytes(records(3, 3 * number))
    (tmp_path / "test_batch.bin").write_bytes(records(4))
    return tmp_path


@pytest.fixture
def hundred(tmp_path: Path) -> Path:
    (tmp_path / "test.bin").write_bytes(records(30, labels=2))
    (tmp_path / "fine_label_names.txt").write_text("".join(f"fine{n}\n" for n in range(100)))
    (tmp_path / "coarse_label_names.txt").write_text("".join(f"coarse{n}\n" for n in range(20)))
    return tmp_path


def test_cifar10_is_read_in_the_order_of_its_files(ten):
    train, test = open_cifar("cifar10", ten, "train"), open_cifar("cifar10", ten)
    assert (len(train), len(test)) == (15, 4)
    assert train.fields["label"].records.tolist() == [n % 10 for n in range(15)]
    content = records(15)
    for n in range(15):
        image = content[n * TEN + 1 : (n + 1) * TEN]
        assert train.fields["data"].records[n].tobytes() == image
    assert train.specs == INPUTS
    assert train.classes[:3] == ("airplane", "automobile", "bird")
    assert len(train.classes) == 10


def test_cifar100_has_fine_and_coarse_labels(hundred):
    fine, coarse = (open_cifar("cifar100", hundred, labels=kind) for kind in ("fine", "coarse"))
    assert fine.fields["label"].records.tolist() == list(range(30))
    assert coarse.fields["label"].records.tolist() == [n % 20 for n in range(30)]
    assert (fine.classes[99], coarse.classes[19]) == ("fine99", "coarse19")
    content = records(30, labels=2)
    for n in range(30):
        image = content[n * HUNDRED + 2 : (n + 1) * HUNDRED]
        assert fine.fields["data"].records[n].tobytes() == image


def failure(name: str, folder: Path, split: str = "test", **options: str) -> str:
    found = only_problem(open_cifar, name, folder, split, **options)
    assert found.place == PLACE
    return str(found)


@pytest.mark.parametrize("size", [0, 1, TEN - 1, TEN + 1, 3 * TEN + 1000])
def test_a_truncated_file_is_told_with_record_and_byte(ten, size):
    path = ten / "test_batch.bin"
    path.write_bytes(records(4)[:size])
    text = failure("cifar10", ten)
    assert str(path) in text
    assert f"byte {size}:" in text
    assert "empty" in text if size == 0 else f"record {size // TEN}:" in text


def test_a_label_that_is_no_class_is_told_with_record_and_byte(ten, hundred):
    content = bytearray(records(4))
    content[2 * TEN] = 10
    (ten / "test_batch.bin").write_bytes(content)
    text = failure("cifar10", ten)
    assert all(word in text for word in (f"byte {2 * TEN}:", "record 2:", "0 to 9", "got: 10"))
    content = bytearray(records(4, labels=2))
    content[3 * HUNDRED + 1] = 100
    (hundred / "test.bin").write_bytes(content)
    for kind in ("fine", "coarse"):
        text = failure("cifar100", hundred, labels=kind)
        assert all(word in text for word in (f"byte {3 * HUNDRED + 1}:", "record 3:", "0 to 99"))


def test_missing_files_and_names_are_told(ten, hundred):
    (ten / "data_batch_3.bin").unlink()
    assert "data_batch_3.bin not found" in failure("cifar10", ten, "train")
    assert "train.bin not found" in failure("cifar100", hundred, "train")
    (hundred / "fine_label_names.txt").write_text("one\ntwo\n")
    text = failure("cifar100", hundred)
    assert all(word in text for word in ("fine_label_names.txt", "100 lines", "got: 2"))


def test_damaged_files_give_an_error_or_a_valid_data_set(ten):
    path, draw = ten / "test_batch.bin", random.Random(3)
    refused, valid = [], 0
    for _ in range(200):
        path.write_bytes(damage(records(2), draw))
        try:
            dataset = open_cifar("cifar10", ten)
        except UserError as error:
            refused.append(str(error))
        else:
            labels = dataset.fields["label"].records
            assert 0 <= labels.min() <= labels.max() <= 9
            assert dataset.specs == INPUTS
            valid += 1
    assert len(refused) > 50
    assert all(f"{path}: byte " in text for text in refused)
    assert valid > 50
