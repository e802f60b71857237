"""Windows and streams of text files, compared with plain Python on the same text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batches import make_slots

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fingerprint import fingerprint
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.loading.open import open_iterator
from mxrun.io.text.spans import divided, text_chunks, word_chunks
from mxrun.io.vocabulary.words import words_of

TEXT = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n" * 9


def inputs(length: int) -> dict[str, TensorSpec]:
    spec = TensorSpec((length,), "int32")
    return {"data": spec, "label": spec}


def open_text(path: object, split: object = None, length: int = 8, **options: Any) -> Dataset:
    request = request_dataset("text", {"path": str(path), **options}, split)
    return open_datasets({"it": request}, inputs(length))["it"]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def batches(dataset: Dataset, size: int, epoch: int = 1, **order: Any) -> list[dict[str, Any]]:
    iterator = open_iterator(dataset, size, **order)
    iterator.reset(epoch)
    found = []
    slots = make_slots(iterator)
    while (batch := iterator.next_into(slots)) is not None:
        found.append({name: slot.copy() for name, slot in slots.items()} | {"valid": batch.valid})
    return found


def test_windows_are_ids_of_characters_and_labels_the_ids_that_follow(tmp_path):
    path = write(tmp_path / "a.txt", TEXT)
    dataset = open_text(path, "all")
    tokens = sorted(set(TEXT))
    ids = [tokens.index(each) for each in TEXT]
    assert dataset.vocabulary is not None
    assert dataset.vocabulary.decode(ids) == TEXT
    assert dataset.specs == inputs(8)
    count = (len(ids) - 1 - 8) // 8 + 1
    assert dataset.fields["data"].records.tolist() == [ids[8 * i : 8 * i + 8] for i in range(count)]
    assert dataset.fields["label"].records.tolist() == [
        ids[8 * i + 1 : 8 * i + 9] for i in range(count)
    ]


@pytest.mark.parametrize("stride", [1, 3, 8, 11])
@pytest.mark.parametrize("tokens", ["bytes", "characters", "words"])
def test_batches_of_windows_are_gathered(tmp_path, tokens, stride):
    path = write(tmp_path / "a.txt", TEXT)
    dataset = open_text(path, "train", tokens=tokens, stride=stride)
    records = {name: column.records.astype(np.int32) for name, column in dataset.fields.items()}
    found = batches(dataset, 5, shuffle=True, seed=3)
    iterator = open_iterator(dataset, 5, shuffle=True, seed=3)
    iterator.reset(1)
    for batch in found:
        drawn = iterator.next_into({})
        assert drawn is not None
        for name, rows in records.items():
            assert np.array_equal(batch[name], rows[drawn.indices])


@pytest.mark.parametrize("kinds", [200, 300, 66_000])
def test_ids_take_as_few_bytes_as_the_vocabulary_allows(tmp_path, kinds):
    text = "".join(chr(0x20000 + number) for number in range(kinds))
    dataset = open_text(write(tmp_path / "a.txt", text), "all")
    dtype = {200: np.uint8, 300: np.uint16, 66_000: np.int32}[kinds]
    assert dataset.fields["data"].records.dtype == dtype
    (first, *_) = batches(dataset, 4)
    assert first["data"].dtype == np.int32
    assert first["label"].tolist() == (np.arange(32).reshape(4, 8) + 1).tolist()
    (complete,) = batches(dataset, len(dataset))
    assert complete["data"].max() == 8 * len(dataset) - 1


def test_overlapping_windows_are_views_and_have_a_digest_of_their_own(tmp_path):
    path = write(tmp_path / "a.txt", TEXT * 100)
    dataset = open_text(path, "all", length=64, stride=1)
    records = dataset.fields["data"].records
    assert len(records) == len(TEXT) * 100 - 64
    assert records.base is not None
    assert dataset.fields["data"].distinct.size == len(TEXT) * 100 - 1
    assert fingerprint(dataset) != fingerprint(open_text(path, "all", length=64, stride=2))
    assert fingerprint(dataset) == fingerprint(open_text(path, "all", length=64, stride=1))


@pytest.mark.parametrize("held_out", [0.1, 0.37, 0.5])
def test_the_end_of_the_text_is_held_out(tmp_path, held_out):
    path = write(tmp_path / "a.txt", TEXT)
    cut = int(round(len(TEXT) * (1 - held_out), 3))
    for split, part in (("train", TEXT[:cut]), ("test", TEXT[cut:])):
        dataset = open_text(path, split, length=1, held_out=held_out)
        assert dataset.vocabulary is not None
        ids = dataset.fields["data"].records.reshape(-1).tolist()
        assert dataset.vocabulary.decode(ids) == part[:-1]


def test_several_files_are_one_text(tmp_path):
    for number, part in enumerate((TEXT[:100], "", TEXT[100:])):
        write(tmp_path / f"{number}.txt", part)
    whole = open_text(write(tmp_path / "whole", TEXT), "train")
    assert fingerprint(open_text(tmp_path / "*.txt", "train")) == fingerprint(whole)


def test_training_decides_the_vocabulary_of_both_parts(tmp_path):
    path = write(tmp_path / "a.txt", "abcabcab" * 10 + "cab")
    other = write(tmp_path / "b.txt", "cccccccccc")
    requests = {
        "train": request_dataset("text", {"path": str(path)}, "train"),
        "eval": request_dataset("text", {"path": str(other)}, "all", role="eval"),
    }
    opened = open_datasets(requests, inputs(4))
    assert opened["eval"].vocabulary is opened["train"].vocabulary
    assert set(opened["eval"].fields["data"].records.reshape(-1).tolist()) == {2}
    write(other, "abcdefg" * 3)
    with pytest.raises(UserError, match=r"b.txt: the vocabulary does not have .* 'd', 'e'"):
        open_datasets(requests, inputs(4))
    requests["train"] = request_dataset("text", {"path": str(path), "unknown": "?"}, "train")
    opened = open_datasets(requests, inputs(4))
    vocabulary = opened["eval"].vocabulary
    assert vocabulary is not None
    assert vocabulary.decode(opened["eval"].fields["data"].records[0]) == "abc?"


@pytest.mark.parametrize("option", [{"tokens": "bytes"}, {"lower": True}, {"punctuation": False}])
def test_evaluation_has_no_tokens_of_its_own(tmp_path, option):
    path = write(tmp_path / "a.txt", TEXT)
    train = request_dataset("text", {"path": str(path), "tokens": "words"}, "train")
    test = request_dataset("text", {"path": str(path), "tokens": "words", **option}, "test")
    with pytest.raises(UserError, match="read with the vocabulary of training") as raised:
        open_datasets({"train": train, "eval": test}, inputs(8))
    (diagnostic,) = raised.value.diagnostics
    (name,) = option
    assert diagnostic.hint == f"leave out {name}"
    assert diagnostic.expected.startswith(f"{name}: ")


def test_the_vocabulary_of_training_decides_where_another_text_is_cut(tmp_path):
    """Between two words, without an option that says so."""
    path = write(tmp_path / "a.txt", "cut " + "everywhere " * 40)
    train = request_dataset("text", {"path": str(path), "tokens": "words"}, "train")
    test = request_dataset("text", {"path": str(path), "held_out": 0.5}, "test")
    found = open_datasets({"train": train, "eval": test}, inputs(8))
    assert found["train"].vocabulary.unknown == 0
    assert found["eval"].fields["data"].records.min() > 0


def test_words_of_at_least_some_occurrences(tmp_path):
    path = write(tmp_path / "a.txt", "Don't go, don't!\nGo (now) go.\n" + "x " * 40)
    dataset = open_text(path, "all", 1, tokens="words", lower=True, min_count=2)
    vocabulary = dataset.vocabulary
    assert vocabulary is not None
    tokens = [vocabulary.token(number) for number in range(len(vocabulary))]
    assert tokens == ["<unk>", "x", "go", "\n", "don't"]
    text = vocabulary.decode(vocabulary.encode("Don't go, x\r\nnever (go)"))
    assert text == "don't go <unk> x\n<unk> <unk> go <unk>"
    few = open_text(path, "all", 1, tokens="words", lower=True, vocabulary=3)
    assert few.vocabulary is not None
    assert [few.vocabulary.token(number) for number in range(3)] == ["<unk>", "x", "go"]
    assert words_of("cafe\u0301s e\u0301te\u0301, l’été", True) == [
        "cafe\u0301s",
        "e\u0301te\u0301",
        ",",
        "l’été",
    ]
    # Vowel signs and other marks, and the joiners of Indic and Persian words, divide no word.
    assert words_of("हिन्दी में, தமிழ்", True) == ["हिन्दी", "में", ",", "தமிழ்"]
    assert words_of("می\u200cخواهم ☺\ufe0f! e\u0301te\u0301's", True) == [
        *("می\u200cخواهم", "☺\ufe0f", "!", "e\u0301te\u0301's")
    ]
    blanks = open_text(path, "all", 1, tokens="words", punctuation=False)
    assert blanks.vocabulary is not None
    assert blanks.vocabulary.decode(blanks.vocabulary.encode("Go (now) go.")) == "Go (now) go."


@pytest.mark.parametrize(
    "text",
    [
        "one line without an end",
        "\ufeffa mark\r\nCRLF\r\n",
        "nul \0 in it\n",
        "𝔸stral 😀 é\n",
        "\r",
    ],
)
def test_texts_come_back_from_their_ids(tmp_path, text):
    path = write(tmp_path / "a.txt", text * 3 + "end")
    expected = (text * 3 + "end").removeprefix("\ufeff")
    characters = open_text(path, "all", length=1).vocabulary
    assert characters is not None
    (span,) = divided([path], 0.0, False)[0]
    assert "".join(text_chunks(span)) == "".join(word_chunks(span)) == expected
    assert characters.decode(characters.encode(expected)) == expected.replace("\r\n", "\n")
    stored = open_text(path, "all", length=1, tokens="bytes")
    assert bytes(stored.fields["data"].records.reshape(-1)) == path.read_bytes()[:-1]
    assert stored.vocabulary is not None
    assert stored.vocabulary.decode(path.read_bytes()) == path.read_bytes().decode()


def test_pieces_of_a_large_text_are_read_as_one(tmp_path, monkeypatch):
    from mxrun.io.text import spans

    text = "é\r\n😀 wörd  two\r\r\n" * 20
    path = write(tmp_path / "a.txt", text)
    (span,) = divided([path], 0.0, False)[0]
    whole = [list(read(span)) for read in (text_chunks, word_chunks)]
    ids = open_text(path, "all", length=1).fields["data"].records.tolist()
    for size in range(1, 40):
        monkeypatch.setattr(spans, "_CHUNK", size)
        assert "".join(text_chunks(span)) == "".join(whole[0])
        assert open_text(path, "all", length=1).fields["data"].records.tolist() == ids
        pieces = list(word_chunks(span))
        assert "".join(pieces) == "".join(whole[1])
        words = [word for piece in pieces for word in piece.split()]
        assert words == "".join(whole[1]).split()


@pytest.mark.parametrize("text", ["a\r\nb\n", "a\r\r\nb\r\r\n", "\r\n\r\r\n\ra\n\r\n"])
def test_a_prompt_has_the_ids_that_training_read(tmp_path, text):
    path = write(tmp_path / "a.txt", text * 4)
    dataset = open_text(path, "all", length=1)
    vocabulary = dataset.vocabulary
    assert vocabulary is not None
    read = [*dataset.fields["data"].records, dataset.fields["label"].records[-1]]
    assert vocabulary.encode(text * 4).tolist() == np.concatenate(read).tolist()
    occurring = (text * 4).replace("\r\n", "\n")
    tokens = [vocabulary.token(number) for number in range(len(vocabulary))]
    assert tokens == sorted(set(occurring))


@pytest.mark.parametrize("at", range(15))
def test_a_text_is_cut_between_characters(tmp_path, at):
    content = "é😀\r\nab cdé f".encode()
    path = write(tmp_path / "a.txt", content)
    first, last = divided([path], 1 - at / len(content), False)
    parts = [content[span.start : span.stop] for span in (*first, *last)]
    assert b"".join(parts) == content
    for part in parts:
        part.decode()
        assert not part.startswith(b"\n")
    first, last = divided([path], 1 - at / len(content), True)
    parts = [content[span.start : span.stop] for span in (*first, *last)]
    assert b"".join(parts) == content
    assert " ".join(part.decode() for part in parts).split() == content.decode().split()


def test_no_word_is_cut_at_the_end_of_a_file(tmp_path):
    contents = [b"one two\nthree", "four fünf".encode(), b"six", b"7 eight"]
    paths = [write(tmp_path / f"{number}.txt", each) for number, each in enumerate(contents)]
    total = sum(map(len, contents))
    expected = [word for each in contents for word in each.split()]
    for at in range(total + 1):
        first, last = divided(paths, at / total, True)
        words = [
            word
            for span in (*first, *last)
            for word in span.path.read_bytes()[span.start : span.stop].split()
        ]
        assert words == expected
    assert sum(map(len, divided(paths, 2 / total, True)[0])) == total
    # What stands between blanks for kilobytes is no word.
    path = write(tmp_path / "long.txt", b"x" * 3000)
    first, last = divided([path], 0.5, True)
    assert [len(span) for span in (*first, *last)] == [1500, 1500]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"ab\xff" * 9, {}, r"byte 2: not UTF-8 text"),
        (b"\xef\xbb\xbfab\xc3", {}, r"byte 5: not UTF-8 text"),
        (b"", {}, "holds no text"),
        (b"\xef\xbb\xbf", {}, r"a.txt: holds no text\n.*\n  got: a byte order mark alone"),
        (b"\xef\xbb\xbf", {"tokens": "bytes"}, r"too short .*\n.*\n  got: 3"),
        (b"\xef\xbb\xbf", {"tokens": "words"}, "holds no text"),
        (b"\xef\xbb", {}, "byte 0: not UTF-8 text"),
        (b"short", {}, "too short for one window"),
        (b"long enough text", {"held_out": 0.0, "split": "test"}, "expected: a fraction above 0"),
        (b"a", {"split": "train"}, r"train has no text\n  expected: a smaller fraction"),
        (b"a", {"split": "test"}, r"train has no text\n  expected: a smaller fraction"),
        (b"abc", {"split": "test", "held_out": 0.0001}, r"\n  expected: a larger fraction"),
        (b"long enough text", {"tokens": "letters"}, "neither a kind of tokens nor"),
        (
            b"long enough text",
            {"tokens": "bytes", "min_count": 2},
            "min_count has no meaning",
        ),
        (b"long enough text", {"min_count": 99}, "no characters of the text occur 99 times"),
        (b"a b c d", {"tokens": "words", "vocabulary": 1}, "a vocabulary of 1 has no room for wo"),
        (b" \t " * 9, {"tokens": "words"}, "the text for training has no words\n"),
        (b" \t " * 9, {"tokens": "words", "min_count": 2}, "the text for training has no words\n"),
        (b"????????", {"unknown": "?"}, "the text for training has no characters but \\?"),
        (b"long enough text", {"order": "stream", "stride": 2}, "follow each other without gaps"),
        (b"long enough text", {"tokens": "absent.json"}, "absent.json"),
    ],
)
def test_texts_that_cannot_be_used(tmp_path, content, options, message):
    path = write(tmp_path / "a.txt", content)
    with pytest.raises(UserError, match=message):
        open_text(path, **{"split": "all", **options})


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    for path, message in ((tmp_path, "not a regular file"), (tmp_path / "no.txt", "no such file")):
        with pytest.raises(UserError, match=message):
            open_text(path, "all")


@pytest.mark.parametrize(("size", "last_batch"), [(3, "pad"), (3, "discard"), (7, "pad")])
def test_rows_of_a_stream_go_on_where_the_batch_before_ended(tmp_path, size, last_batch):
    path = write(tmp_path / "a.txt", TEXT)
    dataset = open_text(path, "all", order="stream")
    vocabulary, count = dataset.vocabulary, len(dataset)
    assert vocabulary is not None
    found = batches(dataset, size, last_batch=last_batch)
    each = count // size if last_batch == "discard" else -(-count // size)
    assert len(found) == each
    for row in range(size):
        rows = [batch["data"][row] for batch in found if row < batch["valid"]]
        text = vocabulary.decode(np.concatenate(rows)) if rows else ""
        assert text == TEXT[row * each * 8 :][: len(text)]
        assert len(rows) == max(0, min(each, count - row * each))
    assert all(batch["sample_weight"].sum() == batch["valid"] for batch in found)
    again = batches(dataset, size, epoch=2, last_batch=last_batch)
    assert all(
        np.array_equal(one["data"], two["data"]) for one, two in zip(found, again, strict=True)
    )


def test_a_stream_is_resumed_at_any_batch_and_comes_in_parts(tmp_path):
    path = write(tmp_path / "a.txt", TEXT)
    dataset = open_text(path, "all", order="stream")
    found = batches(dataset, 4)
    iterator = open_iterator(dataset, 4)
    assert iterator.is_stream
    slots = make_slots(iterator)
    for at in (3, 0, len(found) - 1):
        iterator.reset(5, at)
        iterator.next_into(slots)
        assert np.array_equal(slots["data"], found[at]["data"])
    parts = batches(dataset, 4, parts=2)
    joined = [
        np.concatenate([parts[2 * at]["data"], parts[2 * at + 1]["data"]])
        for at in range(len(found))
    ]
    assert all(np.array_equal(one, two["data"]) for one, two in zip(joined, found, strict=True))
    assert sum(part["valid"] for part in parts) == len(dataset)


@pytest.mark.skipif("MXRUN_TEST_DATA" not in os.environ, reason="MXRUN_TEST_DATA is not set")
def test_shakespeares_characters():
    path = Path(os.environ["MXRUN_TEST_DATA"]) / "tinyshakespeare.txt"
    text = path.read_text()
    train, test = (open_text(path, split, length=256) for split in ("train", "test"))
    assert train.vocabulary is not None
    assert len(train.vocabulary) == 65
    cut = int(0.9 * len(text))
    assert (len(train), len(test)) == ((cut - 1) // 256, (len(text) - cut - 1) // 256)
    assert train.vocabulary.decode(train.fields["data"].records[-1]) in text[cut - 600 : cut]
    assert train.vocabulary.decode(test.fields["data"].records[0]) == text[cut : cut + 256]
