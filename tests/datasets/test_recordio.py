"""Image records in RecordIO files, of MXNet and of mxrun."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_contents import npy, pixels, png
from lazy_columns import record_of

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.fingerprint import fingerprint
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.formats.class_names import encode_class_names
from mxrun.io.formats.image_record import pack_image_record
from mxrun.io.formats.recordio import RecordWriter

DATA = TensorSpec((3, 6, 8))
CLASS = TensorSpec((), "int32")
BOXES = TensorSpec((3, 5))
COUNT = 5
# Labels of MXNet's detection lists: 2 numbers before the boxes, 5 of each box.
TWO_BOXES = [2, 5, 1, 0.1, 0.2, 0.3, 0.4, 0, 0.5, 0.5, 1, 1]
# Packs each image with its label, as im2rec does; the labels are JSON, the images files.
MXNET_PACKS = """
import json, sys
import mxnet
from mxnet.recordio import IRHeader, MXIndexedRecordIO, pack
folder, labels = sys.argv[1], json.loads(sys.argv[2])
records = MXIndexedRecordIO(folder + "/theirs.idx", folder + "/theirs.rec", "w")
for key, label in enumerate(labels):
    content = open(f"{folder}/{key}.png", "rb").read()
    records.write_idx(key, pack(IRHeader(0, label, key, 0), content))
records.close()
"""
# Prints labels and pixels of the batches of an iterator, images in red, green, blue.
MXNET_ITERATES = """
import json, sys
import mxnet
path, shape = sys.argv[1], json.loads(sys.argv[2])
batches = mxnet.io.ImageRecordIter(
    path_imgrec=path, data_shape=shape, batch_size=5, label_width=int(sys.argv[3]))
for batch in batches:
    print(json.dumps([batch.label[0].asnumpy().tolist(), batch.data[0].asnumpy().tolist()]))
"""
# Prints the boxes that MXNet's iterator over detection records gives.
MXNET_DETECTS = """
import json, sys
import numpy
import mxnet
import mxnet.image.detection as detection
path = sys.argv[1]
records = mxnet.recordio.MXRecordIO(path, "r")
parse = detection.ImageDetIter._parse_label
labels = []
while (record := records.read()) is not None:
    header, _ = mxnet.recordio.unpack(record)
    labels.append(parse(None, numpy.asarray(header.label)).tolist())
