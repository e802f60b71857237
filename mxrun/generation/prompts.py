"""Prompts: their texts, their tokens, and files that hold several."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.encodings import decoded
from mxrun.io.files import unreadable_error, with_prefix
from mxrun.io.text.json_values import ENDINGS, JsonValue, json_values
from mxrun.io.vocabulary.vocabulary import TokenDecoder, Vocabulary

# Tokens that end a text, by the names that vocabularies give them.
END_TOKENS = ("<|endoftext|>", "</s>", "<eos>", "<end>")

# Problem of a JSON value that is no prompt, and what it may be.
_NO_PROMPT = ("not a prompt", '"text", or {"prompt": "text"}')
STANDARD_INPUT = "-"
# Digits of the largest id, which is an int32.
_MAX_DIGITS = 10


@dataclass(frozen=True)
class Prompt:
    """Text to continue, and its place for messages; empty for the only text."""

    text: str
    place: str = ""


class Tokens:
    """Tokens of prompts and texts: those of a vocabulary, or ids written as numbers without one.

    count: number of tokens that the network predicts. end: id of the token that ends a text.
    """

    def __init__(self, vocabulary: Vocabulary | None, count: int) -> None:
        self.vocabulary = vocabulary
        self.count = count if vocabulary is None else min(count, len(vocabulary))
        self.end = None if vocabulary is None else _end(vocabulary, self.count)

    def encode(self, prompt: str) -> list[int]:
        """Return the ids of a prompt; raises UserError for unknown tokens, and for no tokens."""
        _check_is_text(prompt)
        if self.vocabulary is None:
            ids = _numbers(prompt, self.count)
        else:
            ids = self.vocabulary.encode(prompt).tolist()
        if not ids:
            raise UserError(
                Diagnostic("a prompt is empty", None, "one token or more", repr(prompt))
            )
        return ids

    def encode_all(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Return the ids of each prompt. Raises UserError, which names its place if it has one."""
        found = []
        for prompt in prompts:
            try:
                found.append(self.encode(prompt.text))
            except UserError as error:
                if not prompt.place:
                    raise
                raise with_prefix(error, prompt.place) from error
        return found

    def decoder(self, before: Sequence[int]) -> TokenDecoder:
        """Return the decoder of the tokens that follow those `before`."""
        return _NumberDecoder() if self.vocabulary is None else self.vocabulary.decoder(before)


class _NumberDecoder(TokenDecoder):
    """Decoder of ids into numbers."""

    def push(self, token: int) -> str:
        return f" {token}"


def _check_is_text(prompt: str) -> None:
    """Raise UserError for lone surrogates: bytes of the command line that are not UTF-8, or escapes
    in JSON.
    """
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            Diagnostic(
                f"a prompt is not text: its character {error.start + 1} is half of a pair, or no "
                "UTF-8",
                expected="text in UTF-8",
                got=repr(prompt[error.start : error.end]),
            )
        ) from error


def _end(vocabulary: Vocabulary, count: int) -> int | None:
    """Return the id of the token that ends a text, if the vocabulary has one."""
    found = (number for number in range(count) if vocabulary.token(number) in END_TOKENS)
    return next(found, None)


def _numbers(prompt: str, count: int) -> list[int]:
    """Return ids that a prompt lists; raises UserError."""
    words = prompt.split()
    wrong = [word for word in words if not _is_id(word, count)]
    if wrong:
        raise UserError(
            Diagnostic(
                "the run has no vocabulary: a prompt lists the ids of tokens",
                expected=f"numbers from 0 to {count - 1}, such as '3 1 4'",
                got=repr(wrong[0]),
            )
        )
    return [int(word[-_MAX_DIGITS:]) for word in words]


def _is_id(word: str, count: int) -> bool:
    """Return whether a word is a number below `count`, however many zeros it begins with."""
    if not (word.isascii() and word.isdecimal()):
        return False
    digits = word.lstrip("0")
    return len(digits) <= _MAX_DIGITS and int(digits or 0) < count


def read_prompts(path: Path) -> list[Prompt]:
    """Return the prompts of a file: one a line, or the values of JSON (.jsonl, .json); `-` for
    those of standard input, one a line.

    Such a value is a string, or an object with the key `prompt`. Blank lines and a byte order mark
    are left out. Raises UserError naming the line.
    """
    is_input = str(path) == STANDARD_INPUT
    name = "standard input" if is_input else str(path)
    try:
        content = sys.stdin.buffer.read() if is_input else path.read_bytes()
    except (OSError, ValueError) as error:
        raise unreadable_error(name, error) from error
    text = decoded(content, name)

    def place(line: int) -> str:
        return f"{name}, line {line}"

    if path.suffix in ENDINGS:
        values = json_values(text, place, *_NO_PROMPT)
        found = [Prompt(_prompt_of(each, place(each.line)), place(each.line)) for each in values]
    else:
        lines = enumerate(text.split("\n"), 1)
        found = [Prompt(line.removesuffix("\r"), place(at)) for at, line in lines if line.strip()]
    if not found:
        raise UserError(Diagnostic(f"{name} has no prompts", None, "one prompt a line"))
    return found


def _prompt_of(found: JsonValue, place: str) -> str:
    """Return the prompt of a value of JSON."""
    value = found.value.get("prompt") if isinstance(found.value, dict) else found.value
    if not isinstance(value, str):
        problem, expected = _NO_PROMPT
        raise UserError(Diagnostic(f"{place}: {problem}", None, expected, found.text[:60]))
    return value
