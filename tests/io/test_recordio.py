"""RecordIO files and image records: byte for byte MXNet's, and damaged ones."""

import io
import os
import random
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mxrun.base.errors import UserError
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.formats.image_record import pack_image_record, unpack_image_record
from mxrun.io.formats.recordio import (
    MAXIMUM_PAYLOAD,
    RecordWriter,
    encode_record,
    read_index,
    read_record,
    scan_records,
)

MAGIC = struct.pack("<I", 0xCED7230A)
# Reads the records that mxrun wrote and writes the same ones. Payloads are in a file, each after
# its length.
MXNET = """
import os, struct, sys
import mxnet
folder = sys.argv[1]
content, payloads = open(os.path.join(folder, "payloads"), "rb").read(), []
while content:
    size, = struct.unpack("<I", content[:4])
    payloads.append(content[4:4 + size])
    content = content[4 + size:]
name = lambda file: os.path.join(folder, file)
records = mxnet.recordio.MXIndexedRecordIO(name("ours.idx"), name("ours.rec"), "r")
assert [records.read_idx(key) for key in records.keys] == payloads
records = mxnet.recordio.MXIndexedRecordIO(name("theirs.idx"), name("theirs.rec"), "w")
for key, payload in enumerate(payloads):
    records.write_idx(key, payload)
records.close()
"""
with_mxnet = pytest.mark.skipif(
    "MXRUN_MXNET_PYTHON" not in os.environ, reason="MXRUN_MXNET_PYTHON is not set"
)


def payloads() -> list[bytes]:
    """Payloads of every length up to 9, and ones with the magic number at all places."""
    draw = random.Random(5)
    pieces = [MAGIC, b"x", b"abcd", MAGIC[:3], MAGIC[1:]]
    found = [b"0123456789"[:length] for length in range(10)]
    found += [MAGIC, MAGIC + MAGIC, b"abcd" + MAGIC, MAGIC + b"q", b"a" + MAGIC, MAGIC + b"abcd"]
    return found + [b"".join(draw.choices(pieces, k=draw.randrange(20))) for _ in range(200)]


def write(folder: Path, records: list[bytes]) -> Path:
    path = folder / "ours.rec"
    with path.open("wb") as stream, path.with_suffix(".idx").open("wb") as index:
        writer = RecordWriter(stream, index)
        for key, payload in enumerate(records):
            writer.write(key, payload)
    return path


def read(path: Path) -> list[bytes]:
    file = ByteFile(path)
    return [bytes(read_record(file, each.start, each.size)) for each in scan_records(file, 0)]


def test_records_are_read_as_written(tmp_path):
    records = payloads()
    path = write(tmp_path, records)
    assert read(path) == records
    file = ByteFile(path)
    heads = list(scan_records(file, 6))
    assert [each.payload for each in heads] == [len(payload) for payload in records]
    assert [each.start for each in heads] == list(read_index(path.with_suffix(".idx")).values())
    for each, payload in zip(heads, records, strict=True):
        assert payload.startswith(each.head)
        assert len(each.head) == 6 or len(payload) < 6 or MAGIC in payload


def test_a_record_with_the_magic_number_is_split_where_the_format_says():
    """Words: magic, kind << 29 | length; the numbers are those of dmlc-core's description."""
    content = encode_record(b"abcd" + MAGIC + b"ef")
    parts = (0xCED7230A, 1 << 29 | 4), (0xCED7230A, 3 << 29 | 2)
    first, second = (struct.pack("<II", *part) for part in parts)
    assert content == first + b"abcd" + second + b"ef\0\0"
    # Elsewhere than at a multiple of 4 it is data like any other.
    assert (
        encode_record(b"a" + MAGIC) == struct.pack("<II", 0xCED7230A, 5) + b"a" + MAGIC + b"\0" * 3
    )


