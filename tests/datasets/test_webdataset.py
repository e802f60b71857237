"""Images and labels in tar files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
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
from mxrun.io.formats.tar_shards import TarWriter

CLASS = TensorSpec((), "int32")


def write(path: Path, records: Sequence[Mapping[str, bytes]]) -> Path:
    with path.open("wb") as stream, TarWriter(stream) as writer:
        for number, contents in enumerate(records):
            writer.write(f"{number:06d}", contents)
    return path


def open_shards(path: Path, spec: TensorSpec | None = CLASS, **options: Any) -> Dataset:
    inputs = {"data": TensorSpec((3, 6, 8))} | ({} if spec is None else {"label": spec})
    request = request_dataset("webdataset", {"path": str(path), **options}, None)
    return open_datasets({"it": request}, inputs)["it"]


def labels(dataset: Dataset) -> list[Any]:
    found: list[Any] = dataset.fields["label"].records.tolist()
    return found


def test_shards_are_one_data_set(tmp_path):
    for shard in range(2):
        records = [{"png": png(2 * shard + at), "cls": b"%d" % (2 * shard + at)} for at in range(2)]
        write(tmp_path / f"train-{shard:03d}.tar", records)
    dataset = open_shards(tmp_path / "train-{000..001}.tar")
    assert labels(dataset) == [0, 1, 2, 3]
    assert dataset.classes == ()
    for number in range(4):
        assert np.array_equal(record_of(dataset, number), pixels(number).transpose(2, 0, 1))
    assert str(dataset.lazy["data"].source(3)).startswith(f"{tmp_path}/train-001.tar, record 1 at")
    before = fingerprint(dataset)
    content = bytearray((tmp_path / "train-000.tar").read_bytes())
    content[512] ^= 1
    (tmp_path / "train-000.tar").write_bytes(content)
    assert fingerprint(open_shards(tmp_path / "train-*.tar")) != before


def test_labels_are_words_numbers_or_json(tmp_path):
    path = tmp_path / "a.tar"
    write(path, [{"png": png(0), "txt": b"dog\n"}, {"png": png(1), "txt": b"cat"}])
    dataset = open_shards(path, label="txt")
    assert (labels(dataset), dataset.classes) == ([1, 0], ("cat", "dog"))
    dataset = open_shards(path, label="txt", classes=["dog", "fox", "cat"])
    assert (labels(dataset), dataset.classes) == ([0, 2], ("dog", "fox", "cat"))
    with pytest.raises(UserError, match="the class is not known"):
        open_shards(path, label="txt", classes=["dog", "fox"])
    with pytest.raises(UserError, match="the label is not a number"):
        open_shards(path, TensorSpec(()), label="txt")
    write(path, [{"png": png(0), "cls": b"0.5 2"}, {"png": png(1), "cls": b"-1,3"}])
    assert labels(open_shards(path, TensorSpec((2,)))) == [[0.5, 2], [-1, 3]]
    values = [json.dumps({"id": 9, "a": {"kind": kind}}).encode() for kind in (3, 1)]
    write(path, [{"png": png(0), "json": each} for each in values])
    assert labels(open_shards(path, label="json", key="a.kind")) == [3, 1]
    with pytest.raises(UserError, match=r"has no key 'a\.kinds'") as caught:
        open_shards(path, label="json", key="a.kinds")
    assert "kind" in caught.value.diagnostics[0].hint
    with pytest.raises(UserError, match="neither a text nor numbers"):
        open_shards(path, label="json", key="a")


def test_several_classes_of_a_record_are_ones(tmp_path):
    path = tmp_path / "a.tar"
    write(path, [{"png": png(0), "cls": b"dog|cat"}, {"png": png(1), "cls": b"cat"}])
    options = {"separator": "|", "classes": ["cat", "dog", "fox"]}
    dataset = open_shards(path, TensorSpec((3,)), **options)
    assert (labels(dataset), dataset.classes) == ([[1, 1, 0], [1, 0, 0]], ("cat", "dog", "fox"))
    write(path, [{"png": png(0), "cls": b"2 0"}, {"png": png(1), "cls": b"1"}])
    assert labels(open_shards(path, TensorSpec((3,)), separator=" ")) == [[1, 0, 1], [0, 1, 0]]
    with pytest.raises(UserError, match="the class is not known"):
        open_shards(path, TensorSpec((2,)), separator=" ")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"label": 1e999}', "cannot be converted"),
        (b'{"label": NaN}', "cannot be converted"),
        (b'{"label": true}', ""),
        (b'{"label": %s}' % (b"9" * 400), "cannot be converted|not a number"),
    ],
)
def test_damaged_json_is_refused(tmp_path, content, problem):
    path = write(tmp_path / "a.tar", [{"png": png(0), "json": content}])
    if problem:
        with pytest.raises(UserError, match=problem):
            open_shards(path, TensorSpec(()), label="json")
    else:
        assert labels(open_shards(path, TensorSpec(()), label="json")) == [1]


def test_arrays_need_no_decoding(tmp_path):
    image = np.ascontiguousarray(pixels(1).transpose(2, 0, 1))
    stream = io.BytesIO()
    np.save(stream, image)
    path = write(tmp_path / "a.tar", [{"npy": stream.getvalue(), "cls": b"0"}] * 2)
    column = open_shards(path).lazy["data"]
    assert column.shape == (3, 6, 8)
    assert np.array_equal(column.record(1), image)


def test_records_without_image_or_label_are_named(tmp_path):
    path = write(tmp_path / "a.tar", [{"png": png(0), "cls": b"0"}, {"png": png(0)}])
    with pytest.raises(UserError, match="the record 000001 has no label") as caught:
        open_shards(path)
    assert "extensions png" in str(caught.value)
    write(path, [{"cls": b"0", "heic": b""}])
    with pytest.raises(UserError, match="the record 000000 has no image"):
        open_shards(path)
    write(path, [])
    with pytest.raises(UserError, match="holds no records"):
        open_shards(path)


def test_a_label_is_not_needed_by_a_network_without_one(tmp_path):
    path = write(tmp_path / "a.tar", [{"png": png(0)}, {"png": png(1)}])
    dataset = open_shards(path, None)
    assert dataset.fields == {}
    assert len(dataset) == 2


def test_a_byte_order_mark_is_no_part_of_a_label(tmp_path):
    mark = b"\xef\xbb\xbf"
    path = write(
        tmp_path / "a.tar", [{"png": png(at), "cls": mark + b"%d" % at} for at in range(2)]
    )
    assert (open_shards(path).classes, labels(open_shards(path))) == ((), [0, 1])
    records = [{"png": png(at), "json": mark + b'{"label": %d}' % at} for at in range(2)]
    path = write(tmp_path / "b.tar", records)
    assert labels(open_shards(path, label="json")) == [0, 1]
