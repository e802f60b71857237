"""NumPy archives: real ones, and ones with false headers."""

from __future__ import annotations

import io
import itertools
import random
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from damage import damage
from refusals import only_problem

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.formats.npy import read_npy
from mxrun.runtime.memory_limits import memory_limit
from mxrun.survey.arrays import survey_archive

INPUTS = {"data": TensorSpec((1, 4, 5)), "label": TensorSpec((), "int32")}
PLACE = SourceLocation("c.yaml", 7, 3)
IMAGES = (np.arange(6 * 20) % 256).astype(np.uint8).reshape(6, 4, 5)
LABELS = np.array([0, 1, 2, 0, 1, 2], np.int64)


def open_npz(path: Path, wanted=INPUTS, **options: object) -> Dataset:
    request = request_dataset("npz", {"path": str(path), **options}, "all", {"path": PLACE})
    return open_datasets({"it": request}, wanted)["it"]


def failure(path: Path, **options: object) -> str:
    found = only_problem(open_npz, path, **options)
    assert found.place == PLACE
    return str(found)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_become_fields(tmp_path, save):
    path = tmp_path / "a.npz"
    save(path, data=IMAGES, y=LABELS, other=np.array(["text"]))
    dataset = open_npz(path, arrays={"label": "y"})
    assert dataset.specs == INPUTS
    assert np.array_equal(dataset.fields["data"].records[:, 0], IMAGES)
    assert (dataset.fields["data"].scale, dataset.whites) == (1.0, {})
    assert dataset.fields["label"].records.tolist() == LABELS.tolist()
    assert dataset.classes == ()
    images = open_npz(path, arrays={"label": "y"}, images={"data": 200})
    assert (images.fields["data"].scale, images.whites) == (1 / 200, {"data": 200})


@pytest.mark.parametrize("dtype", [">f4", "<f8", "f2", "i2", "u4", "bool"])
def test_numbers_become_the_networks_type(tmp_path, dtype):
    data = np.asfortranarray((IMAGES % 2).astype(dtype))
    np.savez(tmp_path / "a.npz", data=data, label=LABELS.astype("f4"))
    dataset = open_npz(tmp_path / "a.npz")
    records = dataset.fields["data"].records
    assert (records.dtype, records.flags.c_contiguous) == (np.float32, True)
    assert np.array_equal(records[:, 0], IMAGES % 2)
    assert dataset.fields["label"].records.dtype == np.int32


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"data": IMAGES}, ("named 'label'", "one of data")),
        ({"data": IMAGES, "lable": LABELS}, ("named 'label'", "'lable'")),
        (
            {"data": IMAGES[:5], "label": LABELS},
            ("different numbers of records", "data: 5, label: 6"),
        ),
        ({"data": IMAGES[:0], "label": LABELS[:0]}, ("at least one",)),
        ({"data": np.uint8(1), "label": LABELS}, ("data: 0",)),
        ({"data": IMAGES, "label": LABELS + 0.5}, ("label.npy: record 0", "integer")),
        (
            {"data": IMAGES / 0.0 if False else IMAGES * np.nan, "label": LABELS},
            ("record 0", "nan"),
        ),
        ({"data": IMAGES, "label": LABELS + 2**31}, ("record 0", "within int32")),
        ({"data": IMAGES, "label": np.float32(LABELS) + 2**31}, ("record 0", "within int32")),
        ({"data": IMAGES, "label": LABELS.reshape(-1, 1)[:, :0]}, ("are empty", "label [6, 0]")),
        ({"data": IMAGES * 1j, "label": LABELS}, ("unsupported dtype", "<c16")),
    ],
)
def test_arrays_that_cannot_be_used_are_told(tmp_path, arrays, words):
    np.savez(tmp_path / "a.npz", **arrays)
    text = failure(tmp_path / "a.npz")
    assert all(word in text for word in (str(tmp_path / "a.npz"), *words)), text


def test_an_array_of_objects_is_not_read(tmp_path):
    np.savez(tmp_path / "a.npz", data=np.array([{"a": 1}], dtype=object), label=LABELS)
    assert "unsupported dtype" in failure(tmp_path / "a.npz")