@with_mxnet
def test_files_are_byte_for_byte_mxnets(tmp_path):
    records = payloads()
    path = write(tmp_path, records)
    packed = b"".join(struct.pack("<I", len(payload)) + payload for payload in records)
    (tmp_path / "payloads").write_bytes(packed)
    command = [os.environ["MXRUN_MXNET_PYTHON"], "-c", MXNET, str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    for suffix in (".rec", ".idx"):
        theirs = (tmp_path / f"theirs{suffix}").read_bytes()
        assert path.with_suffix(suffix).read_bytes() == theirs


def test_a_cut_file_is_refused_unless_it_ends_between_records(tmp_path):
    records = [b"abc", b"", b"abcd" + MAGIC + b"ef", b"12345678"]
    path = write(tmp_path, records)
    content = path.read_bytes()
    ends = {each.start + each.size for each in scan_records(ByteFile(path), 0)}
    for length in range(len(content)):
        path.write_bytes(content[:length])
        if length in ends | {0}:
            assert read(path) == records[: len([end for end in ends if end <= length])]
            continue
        with pytest.raises(UserError, match=f"{path}: byte "):
            read(path)


def test_a_length_beyond_the_file_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "long.rec"
    path.write_bytes(struct.pack("<II", 0xCED7230A, MAXIMUM_PAYLOAD) + b"abcd")
    with pytest.raises(UserError, match="the file ends within a record") as caught:
        read(path)
    assert caught.value.diagnostics[0].expected == "536,870,911 bytes"


def test_other_files_are_named(tmp_path):
    path = tmp_path / "photo.rec"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" * 4)
    with pytest.raises(UserError, match="byte 0: not a RecordIO file"):
        read(path)
    os.mkfifo(tmp_path / "pipe.rec")
    for name in ("pipe.rec", "."):
        with pytest.raises(UserError, match="not a regular file"):
            read(tmp_path / name)


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path):
    path = write(tmp_path, [b"abcd" * 9, b"efgh" * 9])
    file = ByteFile(path)
    last = list(scan_records(file, 0))[-1]
    os.truncate(path, last.start + 5)
    with pytest.raises(UserError, match="became shorter"):
        read_record(file, last.start, last.size)


def test_a_file_without_a_descriptor_of_its_own_is_read_alike(tmp_path):
    path = write(tmp_path, payloads())
    file = ByteFile(path, stays_open=False)
    assert [each.size for each in scan_records(file, 0)] == [
        each.size for each in scan_records(ByteFile(path), 0)
    ]


def test_payloads_of_too_many_bytes_are_refused():
    with pytest.raises(UserError, match="too large for RecordIO"):
        RecordWriter(io.BytesIO()).write(0, bytes(MAXIMUM_PAYLOAD + 1))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"0\t0\n1\t1", r":2: the last line is incomplete"),
        (b"0\t0\n1 16\n", r":2: not a line of an index file"),
        (b"0\t0\n0\t16\n", r":2: the key 0 occurs twice"),
        (b"0\t-4\n", r":1: not a line of an index file"),
    ],
)
def test_damaged_index_files_are_refused(tmp_path, content, problem):
    path = tmp_path / "records.idx"
    path.write_bytes(content)
    with pytest.raises(UserError, match=problem):
        read_index(path)


@pytest.mark.parametrize("labels", [3.0, [1.5], [2.0, 5.0, 1.0, 0.1, 0.2, 0.3, 0.4]])
def test_image_records_are_read_as_packed(labels):
    payload = pack_image_record(labels, 7, b"image")
    record = unpack_image_record(payload, "here")
    expected = np.array(labels, np.float32).reshape(-1)
    np.testing.assert_array_equal(record.labels, expected)
    assert (record.number, record.second_number, bytes(record.content)) == (7, 0, b"image")


def test_incomplete_image_records_are_refused():
    with pytest.raises(UserError, match="here: not an image record"):
        unpack_image_record(b"too short", "here")
    payload = bytearray(pack_image_record([1.0, 2.0], 0, b""))
    payload[3] = 255
    with pytest.raises(UserError, match="here: not an image record") as caught:
        unpack_image_record(bytes(payload), "here")
    assert "4,278,190,082 labels" in str(caught.value)
