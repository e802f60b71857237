"""Files in LIBSVM's text format."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset

CLASS = TensorSpec((), "int32")
MXNET = """
import json, sys
import mxnet
batch = next(mxnet.io.LibSVMIter(data_libsvm=sys.argv[1], data_shape=(4,), batch_size=3))
print(json.dumps([batch.label[0].asnumpy().tolist(), batch.data[0].asnumpy().tolist()]))
"""


def open_libsvm(
    path: Path, label: TensorSpec = CLASS, width: int = 4, **options: object
) -> Dataset:
    inputs = {"data": TensorSpec((width,)), "label": label}
    request = request_dataset("libsvm", {"path": str(path), **options}, None)
    return open_datasets({"it": request}, inputs)["it"]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_what_is_not_written_is_zero(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:0.5 4:-2\n0\n\n# comment\n2 2:1e2 # more\n")
    dataset = open_libsvm(path)
    assert dataset.fields["data"].records.tolist() == [[0.5, 0, 0, -2], [0] * 4, [0, 100, 0, 0]]
    assert dataset.fields["label"].records.tolist() == [1, 0, 2]
    assert dataset.classes == ()
    numbers = open_libsvm(path, TensorSpec(())).fields["label"].records
    assert (numbers.dtype, numbers.tolist()) == (np.float32, [1, 0, 2])


@pytest.mark.skipif("MXRUN_MXNET_PYTHON" not in os.environ, reason="MXRUN_MXNET_PYTHON is not set")
def test_indices_from_zero_are_mxnets(tmp_path):
    path = write(tmp_path / "a.svm", "1 0:0.5 3:-2\n0 1:7\n2 1:1e2 2:0.25\n")
    command = [os.environ["MXRUN_MXNET_PYTHON"], "-c", MXNET, str(path)]
    labels, data = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    dataset = open_libsvm(path, first_index=0)
    assert dataset.fields["label"].records.tolist() == labels
    assert dataset.fields["data"].records.tolist() == data


def test_labels_are_classes_in_ascending_order(tmp_path):
    path = write(tmp_path / "a.svm", "+1 1:1\n-1 2:1\n1.0 3:1\n")
    dataset = open_libsvm(path)
    assert (dataset.classes, dataset.fields["label"].records.tolist()) == (("-1", "1"), [1, 0, 1])
    write(path, "spam 1:1\nham 2:1\n")
    dataset = open_libsvm(path)
    assert (dataset.classes, dataset.fields["label"].records.tolist()) == (("ham", "spam"), [1, 0])


def test_several_labels_are_numbers_or_classes(tmp_path):
    path = write(tmp_path / "a.svm", "0.5,2 1:1\n1,0 2:1\n")
    assert open_libsvm(path, TensorSpec((2,))).fields["label"].records.tolist() == [
        [0.5, 2],
        [1, 0],
    ]
    write(path, "2,0 1:1\n1 2:1\n")
    dataset = open_libsvm(path, TensorSpec((3,)), separator=",")
    assert dataset.fields["label"].records.tolist() == [[1, 0, 1], [0, 1, 0]]


def test_several_files_follow_each_other(tmp_path):
    write(tmp_path / "a.svm", "0 1:1\n")
    write(tmp_path / "b.svm", "1 2:1\n0 1:x\n")
    with pytest.raises(UserError, match=r"b\.svm:2: not a record"):
        open_libsvm(tmp_path / "*.svm")
    write(tmp_path / "b.svm", "1 2:1\n")
    assert open_libsvm(tmp_path / "*.svm").fields["label"].records.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1 0:1\n", "the index 0 is below the first one"),
        ("1 5:1\n", "the index exceeds the network's input"),
        ("1 2:1 1:1\n", "the indices do not ascend"),
        ("1 2:1 2:1\n", "the indices do not ascend"),
        ("1 2:\n", "not a record"),
        ("1 2:1_0\n", "not a record"),
        ("1 2:nan\n", "not a record"),
        ("1 1:1e99\n", "cannot be converted"),
        ("1 qid:3 2:1\n", "ranking"),
        ("1 999999999:1\n", "the index exceeds the network's input"),
        ("1 9999999999:1\n", "not a record"),
        ("", "holds no records"),
    ],
)
def test_what_is_no_record_is_refused_with_its_line(tmp_path, text, problem):
    path = write(tmp_path / "a.svm", text)
    with pytest.raises(UserError, match=problem) as caught:
        open_libsvm(path)
    assert str(path) in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_first_label(tmp_path):
    path = tmp_path / "a.svm"
    path.write_bytes(b"\xef\xbb\xbf1 1:1\n0 1:2\n")
    dataset = open_libsvm(path)
    assert (dataset.classes, dataset.fields["label"].records.tolist()) == ((), [1, 0])


@pytest.mark.parametrize("label", ["nan", "-inf", "NaN"])
def test_a_label_that_is_not_finite_is_no_class_among_numbers(tmp_path, label):
    path = write(tmp_path / "a.svm", f"0 1:1\n1 1:2\n{label} 1:3\n")
    with pytest.raises(UserError, match=r"a\.svm:3: the label is not finite"):
        open_libsvm(path)


def test_blank_lines_are_skipped_and_a_last_line_without_end_is_said(tmp_path):
    """As scikit-learn's `load_svmlight_file` reads both."""
    path = write(tmp_path / "a.svm", "0 1:0.5\n  \n\t\r\n#\n1 1:0.75")
    dataset = open_libsvm(path)
    assert dataset.fields["data"].records[:, 0].tolist() == [0.5, 0.75]
    assert dataset.fields["label"].records.tolist() == [0, 1]
    assert dataset.notes == (f"{path}:5: the last line has no end: the file may be cut there",)
    assert open_libsvm(write(path, "0 1:0.5\n\n")).notes == ()