def npy(header: bytes, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + body


def described(shape: str, descr: str = "'|u1'") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("byte 0", "not a NumPy array")),
        (b"\x93NUMPX\x01\x00", ("not a NumPy array",)),
        (npy(described("(3,)"), b"abc", b"\x09\x00"), ("not a NumPy array",)),
        (npy(described("(3,)"), b"ab"), ("announces uint8 [3]", "got: 2 bytes")),
        (npy(described("(3,)"), b"abcd"), ("got: more",)),
        (npy(described("(1 << 60,)")), ("byte 10", "damaged")),
        (npy(described(f"({1 << 60},)")), ("announces too much",)),
        (npy(described(f"({1 << 70}, 0, {1 << 70})"), b"x"), ("damaged",)),
        (npy(described(f"({1 << 60}, 0, {1 << 60})"), b"x"), ("announces",)),
        (npy(described("(1000000000,)"), b"abc"), ("announces uint8 [1000000000]", "got: 3 bytes")),
        (npy(described("(-1,)")), ("damaged",)),
        (npy(described("(3,)"))[:40], ("byte 10", "damaged")),
        (npy(described("(3,)", "'|O'")), ("unsupported dtype",)),
        (npy(described("(3,)", "[('a', 'f4')]")), ("unsupported dtype",)),
        (npy(described("(3,)", "('f4', (2,))")), ("byte",)),
        (npy(described("(3,)", "'<f16'")), ("unsupported dtype",)),
        (npy(b"{'descr': " + b"(" * 5000), ("damaged",)),
        (npy(b"__import__('os').getcwd()\n"), ("damaged",)),
    ],
    ids=itertools.count(),
)
def test_a_header_is_never_taken_at_its_word(content, words):
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as caught:
            read_npy(io.BytesIO(content), "x.npy")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(word in str(caught.value) for word in ("x.npy: byte ", *words))
    assert peak < 8 << 20


def test_what_is_no_archive_is_told(tmp_path):
    path = tmp_path / "a.npz"
    for content in (b"", b"PK\x03\x04", b"text" * 100, npy(described("(1,)"), b"a")):
        path.write_bytes(content)
        assert "not an archive of arrays" in failure(path)
    assert "cannot be read" in failure(tmp_path)
    assert "there is no such file" in failure(tmp_path / "none.npz")


def test_a_decompression_bomb_is_bounded(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.npy", npy(described("(4,)"), bytes(64 << 20)))
        archive.writestr("label.npy", npy(described("(4,)"), bytes(4)))
    tracemalloc.start()
    try:
        text = failure(tmp_path / "a.npz")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "got: more" in text
    assert peak < 4 << 20


def test_arrays_larger_than_memory_are_refused_from_their_headers(tmp_path):
    """Nothing is read: the archive has headers without the data that they declare."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        count = memory_limit() // 20
        archive.writestr("data.npy", npy(described(f"({count}, 20)", "'|u1'")))
        archive.writestr("label.npy", npy(described(f"({count},)", "'<i8'")))
    text = failure(tmp_path / "a.npz")
    assert "a.npz: its content does not fit into memory" in text
    # The bytes of both, a look at each, and the labels as int32.
    assert f"{40 * count + count * (8 + 1 + 4):,} bytes" in text


@pytest.mark.full
def test_memory_that_is_not_to_be_had_is_told(tmp_path):
    """Runs in a process that may map little more memory than it has."""
    with (tmp_path / "a.npz").open("wb") as file:
        np.savez(file, data=np.zeros((1 << 21, 4), "f8"), label=np.zeros(1 << 21, "i4"))
    (tmp_path / "load.py").write_text(LIMITED)
    for room, words in ((32 << 20, "a.npz: its content"), (256 << 20, "read 2097152")):
        command = [sys.executable, "load.py", str(room)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert words in done.stdout, done.stderr


LIMITED = """
import resource, sys
from pathlib import Path
from mxrun import library
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.request import open_datasets, request_dataset
library.load()
request = request_dataset("npz", {"path": "a.npz"}, "all")
mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + int(sys.argv[1]),) * 2)
try:
    inputs = {"data": TensorSpec((4,)), "label": TensorSpec((), "int32")}
    print("read", len(open_datasets({"it": request}, inputs)["it"]))
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_archives_give_an_error_or_the_arrays(tmp_path, save):
    path, draw = tmp_path / "a.npz", random.Random(6)
    save(path, data=IMAGES, label=LABELS)
    content = path.read_bytes()
    refused = []
    for _ in range(300):
        path.write_bytes(damage(content, draw))
        try:
            dataset = open_npz(path)
        except UserError as error:
            refused.append(str(error))
        else:
            # The checksums of the archive cover every byte of an array.
            assert np.array_equal(dataset.fields["data"].records[:, 0], IMAGES)
            assert dataset.fields["label"].records.tolist() == LABELS.tolist()
    assert len(refused) > 100
    assert all(str(path) in text for text in refused)


