"""Vocabularies: ids of texts and back, whole and token by token, and as files of a run."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxrun.base.errors import UserError
from mxrun.io.vocabulary.form import TokenForm
from mxrun.io.vocabulary.saved import VOCABULARY_FILE, read_vocabulary
from mxrun.io.vocabulary.vocabulary import ByteVocabulary, Vocabulary

TEXT = "To be, or not to be:\nthat is (the) question — être 😀\n"
FORMS = {
    "characters": TokenForm(),
    "with unknown": TokenForm(unknown="?", min_count=2, lower=True),
    "bytes": TokenForm("bytes"),
    "words": TokenForm("words", unknown="<unk>"),
    "at blanks": TokenForm("words", unknown="<unk>", punctuation=False, size=6),
    "padded": TokenForm("words", unknown="<unk>", extra=("<pad>",)),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_saved_vocabulary_is_the_same(form: TokenForm, tmp_path: Path) -> None:
    made = form.learn([TEXT])
    (tmp_path / VOCABULARY_FILE).write_text(made.content)
    assert made.sha256 == hashlib.sha256(made.content.encode()).hexdigest()
    again = read_vocabulary(tmp_path, made.sha256)
    assert (type(again), len(again), again.content) == (type(made), len(made), made.content)
    ids = made.encode(TEXT)
    assert (ids.dtype, again.encode(TEXT).tolist()) == (np.int32, ids.tolist())
    assert 0 <= ids.min() <= ids.max() < len(made)
    assert again.decode(ids) == made.decode(ids)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_text_is_decoded_token_by_token(form: TokenForm) -> None:
    made = form.learn([TEXT])
    ids = made.encode(TEXT).tolist()
    for cut in range(len(ids) + 1):
        decoder = made.decoder(ids[:cut])
        added = "".join(decoder.push(each) for each in ids[cut:]) + decoder.finish()
        assert made.decode(ids).endswith(added)
        if cut == 0:
            assert added == made.decode(ids)


def test_characters_of_all_texts_are_counted_together() -> None:
    texts = ["aé", "b" * (1 << 20), "éa", "c", "a", "é"]
    assert TokenForm(min_count=3).learn(texts).token(2) == "é"
    assert len(TokenForm(min_count=3).learn(texts)) == len("abé")


@pytest.mark.full
@given(st.text(max_size=60))
def test_characters_and_bytes_give_any_text_back(text: str) -> None:
    vocabularies: list[Vocabulary] = [ByteVocabulary()]
    if plain := text.replace("\r\n", "\n"):
        vocabularies.append(TokenForm().learn([plain]))
    for vocabulary in vocabularies:
        expected = text if isinstance(vocabulary, ByteVocabulary) else plain
        assert vocabulary.decode(vocabulary.encode(text)) == expected


@given(st.text(max_size=60))
def test_words_of_words_are_the_same_words(text: str) -> None:
    made = TokenForm("words", unknown="<unk>").learn([text + " a"])
    ids = made.encode(text)
    assert made.encode(made.decode(ids)).tolist() == ids.tolist()


def test_ids_and_characters_outside_are_refused() -> None:
    made = TokenForm().learn(["abc"])
    for wrong in (-1, 3):
        with pytest.raises(UserError, match=f"the vocabulary has no token {wrong}"):
            made.decode([wrong])
    with pytest.raises(UserError, match="does not have these characters: 'd', 'é'"):
        made.encode("abdéd")
    # Bytes of the command line that are not UTF-8.
    with pytest.raises(UserError, match="does not have"):
        made.encode("a\udcff")


SAVED: dict[str, Any] = {"kind": "characters", "tokens": ["a", "b"], "unknown": None}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b"\xff",
        {**SAVED, "kind": "letters"},
        {**SAVED, "tokens": []},
        {**SAVED, "tokens": None},
        {**SAVED, "tokens": ["a", "a"]},
        {**SAVED, "tokens": ["a", 1]},
        {**SAVED, "tokens": ["a", "\ud800"]},
        {**SAVED, "unknown": 2},
        {**SAVED, "unknown": -1},
        {**SAVED, "more": 1},
    ],
)
def test_what_is_no_vocabulary_is_refused(content: Any, tmp_path: Path) -> None:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    (tmp_path / VOCABULARY_FILE).write_bytes(text)
    with pytest.raises(UserError, match=f"{VOCABULARY_FILE}: it is not a vocabulary"):
        read_vocabulary(tmp_path, hashlib.sha256(text).hexdigest())


def test_another_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    made = TokenForm().learn(["abc"])
    with pytest.raises(UserError, match="no such file"):
        read_vocabulary(tmp_path, made.sha256)
    (tmp_path / VOCABULARY_FILE).write_text(made.content.replace("a", "d", 1))
    with pytest.raises(UserError, match="it is not the vocabulary of the checkpoint"):
        read_vocabulary(tmp_path, made.sha256)
    (tmp_path / VOCABULARY_FILE).unlink()
    (tmp_path / VOCABULARY_FILE).mkdir()
    with pytest.raises(UserError, match="cannot use the run's"):
        read_vocabulary(tmp_path, made.sha256)
    (tmp_path / VOCABULARY_FILE).rmdir()
    os.mkfifo(tmp_path / VOCABULARY_FILE)
    with pytest.raises(UserError, match="it is not the vocabulary of the checkpoint"):
        read_vocabulary(tmp_path, made.sha256)
