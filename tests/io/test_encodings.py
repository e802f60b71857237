"""Text files in other encodings: read as a mark or the config says, else refused with a hint."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import lzma
import re
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.formats.cifar import read_names
from mxrun.io.formats.class_names import read_class_names
from mxrun.io.formats.image_list import read_image_list
from mxrun.io.formats.libsvm import read_libsvm
from mxrun.io.sample import Sample, read_samples
from mxrun.io.tables.text import TableForm
from mxrun.io.vocabulary.tokenizer_file import read_tokenizer

INPUTS = {"data": TensorSpec((1,)), "label": TensorSpec((), "int32")}
# Long enough for several blocks, with characters of two and three bytes in UTF-8.
WORDS = ("café", "thé", "5 €")
ROWS = [("größe", "art"), *((f"{number}.5", WORDS[number % 3]) for number in range(22_000))]


def open_csv(path: Path, **options: object) -> Dataset:
    request = request_dataset("csv", {"path": str(path), "label": "art", **options}, None)
    return open_datasets({"it": request}, INPUTS)["it"]


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("utf-16", None),
        ("utf-32", None),
        ("utf-8", "UTF8"),
        ("cp1252", "cp1252"),
        ("iso8859-15", "l9"),
        ("utf-16-be", "utf-16-be"),
        # A mark says more than the config.
        ("utf-8-sig", "cp1252"),
        ("utf-16", "latin-1"),
    ],
)
def test_a_table_is_read_in_its_encoding(tmp_path, encoding, declared):
    """Against Python's csv module, which decodes the file itself."""
    path = tmp_path / "t.csv"
    with path.open("w", encoding=encoding, newline="") as stream:
        csv.writer(stream).writerows(ROWS)
    with path.open(encoding=encoding, newline="") as stream:
        _, *rows = csv.reader(stream)
    if encoding.endswith("sig"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    dataset = open_csv(path, **({} if declared is None else {"encoding": declared}))
    assert dataset.fields["data"].records[:, 0].tolist() == [float(row[0]) for row in rows]
    labels = dataset.fields["label"].records.tolist()
    assert [dataset.classes[label] for label in labels] == [row[1] for row in rows]
    assert dataset.columns == ("größe",)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"a,art\n1,caf\xe9\n", {}, r":2:2: byte 11: not UTF-8 text.*0xe9.*encoding: cp1252, or"),
        (b"a,\xfc,art\n1,2,x\n", {}, r":1:2: byte 2: not UTF-8 text"),
        (b"a,art\n1,\x81\n", {"encoding": "cp1252"}, r"byte 8: not CP1252 text.*0x81.*another"),
        (b"a,art\n1,\xe9\n", {"encoding": "ascii"}, r"byte 8: not ASCII text"),
        ("a,art\n1,é\n".encode("utf-16") + b"\0", {}, r"byte 22: not UTF-16 text.*damaged"),
        ("a,art\n1,x\n".encode("utf-16-le"), {}, r":1:1: byte 1: not UTF-8.*encoding: utf-16le"),
        # A place in a decoded file has no byte.
        (
            "a,art\n1,x\né,y\n".encode("cp1252"),
            {"encoding": "cp1252"},
            r":3:1: column 'a': not a number",
        ),
        (bz2.compress(b"a,art\n1,x\n")[:-9], {}, r"the compressed file ends too early"),
        (b"\x28\xb5\x2f\xfd1,x\n", {}, r"compressed by zstd.*unzstd"),
    ],
)
def test_what_cannot_be_decoded_is_told_with_the_way_out(tmp_path, content, options, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        open_csv(path, **options)
    text = str(caught.value).replace("\n", " ")
    assert str(path) in text
    assert re.search(message, text), text


def test_compressed_tables_are_read(tmp_path):
    content = "a,art\n1,x\n2,y\n".encode("utf-16")
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "w") as archive:
        archive.writestr("__MACOSX/._t.csv", "")
        archive.writestr("folder/t.csv", content)
    for compress, suffix in ((gzip, "gz"), (bz2, "bz2"), (lzma, "xz")):
        (tmp_path / f"t.csv.{suffix}").write_bytes(compress.compress(content))
    for suffix in ("gz", "bz2", "xz", "zip"):
        dataset = open_csv(tmp_path / f"t.csv.{suffix}")
        assert dataset.fields["data"].records.tolist() == [[1], [2]]
        assert dataset.classes == ("x", "y")


def test_an_archive_of_several_files_is_told(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.csv.zip", "w") as archive:
        archive.writestr("t.csv", "a,art\n1,x\n")
        archive.writestr("u.csv", "a,art\n1,x\n")
    with pytest.raises(UserError, match=r"a zip archive of one table\n.*t\.csv, u\.csv"):
        open_csv(tmp_path / "t.csv.zip")


def test_an_empty_archive_is_told(tmp_path):
    zipfile.ZipFile(tmp_path / "t.csv.zip", "w").close()
    with pytest.raises(UserError, match=r"does not hold one file\n.*\n.*none"):
        open_csv(tmp_path / "t.csv.zip")


def test_unknown_encodings_are_refused():
    for name in ("klingon", "hex", "base64", "idna", "punycode"):
        with pytest.raises(UserError, match="an encoding that Python knows, such as cp1252"):
            request_dataset("csv", {"path": "t.csv", "encoding": name}, None)


def test_records_for_inference_are_decoded_as_well(tmp_path):
    sample = Sample(TensorSpec((1,)), table=TableForm(header="maybe", size=1))
    for encoding in ("utf-16", "utf-8-sig"):
        (tmp_path / "t.csv").write_text("größe\n1.5\n", encoding=encoding)
        assert [row.tolist() for row in read_samples(tmp_path / "t.csv", sample)] == [[1.5]]


def _list(folder: Path) -> object:
    return read_image_list(folder / "f").labels


def _classes(folder: Path) -> object:
    (folder / "f").rename(folder / "f.classes")
    return read_class_names([folder / "f.rec"])


READERS = {
    "image list": (_list, "a.png,caf%\n", ("café",)),
    "class names": (_classes, "caf%\ntea\n", ("café", "tea")),
    "CIFAR": (lambda folder: read_names(folder, "f", 2), "caf%\ntea\n", ("café", "tea")),
    "LIBSVM": (lambda folder: read_libsvm([folder / "f"], 1).labels, "caf% 1:1\n", ["café"]),
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_of_text_has_one_rule(tmp_path, name):
    read, text, expected = READERS[name]
    Image.new("L", (2, 2)).save(tmp_path / "a.png")
    content = text.replace("%", "é")
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        (tmp_path / "f").write_bytes(content.encode(encoding))
        assert read(tmp_path) == expected, encoding
    (tmp_path / "f").write_bytes(content.encode("cp1252"))
    with pytest.raises(UserError, match=r"byte \d+: not UTF-8 text\n(.*\n)*.*0xe9\n.*-f CP1252"):
        read(tmp_path)


def test_a_tokenizer_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "t.json").write_bytes(codecs.BOM_UTF8 + b'{"\xe9": 1}')
    with pytest.raises(UserError, match=r"byte 5: not UTF-8 text\n(.*\n)*.*iconv"):
        read_tokenizer(tmp_path / "t.json")
