"""Tokenizers of the tokenizers library, an extra: without it they are refused."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import only_problem

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.vocabulary.saved import VOCABULARY_FILE, read_vocabulary
from mxrun.io.vocabulary.tokenizer_file import TokenizerVocabulary, read_tokenizer

needs_library = pytest.mark.skipif(
    find_spec("tokenizers") is None, reason="the package tokenizers is not installed"
)
SPEC = TensorSpec((8,), "int32")
TEXT = "The quick brown fox, naïve 😀!\r\nIt jumps over\n\nthe lazy dog's bowl.\n" * 20


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A byte-level BPE, as GPT-2's, of a few merges, and its own reading of the text."""
    tokenizers: Any = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320, show_progress=False, initial_alphabet=alphabet, special_tokens=["<end>"]
    )
    made.train_from_iterator([TEXT], trainer)
    made.enable_truncation(4)
    made.enable_padding(length=3)
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def open_text(path: Path, tokenizer: Path, split: str = "all", **options: Any) -> Dataset:
    given = {"path": str(path), "tokens": str(tokenizer), **options}
    request = request_dataset("text", given, split)
    return open_datasets({"train": request}, {"data": SPEC, "label": SPEC})["train"]


@needs_library
def test_ids_are_those_of_the_library_and_give_the_text_back(tokenizer, tmp_path):
    import tokenizers

    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    dataset = open_text(tmp_path / "a.txt", tokenizer)
    vocabulary = dataset.vocabulary
    assert isinstance(vocabulary, TokenizerVocabulary)
    library = tokenizers.Tokenizer.from_file(str(tokenizer))
    library.no_truncation()
    library.no_padding()
    plain = TEXT.replace("\r\n", "\n")
    ids = library.encode(plain).ids
    assert len(vocabulary) == library.get_vocab_size()
    assert vocabulary.encode(TEXT).tolist() == ids
    assert dataset.fields["data"].records.dtype == np.uint16
    count = len(dataset)
    assert dataset.fields["data"].records.reshape(-1).tolist() == ids[: 8 * count]
    assert vocabulary.decode(ids) == plain
    # As they are generated: characters of several ids appear when they are complete.
    decoder = vocabulary.decoder(ids[:30])
    start = vocabulary.decode(ids[:30])
    added = "".join(decoder.push(each) for each in ids[30:]) + decoder.finish()
    assert start + added == plain


@needs_library
def test_a_run_saves_the_file_of_its_tokenizer(tokenizer, tmp_path):
    vocabulary = read_tokenizer(tokenizer)
    (tmp_path / VOCABULARY_FILE).write_text(vocabulary.content)
    again = read_vocabulary(tmp_path, vocabulary.sha256)
    assert again.encode(TEXT).tolist() == vocabulary.encode(TEXT).tolist()
    assert again.sha256 == vocabulary.sha256


@needs_library
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "not a tokenizer's file"),
        ("no json", "not a tokenizer's file"),
        ('{"model": {"type": "BPE"}}', "not a tokenizer's file"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, message):
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=message):
        open_text(tmp_path / "a.txt", tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_bytes(b'{"\xff": 1}')
    with pytest.raises(UserError, match="byte 2: not UTF-8 text"):
        open_text(tmp_path / "a.txt", tmp_path / "tokenizer.json")


@needs_library
def test_a_truncated_file_is_refused(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    content = tokenizer.read_text()
    for size in (0, 1, len(content) // 2, len(content) - 2):
        tokenizer.write_text(content[:size])
        with pytest.raises(UserError, match="not a tokenizer's file"):
            open_text(tmp_path / "a.txt", tokenizer)
    assert json.loads(content)["model"]["type"] == "BPE"


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "tokenizer.json").write_text("{}")
    # The name of a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    found = only_problem(open_text, tmp_path / "a.txt", tmp_path / "tokenizer.json")
    assert found.hint == "pip install 'mxrun[tokenizers]'"
    assert "not installed" in found.problem


@needs_library
@pytest.mark.parametrize("kind", ["WordLevel", "WordPiece", "Unigram", "BPE"])
def test_a_tokenizer_without_its_unknown_token_is_refused_when_it_is_opened(tmp_path, kind):
    model: dict[str, Any] = {"type": kind, "vocab": {"the": 0}, "unk_token": "[UNK]"}
    if kind == "WordPiece":
        model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    if kind == "Unigram":
        model = {"type": kind, "vocab": [["the", 0.0]], "unk_id": None}
    if kind == "BPE":
        model["merges"] = []
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"version": "1.0", "model": model}))
    with pytest.raises(UserError, match="cannot encode a text that has an unknown word"):
        read_tokenizer(path)