@pytest.mark.parametrize("dtype", ["u1", ">f4", "f8", "i2"])
def test_records_that_are_read_one_by_one_are_those_in_memory(tmp_path, dtype):
    for part in range(2):
        np.savez(tmp_path / f"{part}.npz", data=(IMAGES + part).astype(dtype), label=LABELS)
    whole = open_npz(tmp_path / "*.npz")
    column = open_npz(tmp_path / "*.npz", in_memory=False).lazy["data"]
    field = whole.fields["data"]
    assert (column.count, column.shape, column.scale) == (12, field.spec.shape, field.scale)
    for number in range(12):
        record = column.record(number)
        assert record.dtype == field.records.dtype
        assert np.array_equal(record, field.records[number])
    size = IMAGES.itemsize * np.dtype(dtype).itemsize * 20
    places = [column.source(number) for number in range(12)]
    assert [each.number for each in places] == [*range(6), *range(6)]
    assert places[7].offset - places[6].offset == size
    content = (tmp_path / "1.npz").read_bytes()[places[7].offset :][:size]
    assert content == (IMAGES + 1)[1].astype(dtype).tobytes()


@pytest.mark.parametrize(("dtype", "white"), [("u1", 16), ("f4", 16), ("f4", 255), ("f8", 255)])
def test_images_that_are_read_one_by_one_are_those_in_memory(tmp_path, dtype, white):
    """One record at a time and many at once; a dark image among others is no image of fractions."""
    images = 7 * np.arange(6 * 20).reshape(6, 1, 4, 5) % (white + 1)
    images[0] %= 2
    path = tmp_path / "a.npz"
    np.savez(path, data=images.astype(dtype), label=LABELS)
    spec = {**INPUTS, "data": TensorSpec(images.shape[1:])}
    options = {"images": {"data": white}}
    column = open_npz(path, spec, **options, in_memory=False).lazy["data"]
    field = open_npz(path, spec, **options).fields["data"]
    assert (column.white, column.scale) == (field.white, field.scale)
    at_once = column.arrays(np.arange(6))
    for number in range(6):
        assert np.array_equal(column.record(number), field.records[number])
        assert at_once is None or np.array_equal(at_once[0][number], field.records[number])
    assert (at_once is None) == (dtype == "f8")
    np.savez(path, data=np.where(images == white, white + 1, images).astype(dtype), label=LABELS)
    column = open_npz(path, spec, **options, in_memory=False).lazy["data"]
    wrong = (images == white).any(axis=(1, 2, 3))
    at_once = column.arrays(np.arange(6))
    assert at_once is None or np.array_equal(at_once[1], ~wrong)
    with pytest.raises(UserError, match="not the pixels of images"):
        column.record(int(wrong.argmax()))
    np.savez(path, data=images.astype(dtype) / white, label=LABELS)
    with pytest.raises(UserError, match=r"write `images: \{INPUT: 1\}`"):
        open_npz(path, spec, **options, in_memory=False)


