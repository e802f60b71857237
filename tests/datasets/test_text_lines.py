"""Labelled texts in lines, tables and JSON, and the bundled speeches."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.files import MAXIMUM_BYTES
from mxrun.io.text.lines import LineForm, read_texts

INPUTS = {
    "data": TensorSpec((6,), "int32"),
    "mask": TensorSpec((6,)),
    "lengths": TensorSpec((), "int32"),
    "label": TensorSpec((), "int32"),
}
LINES = "ham\tSee you then, then!\nspam\tBUY now now now now\r\n\nham\tok\n"


def open_lines(
    path: Path, inputs: dict[str, TensorSpec] | None = None, split: object = None, **options: Any
) -> Dataset:
    request = request_dataset("text_lines", {"path": str(path), **options}, split)
    return open_datasets({"train": request}, INPUTS if inputs is None else inputs)["train"]


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def tokens(dataset: Dataset) -> list[str]:
    assert dataset.vocabulary is not None
    return [dataset.vocabulary.token(number) for number in range(len(dataset.vocabulary))]


def texts(dataset: Dataset) -> list[str]:
    vocabulary, data = dataset.vocabulary, dataset.fields["data"].records
    assert vocabulary is not None
    rows = zip(data, dataset.fields["lengths"].records, strict=True)
    return [vocabulary.decode(row[:length]) for row, length in rows]


def test_words_of_lines_are_padded_and_cut(tmp_path):
    dataset = open_lines(write(tmp_path / "a.txt", LINES))
    assert dataset.classes == ("ham", "spam")
    assert dataset.fields["label"].records.tolist() == [0, 1, 0]
    assert tokens(dataset)[:4] == ["<pad>", "<unk>", "now", "then"]
    assert texts(dataset) == ["see you then, then!", "buy now now now now", "ok"]
    assert dataset.fields["lengths"].records.tolist() == [6, 5, 1]
    assert dataset.fields["data"].records[2, 1:].tolist() == [0] * 5
    assert dataset.specs == INPUTS
    mask = dataset.fields["mask"]
    assert (mask.records * mask.scale).tolist() == [[1] * 6, [1] * 5 + [0], [1] + [0] * 5]
    start, end = (
        texts(open_lines(tmp_path / "a.txt", smaller(2), kept=k)) for k in ("start", "end")
    )
    assert start == ["see you", "buy now", "ok"]
    assert end == ["then!", "now now", "ok"]


def smaller(length: int) -> dict[str, TensorSpec]:
    return {**INPUTS, "data": TensorSpec((length,), "int32"), "mask": TensorSpec((length,))}


def test_a_long_text_of_a_table_changes_no_limit_of_other_tables(tmp_path):
    limit = csv.field_size_limit()
    text = "x" * (limit + 1)
    table = write(tmp_path / "a.csv", f"label,text\na,{text}\n")
    assert read_texts([table], LineForm()).texts == [text]
    assert csv.field_size_limit() == limit


def test_tables_and_json_hold_the_same_texts(tmp_path):
    expected = ["one, two", 'a "b"\nc', "ü"]
    table = 'id,Text,Label\n1,"one, two",x\n2,"a ""b""\nc",y\n3,ü,x\n'
    rows = zip(expected, ("x", "y", "x"), strict=True)
    entries = [{"label": y, "text": x} for x, y in rows]
    objects = "".join(json.dumps(each) + "\n" for each in entries)
    plain = {
        "a.csv": (table, {}),
        "b.csv": (table.replace("Text", "Body"), {"text": "body", "label": "label"}),
        "c.csv": (table.partition("\n")[2], {"text": 1, "label": 2}),
        "d.tsv": ('x\t"one, two"\ny\t"a ""b""\nc"\nx\tü\n', {}),
        "e.jsonl": (objects, {}),
        "f.txt": (objects, {"form": "jsonl", "label": "label"}),
        "h.json": (json.dumps(entries), {}),
        "i.json": ("\ufeff\n" + json.dumps(entries, indent=2, ensure_ascii=False) + "\n", {}),
        "j.json": (objects, {}),
        "g.txt": ("\ufeff" + table.replace(",", ";").replace("one;", "one,"), {"form": "csv"}),
    }
    for name, (content, options) in plain.items():
        path = write(tmp_path / name, content)
        dataset = open_lines(path, smaller(9), tokens="characters", **options)
        assert texts(dataset) == expected, name
        assert (dataset.classes, dataset.fields["label"].records.tolist()) == (
            ("x", "y"),
            [0, 1, 0],
        )


@pytest.mark.parametrize(
    "content",
    ['x,"see you; then"\ny,ok\n', 'x,"see\tyou; then"\ny,ok\n', "\n \nx;see you, then\ny;ok\n"],
)
def test_the_delimiter_of_a_table_is_that_of_its_first_row(tmp_path, content):
    dataset = open_lines(write(tmp_path / "a.csv", content), smaller(9))
    assert dataset.classes == ("x", "y")
    assert texts(dataset)[1] == "ok"


@pytest.mark.parametrize(
    ("form", "content"),
    [
        (LineForm(), "text,label\nsee you,x\n"),
        (LineForm(text=0, label="kind"), "body,kind\nsee you,x\n"),
        (LineForm(text=0, label="kind"), "body\nsee you\n"),
        (LineForm(label=1), "see you\n"),
    ],
)
def test_tables_to_infer_may_lack_labels(tmp_path, form, content):
    path = write(tmp_path / "a.csv", content)
    assert read_texts([path], form.without_labels()).texts == ["see you"]


def test_texts_without_labels_and_with_several(tmp_path):
    path = write(tmp_path / "a.txt", "one\ttwo\nthree\n")
    without = {name: spec for name, spec in INPUTS.items() if name != "label"}
    dataset = open_lines(path, without, label=None)
    assert texts(dataset) == ["one two", "three"]
    write(path, "a|c\tone\nb\ttwo\n")
    several = {**INPUTS, "label": TensorSpec((3,))}
    dataset = open_lines(path, several, separator="|", classes=["a", "b", "c"])
    assert dataset.fields["label"].records.tolist() == [[1, 0, 1], [0, 1, 0]]


def test_the_vocabulary_is_that_of_the_training_share(tmp_path):
    lines = "".join(f"{number % 2}\tword{number} common\n" for number in range(20))
    options = {"path": str(write(tmp_path / "a.txt", lines))}
    share = {"share": 0.5, "stratify": True}
    requests = {
        "train": request_dataset("text_lines", options, share),
        "eval": request_dataset("text_lines", options, {"range": [0, 20]}, role="eval"),
    }
    opened = open_datasets(requests, INPUTS)
    vocabulary = opened["train"].vocabulary
    assert vocabulary is not None
    assert len(vocabulary) == 2 + 1 + 10
    assert opened["eval"].vocabulary is vocabulary
    assert sum("<unk>" in text for text in texts(opened["eval"])) == 10
    again = open_datasets({"eval": requests["eval"]}, INPUTS, vocabulary=vocabulary)
    assert texts(again["eval"]) == texts(opened["eval"])


def test_bytes_are_padded_with_any_byte(tmp_path):
    path = write(tmp_path / "a.txt", "0\tñ!\n1\tabcdefgh\n")
    dataset = open_lines(path, tokens="bytes", padding=32)
    assert dataset.fields["data"].records.tolist() == [[*"ñ!".encode(), 32, 32, 32], [*b"abcdef"]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_all_line_ends_divide_records(tmp_path, end):
    contents = {
        "a.txt": ["ham\tone", "", "spam\ttwo", "ham\tthree", ""],
        "a.csv": ["label,text", "ham,one", "spam,two\t", "ham,three", ""],
        "a.jsonl": [
            '{"label": "ham", "text": "one"}',
            '{"label": "spam", "text": "two"}',
            '{"label": "ham", "text": "three"}',
        ],
    }
    for name, lines in contents.items():
        dataset = open_lines(write(tmp_path / name, end.join(lines)))
        assert texts(dataset) == ["one", "two", "three"], name
        assert dataset.fields["label"].records.tolist() == [0, 1, 0]
        wrong = write(tmp_path / name, end.join([*lines, "?"]))
        with pytest.raises(UserError, match=f"{name}:{len(lines) + 1}: "):
            open_lines(wrong)


def test_line_ends_in_a_text_are_learned_as_they_are_read(tmp_path):
    path = write(tmp_path / "a.csv", 'x,"one\r\ntwo"\r\ny,"one\r\n"\r\n')
    dataset = open_lines(path, tokens="characters")
    assert tokens(dataset) == ["<pad>", "<unk>", *sorted("\nenotw")]


def test_a_text_without_tokens_is_one_of_padding(tmp_path):
    path = write(tmp_path / "a.csv", "label,text\n0,\n1,a b\n")
    dataset = open_lines(path)
    assert dataset.fields["lengths"].records.tolist() == [1, 2]
    assert dataset.fields["data"].records[0].tolist() == [0] * 6


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.txt", "ham see you\n", {}, r"a.txt:1: the line is not divided"),
        ("a.txt", "x\ty\n\tno label\n", {}, r"a.txt:2: the label is missing"),
        ("a.txt", "", {}, "holds no texts"),
        ("a.txt", "\n\r\n", {}, "holds no texts"),
        ("a.csv", "body,kind\nx,y\n", {"text": "bdy"}, r"a.csv:1: the table has no column for the"),
        ("a.csv", "a,b\nx\n", {}, r"a.csv:2: the row has too few columns"),
        ("a.csv", "x||y\n", {"delimiter": "||"}, r"a.csv: the columns .* cannot be .* '\|\|'"),
        ("a.txt", "x,y\n", {"form": "csv", "delimiter": '"'}, "a.txt: the columns of a table"),
        ("a.txt", "x,y\n", {"form": "csv", "delimiter": "\n"}, "a.txt: the columns of a table"),
        ("a.jsonl", '{"text": "x"}\n', {}, r"a.jsonl:1: the object has no label"),
        ("a.jsonl", '{"text": 3, "label": 1}\n', {}, r"a.jsonl:1: the text is no string"),
        ("a.jsonl", '{"text": "x \\ud800", "label": 1}\n', {}, r"a.jsonl:1: half of a surrogate"),
        ("a.jsonl", '{"text": "x", "label": "\\udcff"}\n', {}, r"a.jsonl:1: half of a surrogate"),
        ("a.jsonl", '{"text": "x", "label": NaN}\n', {}, r"a.jsonl:1: not a JSON object"),
        ("a.jsonl", "[1]\n", {}, r"a.jsonl:1: not a JSON object"),
        ("a.jsonl", "[" * 100_000, {}, r"a.jsonl:1: not a JSON object"),
        (
            "a.json",
            '[{"text": "x", "label": 1},\n\n{"text": "x"}]',
            {},
            r"a.json:3: the object has",
        ),
        ("a.json", '[{"text": "x", "label": 1},\n 3]', {}, r"a.json:2: not a JSON object"),
        ("a.json", '[{"text": "x", "label": 1},\n', {}, r"a.json:2: not a JSON object"),
        ("a.json", '[{"text": "x", "label": 1}', {}, r"got: the end of the file within the array"),
        ("a.json", '[{"text": "x", "label": 1}]\n[]', {}, r"a.json:1: not a JSON object"),
        ("a.json", '[{"text": "x", "label": 1} {}]', {}, r"a.json:1: not a JSON object"),
        ("a.json", '[{"text": "x", "label": NaN}]', {}, r"a.json:1: not a JSON object"),
        ("a.json", "[ ]", {}, r"a.json: holds no texts"),
        ("a.txt", "x\ty\n", {"classes": ["z"]}, r"a.txt:1: the class is not known"),
        ("a.txt", "x\ty\n", {"padding": 99}, "no token 99 for padding"),
        ("a.txt", "x\ty\n", {"tokens": "bytes", "lower": True}, "lower has no meaning"),
        ("a.txt", "x\ty\n", {"vocabulary": 2}, "a vocabulary of 2 has no room for words"),
        ("a.txt", "x\ty\n", {"unknown": "<pad>"}, "unknown: '<pad>' is already the token"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, name, content, options, message):
    with pytest.raises(UserError, match=message):
        open_lines(write(tmp_path / name, content), **options)


def test_wrong_bytes_are_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x\ty\nx\t\xe9\n")
    with pytest.raises(UserError, match="byte 6: not UTF-8 text"):
        open_lines(path)


@pytest.mark.parametrize("dataset", ["text", "text_lines"])
def test_devices_and_pipes_are_refused_at_once(tmp_path, dataset):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe"), str(tmp_path)):
        request = request_dataset(dataset, {"path": path}, "all")
        with pytest.raises(UserError, match=f"{path}: not a regular file"):
            open_datasets({"train": request}, INPUTS)


def test_a_file_beyond_the_limit_is_refused_by_its_size(tmp_path):
    path = tmp_path / "a.txt"
    path.touch()
    os.truncate(path, MAXIMUM_BYTES + 1)
    with pytest.raises(UserError, match="too large to hold in memory") as caught:
        open_lines(path)
    assert f"{MAXIMUM_BYTES + 1:,} bytes" in str(caught.value)


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda text: text.encode("utf-16"), "text in UTF-16\n.*iconv -f UTF-16"),
        (lambda text: b"\xfe\xff" + text.encode("utf-16-be"), "text in UTF-16\n.*iconv -f UTF-16"),
        (lambda text: text.encode("utf-32"), "text in UTF-32\n.*iconv -f UTF-32"),
        (lambda text: gzip.compress(text.encode()), "compressed by gzip\n.*gunzip"),
        (lambda text: lzma.compress(text.encode()), "compressed by xz\n.*unxz"),
        (lambda text: bz2.compress(text.encode()), "compressed by bzip2\n.*bunzip2"),
        (lambda text: text.encode("cp1252"), "the byte 0xfc\n.*iconv -f CP1252"),
    ],
    ids=["UTF-16", "UTF-16BE", "UTF-32", "gzip", "xz", "bzip2", "CP1252"],
)
@pytest.mark.parametrize("dataset", ["text", "text_lines"])
def test_other_encodings_are_recognised(tmp_path, encode, message, dataset):
    path = tmp_path / "a.txt"
    path.write_bytes(encode("x\tüber\n" * 20))
    request = request_dataset(dataset, {"path": str(path)}, "all")
    if dataset == "text_lines" and "UTF-" in message:
        assert texts(open_datasets({"train": request}, INPUTS)["train"]) == ["über"] * 20
        return
    with pytest.raises(UserError, match=f"(not UTF-8|not a) text.*\n(.*\n)*.*{message}") as caught:
        open_datasets({"train": request}, INPUTS)
    is_latin = "CP1252" in message
    assert ("tokens: bytes" in str(caught.value)) == (dataset == "text" and is_latin)
    assert ("encoding: cp1252" in str(caught.value)) == (dataset == "text_lines" and is_latin)


def test_the_encoding_of_texts_is_declared(tmp_path):
    (tmp_path / "a.csv").write_bytes("text,label\nüber alles,ö\nunter,ä\n".encode("cp1252"))
    dataset = open_lines(tmp_path / "a.csv", encoding="cp1252")
    assert (texts(dataset), dataset.classes) == (["über alles", "unter"], ("ä", "ö"))


def open_speeches(split: str) -> Dataset:
    request = request_dataset("shakespeare_speeches", {"vocabulary": 2000}, split)
    return open_datasets({"train": request}, smaller(64))["train"]


def test_the_bundled_speeches_are_those_of_three_plays():
    both, train, test = map(open_speeches, ("all", "train", "test"))
    assert len(both) == len(train) + len(test) == 1367
    assert len(test) == 1367 // 5
    assert both.classes == ("Coriolanus", "Romeo and Juliet", "The Taming of the Shrew")
    assert np.bincount(both.fields["label"].records).tolist() == [452, 472, 443]
    assert texts(both)[0] == "before we proceed any further, hear me speak."
    lengths = both.fields["lengths"].records
    assert test.fields["lengths"].records.tolist() == lengths[4::5].tolist()
    assert len(tokens(train)) == 2000
