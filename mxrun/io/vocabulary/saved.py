"""Vocabularies as a run saves them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters, check
from mxrun.io.vocabulary.vocabulary import (
    ByteVocabulary,
    CharacterVocabulary,
    Vocabulary,
    WordVocabulary,
)

VOCABULARY_FILE = "vocabulary.json"
"""Name of the file in a run's folder."""

_MAX_BYTES = 1 << 28
Tokens = Annotated[tuple[str, ...], Field(min_length=1)]


class _SavedVocabulary(Parameters):
    """Content of a vocabulary's file; which keys are there depends on `kind`."""

    kind: Literal["bytes", "characters", "words", "tokenizer"] = Field(description="Its kind.")
    tokens: Tokens | None = Field(default=None, description="The tokens by id.")
    unknown: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="The id of the token that stands for all others."
    )
    lower: bool = Field(default=False, description="Whether texts are read in lower case.")
    punctuation: bool = Field(default=True, description="Whether marks are words of their own.")
    tokenizer: str | None = Field(default=None, description="The tokenizer's file.")


def read_vocabulary(run: Path, sha256: str) -> Vocabulary:
    """Return the vocabulary in a run's folder; `sha256` is that of the file.

    Raises UserError if it is not there, or is another one.
    """
    path = run / VOCABULARY_FILE
    try:
        with open(path, "rb", opener=_open_without_blocking) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(min(size, _MAX_BYTES) + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = "copy it from the run that the checkpoint is of"
        raise UserError(Diagnostic(f"cannot use the run's {path}: {reason}", hint=hint)) from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        problem = f"cannot use the run's {path}: it is not the vocabulary of the checkpoint"
        raise UserError(Diagnostic(problem, None, f"SHA-256 {sha256}", found))
    return _parsed(content, path)


def _open_without_blocking(path: str, flags: int) -> int:
    """Open a file; a pipe of this name, which nobody may ever write, is empty."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parsed(content: bytes, path: Path) -> Vocabulary:
    """Return the vocabulary of a file's content; raises UserError if it is none."""
    problem = f"cannot use the run's {path}: it is not a vocabulary"
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(problem) from error
    if not isinstance(values, dict):
        raise UserError(problem)
    saved, problems = check(_SavedVocabulary, values)
    if saved is None:
        raise UserError(Diagnostic(problem, None, problems[0].expected, problems[0].problem))
    try:
        "".join((*(saved.tokens or ()), saved.tokenizer or "")).encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(Diagnostic(problem, None, "tokens in UTF-8")) from error
    if saved.kind == "bytes":
        return ByteVocabulary()
    if saved.kind == "tokenizer":
        from mxrun.io.vocabulary.tokenizer_file import TokenizerVocabulary

        return TokenizerVocabulary(saved.tokenizer or "", str(path))
    tokens = saved.tokens or ()
    is_known = saved.unknown is None or saved.unknown < len(tokens)
    if not tokens or len(set(tokens)) != len(tokens) or not is_known:
        raise UserError(Diagnostic(problem, None, "tokens that differ"))
    if saved.kind == "words":
        return WordVocabulary(tokens, saved.unknown, saved.lower, saved.punctuation)
    return CharacterVocabulary(tokens, saved.unknown, saved.lower)