def test_arrays_that_cannot_be_read_one_by_one_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    for save, data, words in (
        (np.savez_compressed, IMAGES, "the array is compressed"),
        (np.savez, np.asfortranarray(IMAGES), "Fortran order"),
        (np.savez, IMAGES[:0], "the array has no records"),
    ):
        save(path, data=data, label=LABELS)
        assert words in failure(path, in_memory=False)
    np.savez(path, data=IMAGES * np.float64(1e300), label=LABELS)
    column = open_npz(path, in_memory=False).lazy["data"]
    with pytest.raises(UserError, match=r"data\.npy, record 1 at byte .* cannot be converted"):
        column.record(1)


def test_a_false_local_header_is_refused(tmp_path):
    """The bytes of an array are found by two headers, which must agree."""
    path = tmp_path / "a.npz"
    np.savez(path, data=IMAGES, label=LABELS)
    content = bytearray(path.read_bytes())
    for at, value in ((0, 0), (26, 9), (28, 255)):
        damaged = bytearray(content)
        damaged[at] ^= value or 1
        path.write_bytes(damaged)
        with pytest.raises(UserError):
            open_npz(path, in_memory=False)


@pytest.mark.parametrize("dtype", ["U", "S", ">U7"])
def test_labels_that_are_words_are_classes(tmp_path, dtype):
    words = np.array(["café" if dtype != "S" else "cafe", "ant", "bee"] * 2)
    np.savez(tmp_path / "a.npz", data=IMAGES, label=words.astype(dtype))
    dataset = open_npz(tmp_path / "a.npz")
    # NumPy's own numbering of sorted words.
    names, numbers = np.unique(words, return_inverse=True)
    assert dataset.classes == tuple(names.tolist())
    assert dataset.fields["label"].records.tolist() == numbers.tolist()
    assert dataset.fields["label"].spec == INPUTS["label"]
    np.savez(tmp_path / "b.npz", data=IMAGES, label=np.array(["wolf"] * 6).astype(dtype))
    both = open_npz(tmp_path / "*.npz")
    assert both.classes == (*names.tolist(), "wolf")
    assert both.fields["label"].records.tolist() == [*numbers.tolist(), *[3] * 6]


@pytest.mark.parametrize(
    ("label", "data", "words"),
    [
        (np.array(["ant", ""] * 3), IMAGES, "label.npy: record 1: the label is missing"),
        (np.array([b"caf\xe9"] * 6), IMAGES, "record 0: byte 3: not UTF-8 text"),
        (np.full(6, 0x110000, "u4").view("U1"), IMAGES, "label.npy: record 0: not text"),
        (np.full(6, 0xD800, "u4").view("U1"), IMAGES, "label.npy: record 0: not text"),
        (np.array([["ant", "bee"]] * 6), IMAGES, "one word of each record"),
        (np.array(["ant", "bee"] * 3, object), IMAGES, "save labels of words with dtype=str"),
        (LABELS, np.array(["ant", "bee"] * 3), "data.npy holds no numbers"),
    ],
)
def test_words_that_are_no_classes_are_told(tmp_path, label, data, words):
    np.savez(tmp_path / "a.npz", data=data, label=label)
    assert words in failure(tmp_path / "a.npz")


def test_words_as_bytes_and_as_characters_are_not_joined(tmp_path):
    for name, label in (
        ("a", np.array(["caf\xe9", "tea"] * 3)),
        ("b", np.array([b"caf\xc3\xa9"] * 6)),
    ):
        np.savez(tmp_path / f"{name}.npz", data=IMAGES, label=label)
    assert "the records are not like those of" in failure(tmp_path / "*.npz")


def test_words_are_no_numbers_of_a_regression(tmp_path):
    np.savez(tmp_path / "a.npz", data=IMAGES, label=np.array(["ant", "bee"] * 3))
    wanted = {**INPUTS, "label": TensorSpec((), "float32")}
    with pytest.raises(UserError, match="words are classes as the label of a classification"):
        open_npz(tmp_path / "a.npz", wanted)


def test_a_config_for_labels_of_words(tmp_path):
    words = np.array(["ant", "bee"])[np.arange(40) % 2]
    np.savez(tmp_path / "a.npz", x=np.arange(40.0).reshape(40, 1), y=words)
    found = survey_archive(str(tmp_path / "a.npz"))
    assert found.train.counts == {"ant": 16, "bee": 16}
    assert found.options["arrays"] == {"data": "x", "label": "y"}
