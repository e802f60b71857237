"""Arrays in the .npy files of a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fingerprint import fingerprint
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.formats.stored_arrays import stored_npy

DATA = np.arange(60, dtype=np.float32).reshape(5, 3, 4)


def open_folder(path: Path, **options: object) -> Dataset:
    inputs = {"data": TensorSpec((3, 4)), "label": TensorSpec((), "int32")}
    request = request_dataset("npy", {"path": str(path), **options}, None)
    return open_datasets({"it": request}, inputs)["it"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", DATA)
    np.save(tmp_path / "label.npy", np.arange(5) % 2)
    return tmp_path


def test_files_are_the_networks_inputs(folder):
    dataset = open_folder(folder, arrays={"data": "x"})
    assert np.array_equal(dataset.fields["data"].records, DATA)
    assert dataset.fields["label"].records.tolist() == [0, 1, 0, 1, 0]
    with pytest.raises(UserError, match=r"data\.npy not found"):
        open_folder(folder)


def test_a_file_larger_than_memory_is_read_record_by_record(folder):
    """The file takes no space on the disk, but 4 TiB in memory."""
    with (folder / "x.npy").open("wb") as stream:
        header = {"descr": "|u1", "fortran_order": False, "shape": (5 << 36, 3, 4)}
        np.lib.format.write_array_header_1_0(stream, header)
        start = stream.tell()
        stream.truncate(start + (5 << 36) * 12)
    assert stored_npy(folder / "x.npy").record(1 << 36).tolist() == [[0] * 4] * 3
    with (folder / "x.npy").open("r+b") as stream:
        stream.seek(start + 12 * (3 << 36))
        stream.write(bytes(range(12)))
    record = stored_npy(folder / "x.npy").record(3 << 36)
    assert record.tolist() == np.arange(12).reshape(3, 4).tolist()


def test_the_fingerprint_tells_other_content(folder):
    options = {"arrays": {"data": "x"}, "in_memory": False}
    before = fingerprint(open_folder(folder, **options))
    assert fingerprint(open_folder(folder, **options)) == before
    changed = DATA.copy()
    changed[4, 2, 3] = -1
    np.save(folder / "x.npy", changed)
    assert fingerprint(open_folder(folder, **options)) != before