print(json.dumps(labels))
"""
with_mxnet = pytest.mark.skipif(
    "MXRUN_MXNET_PYTHON" not in os.environ, reason="MXRUN_MXNET_PYTHON is not set"
)


def write(path: Path, records: Sequence[tuple[Any, bytes]]) -> Path:
    """Write image records of (label, content)."""
    with path.open("wb") as stream, path.with_suffix(".idx").open("wb") as index:
        writer = RecordWriter(stream, index)
        for number, (label, content) in enumerate(records):
            writer.write(number, pack_image_record(label, number, content))
    return path


def open_records(path: Any, label: TensorSpec | None = CLASS, **options: Any) -> Dataset:
    given = [str(each) for each in path] if isinstance(path, list) else str(path)
    inputs: Inputs = {"data": DATA} | ({} if label is None else {"label": label})
    request = request_dataset("recordio", {"path": given, **options}, None)
    # The images' own size: a test reads them without transforms.
    return open_datasets({"it": request}, inputs)["it"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "ours.rec", [(float(at % 3), png(at)) for at in range(COUNT)])


def mxnet(script: str, *arguments: object) -> str:
    command = [os.environ["MXRUN_MXNET_PYTHON"], "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_records_have_their_images_labels_and_places(path):
    dataset = open_records(path)
    assert dataset.fields["label"].records.tolist() == [0, 1, 2, 0, 1]
    assert dataset.classes == ()
    for number in range(COUNT):
        assert np.array_equal(record_of(dataset, number), pixels(number).transpose(2, 0, 1))
    offsets = [
        int(line.split("\t")[1]) for line in path.with_suffix(".idx").read_text().split("\n")[:-1]
    ]
    places = [dataset.lazy["data"].source(number) for number in range(COUNT)]
    assert [(each.number, each.offset) for each in places] == list(enumerate(offsets))
    assert str(places[2]) == f"{path}, record 2 at byte {offsets[2]}"


@pytest.mark.parametrize("indexed", [False, True])
def test_ranges_of_insightface_are_no_images(tmp_path, indexed):
    """Its first record says where images end and identities begin; those are ranges of images."""
    ranges = [(np.float32([5, 7]), b""), (np.float32([1, 3]), b""), (np.float32([3, 5]), b"")]
    images = [(float(at // 2), png(at)) for at in range(4)]
    path = write(tmp_path / "train.rec", [ranges[0], *images, *ranges[1:]])
    options = {"index": "train.idx"} if indexed else {}
    dataset = open_records(path, **options)
    assert dataset.fields["label"].records.tolist() == [0, 0, 1, 1]
    for number in range(4):
        assert np.array_equal(record_of(dataset, number), pixels(number).transpose(2, 0, 1))
        assert dataset.lazy["data"].source(number).number == number + 1
    assert dataset.notes == (
        f"{path}: 3 records hold a range of record numbers and no image, as of insightface: left "
        "out",
    )


def test_other_records_without_an_image_are_not_left_out(tmp_path):
    """They are damaged: only a file that begins with a range has ranges."""
    bare = (np.float32([1, 3]), b"")
    path = write(tmp_path / "a.rec", [(np.float32([0, 1]), png(0)), bare])
    dataset = open_records(path, TensorSpec((2,)))
    assert (len(dataset), dataset.notes) == (2, ())
    with pytest.raises(UserError, match=r"record 1 at byte .*the file is empty"):
        record_of(dataset, 1)
    write(path, [bare, bare])
    with pytest.raises(UserError, match="holds no images"):
        open_records(path)


def test_several_files_are_one_data_set(tmp_path):
    for number in range(3):
        write(tmp_path / f"part-{number}.rec", [(float(number), png(number))] * (number + 1))
    dataset = open_records(tmp_path / "part-*.rec")
    assert dataset.fields["label"].records.tolist() == [0, 1, 1, 2, 2, 2]
    assert np.array_equal(record_of(dataset, 5), pixels(2).transpose(2, 0, 1))
    reverse = open_records([tmp_path / "part-2.rec", tmp_path / "part-0.rec"])
    assert reverse.fields["label"].records.tolist() == [2, 2, 2, 0]
    assert str(reverse.lazy["data"].source(3)) == str(tmp_path / "part-0.rec")


def test_classes_beside_the_records_are_their_names(path):
    names = ("cat", "dog", "bird")
    path.with_suffix(".classes").write_bytes(encode_class_names(names))
    assert open_records(path).classes == names
    # As text editors may write it.
    marked = b"\xef\xbb\xbf" + encode_class_names(names).replace(b"\n", b"\r\n") + b"\r\n"
    path.with_suffix(".classes").write_bytes(marked)
    assert open_records(path).classes == names
    # Without its empty line dog would be the name of class 1.
    path.with_suffix(".classes").write_text("cat\n\ndog\n")
    with pytest.raises(UserError, match=r"\.classes:2: the line is empty"):
        open_records(path)
    path.with_suffix(".classes").write_text("cat\ndog\n")
    with pytest.raises(UserError, match="label of record 2 is none of the 2 classes"):
        open_records(path)


def test_arrays_need_no_decoding(tmp_path):
    images = [pixels(number).transpose(2, 0, 1) for number in range(COUNT)]
    path = write(tmp_path / "a.rec", [(1.0, npy(np.ascontiguousarray(each))) for each in images])
    dataset = open_records(path)
    column = dataset.lazy["data"]
    assert column.shape == (3, 6, 8)
    for number, image in enumerate(images):
        record = column.record(number)
        assert isinstance(record, np.ndarray)
        assert np.array_equal(record, image)
    other = write(tmp_path / "b.rec", [(1.0, npy(np.zeros((3, 6, 8), np.float32)))])
    with pytest.raises(UserError, match="the array is no image") as caught:
        open_records(other)
    assert "float32 [3, 6, 8]" in str(caught.value)


def test_labels_are_what_the_network_takes(tmp_path):
    path = write(tmp_path / "v.rec", [([0.5, -2.0, 7.0], png(0)), ([1.0, 2.0, 3.0], png(1))])
    vectors = open_records(path, TensorSpec((3,)))
    assert vectors.fields["label"].records.tolist() == [[0.5, -2, 7], [1, 2, 3]]
    with pytest.raises(UserError, match="label does not fit the network's input") as caught:
        open_records(path)
    assert str(path) in str(caught.value)
    write(path, [(1.0, png(0)), (0.5, png(1))])
    with pytest.raises(UserError, match=r"record 1 at byte .* cannot be converted to int32"):
        open_records(path)
    assert open_records(path, TensorSpec(())).fields["label"].records.tolist() == [1, 0.5]


def test_boxes_are_padded_to_the_networks_count(tmp_path):
    no_area = [2, 5, 3, 0.4, 0.4, 0.4, 0.6]
    longer = [4, 6, 640, 480, 2, 0.1, 0.1, 0.2, 0.2, 1]
    path = write(tmp_path / "b.rec", [(each, png(0)) for each in (TWO_BOXES, no_area, longer)])
    found = open_records(path, BOXES).fields["label"].records
    nothing = [-1] * 5
    first = [[1, 0.1, 0.2, 0.3, 0.4], [0, 0.5, 0.5, 1, 1], nothing]
    last = [[2, 0.1, 0.1, 0.2, 0.2], nothing, nothing]
    np.testing.assert_array_equal(found, np.float32([first, [nothing] * 3, last]))
    with pytest.raises(UserError, match="more boxes than the network takes") as caught:
        open_records(path, TensorSpec((1, 5)))
    assert "[2, 5]" in str(caught.value)


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ([2, 5, 1, 0.1, 0.2, 0.3], "ends within a box"),
        ([2, 4, 1, 0.1, 0.2, 0.3], "two widths of boxes"),
        ([1, 5], "two widths of boxes"),
        ([200, 5], "two widths of boxes"),
        ([float("nan"), 5], "holds no boxes"),
        (1.0, "holds no boxes"),
    ],
)
def test_labels_that_are_no_boxes_are_refused(tmp_path, label, problem):
    path = write(tmp_path / "b.rec", [(TWO_BOXES, png(0)), (label, png(1))])
    with pytest.raises(UserError, match=problem) as caught:
        open_records(path, BOXES)
    assert "record 1 at byte" in str(caught.value)


def test_an_index_selects_records_in_its_order(path):
    lines = path.with_suffix(".idx").read_text().splitlines(keepends=True)
    chosen = path.with_name("chosen.idx")
    chosen.write_text(lines[3] + lines[1])
    dataset = open_records(path, index="chosen.idx")
    assert dataset.fields["label"].records.tolist() == [0, 1]
    assert dataset.lazy["data"].source(0).number == 3
    assert np.array_equal(record_of(dataset, 1), pixels(1).transpose(2, 0, 1))
    assert fingerprint(dataset) != fingerprint(open_records(path))
    chosen.write_text("0\t4\n")
    with pytest.raises(UserError, match=r"chosen\.idx:1: no record of"):
        open_records(path, index="chosen.idx")


def test_an_index_beside_the_records_tells_a_cut_file(path):
    """A RecordIO file that ends between two records is complete by itself."""
    offset = int(path.with_suffix(".idx").read_text().split("\n")[3].split("\t")[1])
    os.truncate(path, offset)
    with pytest.raises(UserError, match=r"ours\.idx:4: no record of") as caught:
        open_records(path)
    assert "remove it" in str(caught.value)
    path.with_suffix(".idx").unlink()
    assert len(open_records(path)) == 3
    path.write_bytes(b"")
    with pytest.raises(UserError, match="holds no records"):
        open_records(path)


def test_an_index_of_fewer_records_is_refused(path):
    index = path.with_suffix(".idx")
    index.write_text("".join(index.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(UserError, match="has other records than its index file"):
        open_records(path)


def test_the_fingerprint_tells_other_content(path):
    before = fingerprint(open_records(path))
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    assert fingerprint(open_records(path)) != before


def test_payloads_that_are_no_image_records_are_refused(tmp_path):
    path = tmp_path / "words.rec"
    with path.open("wb") as stream:
        RecordWriter(stream).write(0, b"words")
    with pytest.raises(UserError, match="not an image record"):
        open_records(path)


@with_mxnet
@pytest.mark.parametrize(
    ("labels", "spec"),
    [
        ([2.0, 0.0, 1.0, 4.0, 3.0], CLASS),
        ([[0.25, 3.0], [1.0, 1.0], [0.0, 9.0], [5.0, 6.0], [7.0, 8.0]], TensorSpec((2,))),
    ],
)
def test_mxnets_records_are_read(tmp_path, labels, spec):
    for number in range(COUNT):
        (tmp_path / f"{number}.png").write_bytes(png(number))
    mxnet(MXNET_PACKS, tmp_path, json.dumps(labels))
    dataset = open_records(tmp_path / "theirs.rec", spec)
    assert dataset.fields["label"].records.tolist() == labels
    for number in range(COUNT):
        assert np.array_equal(record_of(dataset, number), pixels(number).transpose(2, 0, 1))


@with_mxnet
@pytest.mark.parametrize("width", [1, 3])
def test_mxnets_iterator_reads_our_records(tmp_path, width):
    labels = [float(at) if width == 1 else [at, at + 0.5, -1.0] for at in range(COUNT)]
    path = write(tmp_path / "ours.rec", [(each, png(at)) for at, each in enumerate(labels)])
    found, images = json.loads(mxnet(MXNET_ITERATES, path, "[3, 6, 8]", width))
    assert found == labels
    expected = [pixels(number).transpose(2, 0, 1).tolist() for number in range(COUNT)]
    assert images == expected


@with_mxnet
def test_boxes_are_mxnets(tmp_path):
    longer = [4, 6, 640, 480, 2, 0.1, 0.1, 0.2, 0.2, 1, 5, 0.5, 0.2, 0.4, 0.3, 0]
    path = write(tmp_path / "b.rec", [(each, png(0)) for each in (TWO_BOXES, longer)])
    theirs = json.loads(mxnet(MXNET_DETECTS, path))
    ours = open_records(path, BOXES).fields["label"].records
    for boxes, expected in zip(ours, theirs, strict=True):
        kept = boxes[boxes[:, 0] >= 0]
        np.testing.assert_array_equal(kept, np.float32(expected)[:, :5])
