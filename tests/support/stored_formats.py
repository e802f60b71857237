"""A small data set in each file format, and how it is opened."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from file_contents import png
from numpy.typing import NDArray

from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.formats.image_record import pack_image_record
from mxrun.io.formats.recordio import RecordWriter, scan_records
from mxrun.io.formats.tar_shards import TarWriter, scan_tar

COUNT = 6
IDX_IMAGES, IDX_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
IMAGE: Inputs = {"data": TensorSpec((3, 6, 8)), "label": TensorSpec((), "int32")}
NUMBERS: Inputs = {"data": TensorSpec((4,)), "label": TensorSpec((), "int32")}
DIGITS: Inputs = {"data": TensorSpec((1, 28, 28)), "label": TensorSpec((), "int32")}
CIFAR: Inputs = {"data": TensorSpec((3, 32, 32)), "label": TensorSpec((), "int32")}


@dataclass(frozen=True)
class StoredFormat:
    """Format of files: `write` makes a data set of COUNT records in a folder.

    damaged: the file to damage, path: the option `path`, both below the folder. ends: the offsets
    in the file at which a record ends, of a written folder. tells_cut: whether a file that ends
    between two records is known to be incomplete. has_lines: whether the end of a record is a line
    end, without which the last record may be complete.
    """

    dataset: str
    write: Callable[[Path], None]
    damaged: str
    path: str
    inputs: Inputs
    ends: Callable[[Path], list[int]]
    tells_cut: bool
    options: Mapping[str, object] = field(default_factory=dict)
    split: str | None = None
    has_lines: bool = False

    def open(self, folder: Path) -> Dataset:
        """Open the data set; raises UserError."""
        options = {"path": str(folder / self.path), **self.options}
        request = request_dataset(self.dataset, options, self.split)
        return open_datasets({"it": request}, self.inputs)["it"]


def _write_records(folder: Path) -> None:
    with (folder / "a.rec").open("wb") as stream, (folder / "a.idx").open("wb") as index:
        writer = RecordWriter(stream, index)
        for number in range(COUNT):
            writer.write(number, pack_image_record(float(number), number, png(number)))


def _write_records_alone(folder: Path) -> None:
    _write_records(folder)
    (folder / "a.idx").unlink()


def _record_ends(folder: Path) -> list[int]:
    return [each.start + each.size for each in scan_records(ByteFile(folder / "a.rec"), 0)]


def _write_tar(folder: Path) -> None:
    with (folder / "a.tar").open("wb") as stream, TarWriter(stream) as writer:
        for number in range(COUNT):
            writer.write(f"{number:06d}", {"png": png(number), "cls": b"%d" % number})


def _tar_ends(folder: Path) -> list[int]:
    members = list(scan_tar(ByteFile(folder / "a.tar")))
    return [-(-(each.start + each.size) // 512) * 512 for each in members[1::2]]


def _write_images(folder: Path) -> None:
    for number in range(COUNT):
        path = folder / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))


def _write_list(folder: Path) -> None:
    _write_images(folder)
    rows = (
        f"{number}\t{number}.0\tphotos/{'ab'[number % 2]}/{number}.png\n" for number in range(COUNT)
    )
    (folder / "a.lst").write_text("".join(rows))


def _rows() -> NDArray[np.float32]:
    return np.arange(COUNT * 4, dtype=np.float32).reshape(COUNT, 4) / 8


def _write_svm(folder: Path) -> None:
    rows = _rows().tolist()
    lines = (
        f"{number} " + " ".join(f"{at + 1}:{value:g}" for at, value in enumerate(row)) + "\n"
        for number, row in enumerate(rows)
    )
    (folder / "a.svm").write_text("".join(lines))


def _write_csv(folder: Path) -> None:
    rows = _rows().tolist()
    lines = (",".join(f"{value:g}" for value in (*row, at)) + "\n" for at, row in enumerate(rows))
    (folder / "a.csv").write_text("".join(lines))


def _line_ends(name: str) -> Callable[[Path], list[int]]:
    def ends(folder: Path) -> list[int]:
        content = (folder / name).read_bytes()
        return [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]

    return ends


def _write_arrays(folder: Path) -> None:
    np.save(folder / "data.npy", _rows())
    np.save(folder / "label.npy", np.arange(COUNT))


def _array_ends(folder: Path) -> list[int]:
    start = len((folder / "data.npy").read_bytes()) - COUNT * 16
    return [start + 16 * number for number in range(1, COUNT + 1)]


def _write_archive(folder: Path) -> None:
    np.savez(folder / "a.npz", data=_rows(), label=np.arange(COUNT))


def _archive_ends(folder: Path) -> list[int]:
    with zipfile.ZipFile(folder / "a.npz") as archive:
        return [info.header_offset + info.file_size for info in archive.infolist()]


def _write_idx(folder: Path) -> None:
    count = COUNT.to_bytes(4, "big")
    pixels = bytes(number % 251 for number in range(COUNT * 784))
    images = bytes.fromhex("00000803") + count + bytes.fromhex("0000001c") * 2 + pixels
    (folder / IDX_IMAGES).write_bytes(images)
    labels = bytes.fromhex("00000801") + count + bytes(range(COUNT))
    (folder / IDX_LABELS).write_bytes(labels)


def _write_cifar(folder: Path) -> None:
    record = bytes(number % 251 for number in range(3072))
    content = b"".join(bytes([number]) + record for number in range(COUNT))
    (folder / "test_batch.bin").write_bytes(content)


def _every(size: int, start: int = 0) -> Callable[[Path], list[int]]:
    return lambda folder: [start + size * number for number in range(1, COUNT + 1)]


def _write_parquet(folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"data": _rows().tolist(), "label": list(range(COUNT))})
    parquet.write_table(table, folder / "a.parquet", row_group_size=2, write_page_checksum=True)


def _write_arrow(folder: Path) -> None:
    import pyarrow
    from pyarrow import feather

    table = pyarrow.table({"data": _rows().tolist(), "label": list(range(COUNT))})
    feather.write_feather(table, folder / "a.arrow", compression="uncompressed", chunksize=2)


FORMATS: Mapping[str, StoredFormat] = {
    "recordio": StoredFormat(
        "recordio", _write_records, "a.rec", "a.rec", IMAGE, _record_ends, tells_cut=True
    ),
    "recordio without an index": StoredFormat(
        "recordio", _write_records_alone, "a.rec", "a.rec", IMAGE, _record_ends, tells_cut=False
    ),
    "index of recordio": StoredFormat(
        "recordio", _write_records, "a.idx", "a.rec", IMAGE, _line_ends("a.idx"), tells_cut=True
    ),
    "webdataset": StoredFormat(
        "webdataset", _write_tar, "a.tar", "a.tar", IMAGE, _tar_ends, tells_cut=True
    ),
    "image folder": StoredFormat(
        "image_folder", _write_images, "photos/a/2.png", "photos", IMAGE, _every(1), tells_cut=True
    ),
    "image list": StoredFormat(
        "image_list",
        _write_list,
        "a.lst",
        "a.lst",
        IMAGE,
        _line_ends("a.lst"),
        False,
        has_lines=True,
    ),
    "csv": StoredFormat(
        "csv", _write_csv, "a.csv", "a.csv", NUMBERS, _line_ends("a.csv"), False, has_lines=True
    ),
    "libsvm": StoredFormat(
        "libsvm", _write_svm, "a.svm", "a.svm", NUMBERS, _line_ends("a.svm"), False, has_lines=True
    ),
    "idx": StoredFormat(
        "mnist",
        _write_idx,
        "t10k-images-idx3-ubyte",
        "",
        DIGITS,
        _every(784, 16),
        True,
        split="test",
    ),
    "idx of labels": StoredFormat(
        "mnist", _write_idx, "t10k-labels-idx1-ubyte", "", DIGITS, _every(1, 8), True, split="test"
    ),
    "cifar": StoredFormat(
        "cifar10", _write_cifar, "test_batch.bin", "", CIFAR, _every(3073), False, split="test"
    ),
    "npy": StoredFormat("npy", _write_arrays, "data.npy", "", NUMBERS, _array_ends, tells_cut=True),
    "npy by record": StoredFormat(
        "npy", _write_arrays, "data.npy", "", NUMBERS, _array_ends, True, {"in_memory": False}
    ),
    "npz": StoredFormat(
        "npz", _write_archive, "a.npz", "a.npz", NUMBERS, _archive_ends, tells_cut=True
    ),
    "npz by record": StoredFormat(
        "npz", _write_archive, "a.npz", "a.npz", NUMBERS, _archive_ends, True, {"in_memory": False}
    ),
    "parquet": StoredFormat(
        "parquet", _write_parquet, "a.parquet", "a.parquet", NUMBERS, _every(40), tells_cut=True
    ),
    "arrow": StoredFormat(
        "parquet", _write_arrow, "a.arrow", "a.arrow", NUMBERS, _every(40), tells_cut=True
    ),
}
