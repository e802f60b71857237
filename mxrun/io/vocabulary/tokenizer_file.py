"""Vocabularies of the `tokenizers` library, which reads its own files; an extra."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.encodings import decoded
from mxrun.io.files import read_all_bytes
from mxrun.io.vocabulary.vocabulary import Ids, TokenDecoder, Vocabulary
from mxrun.io.vocabulary.words import with_line_feeds

# The first version whose files and functions are those used here.
_MIN_VERSION = (0, 15)
# Ids whose texts decide how the next one is written: characters may be spread over several ids, and
# a word's first id may stand for a blank.
_CONTEXT = 16
# A character that no vocabulary has.
_UNKNOWN = "\U0010fffd"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def read_tokenizer(path: Path) -> TokenizerVocabulary:
    """Return the vocabulary in a file of the `tokenizers` library, usually tokenizer.json.

    Raises UserError if it is none, or without the library.
    """
    return TokenizerVocabulary(decoded(read_all_bytes(path), path), str(path))


class TokenizerVocabulary(Vocabulary):
    """Tokens of a tokenizer's file, without those that it adds around a text."""

    kind = "tokenizer"
    at_words = True

    def __init__(self, file: str, name: str) -> None:
        """`file`: the file's content; `name`: its path, for messages."""
        library = _library(name)
        try:
            self._tokenizer = library.Tokenizer.from_str(file)
        # The library raises the base class itself.
        except Exception as error:
            problem = f"{name}: not a tokenizer's file: {str(error)[:200]}"
            expected = "tokenizer.json, as the tokenizers library writes it"
            raise UserError(Diagnostic(problem, None, expected)) from error
        # They belong to batches of a model, and a text is read in pieces.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._file = file
        known = self._tokenizer.get_vocab(with_added_tokens=True).values()
        # Ids may have gaps.
        self._size = max(known, default=-1) + 1
        if not self._size:
            raise UserError(Diagnostic(f"{name}: the tokenizer has no tokens"))
        self._name = name
        # A tokenizer that names an unknown token that it lacks fails at the first unknown word.
        self.encode(_UNKNOWN)

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str) -> Ids:
        """Return the ids of a text, int32 [tokens]."""
        text = with_line_feeds(text)
        try:
            found = self._tokenizer.encode(text, add_special_tokens=False).ids
        # The library raises the base class itself.
        except Exception as error:
            problem = f"{self._name}: the tokenizer cannot encode a text that has an unknown word"
            hint = "add the unknown token to the vocabulary of the file"
            raise UserError(Diagnostic(problem, got=str(error)[:200], hint=hint)) from error
        return np.array(found, np.int32)

    def decoder(self, before: Sequence[int] = ()) -> TokenDecoder:
        """Return a decoder of ids, whose text depends on those before."""
        return _TokenizerDecoder(self._tokenizer, before)

    def token(self, number: int) -> str:
        """Return a token as the file writes it."""
        return self._tokenizer.id_to_token(number) or ""

    def to_json(self) -> dict[str, Any]:
        """Return the tokenizer's file."""
        return {"tokenizer": self._file}


class _TokenizerDecoder(TokenDecoder):
    """Texts of the last ids, with and without the next one."""

    def __init__(self, tokenizer: Any, before: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._ids = [int(number) for number in before][-_CONTEXT:]
        self._text = self._decode(self._ids)

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def push(self, token: int) -> str:
        self._ids.append(token)
        text = self._decode(self._ids)
        # A character of which bytes are missing.
        if text.endswith(_REPLACEMENT) and len(self._ids) < 2 * _CONTEXT:
            return ""
        added = text[len(self._text) :]
        if len(self._ids) > _CONTEXT:
            self._ids = self._ids[-_CONTEXT // 2 :]
            text = self._decode(self._ids)
        self._text = text
        return added

    def finish(self) -> str:
        return self._decode(self._ids)[len(self._text) :]


def _library(name: str) -> Any:
    """Return the library; raises UserError if it is not there, or too old to read `name`."""
    hint = "pip install 'mxrun[tokenizers]'"
    problem = f"{name}: a tokenizer's file is read with tokenizers"
    expected = f"tokenizers {'.'.join(map(str, _MIN_VERSION))} or later"
    try:
        import tokenizers
    except ImportError as error:
        raise UserError(
            Diagnostic(f"{problem}, which is not installed", None, expected, hint=hint)
        ) from error
    version = tuple(int(part) for part in tokenizers.__version__.split(".")[:2] if part.isdigit())
    if version < _MIN_VERSION:
        got = tokenizers.__version__
        raise UserError(Diagnostic(f"{problem}, which is too old", None, expected, got, hint=hint))
    return tokenizers
