"""Vocabularies: tokens of a text and their ids, saved with a run as JSON."""

from __future__ import annotations

import codecs
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.near_names import listed
from mxrun.base.once import cached_property
from mxrun.io.vocabulary.words import joined, with_line_feeds, words_of

Ids = NDArray[np.int32]

# Id of a token that the vocabulary does not have, before it is replaced or refused.
_MISSING = -1
# Number of code points of Unicode.
_CODE_POINTS = 0x110000
_ASCII = 128


class TokenDecoder(ABC):
    """Text of ids that come one after the other, as a model generates them."""

    @abstractmethod
    def push(self, token: int) -> str:
        """Return the text that the next id adds; empty while a character is not complete."""

    def finish(self) -> str:
        """Return what is left of an incomplete character."""
        return ""


class Vocabulary(ABC):
    """Tokens and their ids, 0 .. length - 1.

    The same text has the same ids in training, in evaluation and in a prompt. `kind` is the name in
    a config. `at_words`: whether texts may be cut only between words.
    """

    kind: ClassVar[str]
    at_words: ClassVar[bool] = False
    # Whether its ids come from text, not from the bytes of a file.
    reads_text: ClassVar[bool] = True
    # Id of the token that stands for all that it does not have.
    unknown: int | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of ids."""

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """Return the ids of a text, int32 [tokens].

        Raises UserError for what the vocabulary does not have.
        """

    @abstractmethod
    def decoder(self, before: Sequence[int] = ()) -> TokenDecoder:
        """Return a decoder of ids that follow those `before`."""

    @abstractmethod
    def token(self, number: int) -> str:
        """Return the text of one token, for people to read."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return all that `encode` and `decode` need."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; raises UserError for an id outside the vocabulary."""
        decoder = self.decoder()
        text = "".join(decoder.push(self._known(int(number))) for number in ids)
        return text + decoder.finish()

    @cached_property
    def content(self) -> str:
        """The vocabulary as JSON text, in canonical form."""
        saved = {"kind": self.kind, **self.to_json()}
        return json.dumps(saved, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n"

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the vocabulary's JSON."""
        return hashlib.sha256(self.content.encode("utf-8")).hexdigest()

    @property
    def dtype(self) -> type[np.integer[Any]]:
        """The smallest of uint8, uint16 and int32 that holds every id."""
        size = len(self)
        return np.uint8 if size <= 1 << 8 else np.uint16 if size <= 1 << 16 else np.int32

    def _known(self, number: int) -> int:
        if not 0 <= number < len(self):
            problem = f"the vocabulary has no token {number}"
            raise UserError(Diagnostic(problem, None, f"ids from 0 to {len(self) - 1}"))
        return number


class ByteVocabulary(Vocabulary):
    """The 256 bytes; texts are their UTF-8 bytes."""

    kind = "bytes"
    reads_text = False

    def __len__(self) -> int:
        return 256

    def encode(self, text: str) -> Ids:
        """Return the bytes of a text, int32 [bytes]."""
        return np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int32)

    def decoder(self, before: Sequence[int] = ()) -> TokenDecoder:
        """Return a decoder of bytes; wrong ones become the replacement character."""
        decoder = _ByteDecoder()
        for number in before:
            decoder.push(number)
        return decoder

    def token(self, number: int) -> str:
        """Return a printable ASCII character, else the byte in hexadecimal digits."""
        return chr(number) if 32 <= number < 127 else f"0x{number:02x}"

    def to_json(self) -> dict[str, Any]:
        """Return nothing: all byte vocabularies are alike."""
        return {}


class _ByteDecoder(TokenDecoder):
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(bytes((token,)))

    def finish(self) -> str:
        return self._decoder.decode(b"", True)


class ListedVocabulary(Vocabulary):
    """Vocabulary whose tokens are listed; one may stand for all others.

    unknown: the id of that one. lower: whether texts are read in lower case.
    """

    def __init__(self, tokens: Sequence[str], unknown: int | None, lower: bool) -> None:
        self.tokens, self.unknown, self.lower = tuple(tokens), unknown, lower
        if len(set(self.tokens)) != len(self.tokens) or not self.tokens:
            raise InternalError("tokens of a vocabulary must differ")

    def __len__(self) -> int:
        return len(self.tokens)

    def token(self, number: int) -> str:
        """Return a token as it is."""
        return self.tokens[number]

    def to_json(self) -> dict[str, Any]:
        """Return the tokens, and how texts are read."""
        return {"tokens": list(self.tokens), "unknown": self.unknown, "lower": self.lower}

    def _prepared(self, text: str) -> str:
        """Return the text with its line ends as line feeds, in lower case if that is read."""
        text = with_line_feeds(text)
        return text.lower() if self.lower else text

    def _refuse(self, missing: Iterable[str]) -> UserError:
        """Return the error for tokens that the vocabulary does not have."""
        named = [repr(token) for token in dict.fromkeys(missing)]
        problem = f"the vocabulary does not have these {self.kind}: {listed(named)}"
        hint = f"leave them out, or train with unknown: TOKEN, which stands for other {self.kind}"
        return UserError(Diagnostic(problem, None, f"{self.kind} of the training text", hint=hint))


class CharacterVocabulary(ListedVocabulary):
    """Characters, that is code points of Unicode."""

    kind = "characters"

    @cached_property
    def _ids(self) -> Ids:
        """Id of each code point."""
        missing = _MISSING if self.unknown is None else self.unknown
        ids = np.full(_CODE_POINTS, missing, np.int32)
        known = [number for number, token in enumerate(self.tokens) if len(token) == 1]
        ids[[ord(self.tokens[number]) for number in known]] = known
        return ids

    def encode(self, text: str) -> Ids:
        """Return the ids of the characters of a text, int32 [characters]."""
        text = self._prepared(text)
        ids: Ids = self._ids[code_points(text)]
        if self.unknown is None and len(ids) and ids.min() == _MISSING:
            raise self._refuse(text[at] for at in np.flatnonzero(ids == _MISSING).tolist())
        return ids

    def decoder(self, before: Sequence[int] = ()) -> TokenDecoder:
        """Return a decoder of characters, which do not depend on those before."""
        return _ListDecoder(self.tokens)


class _ListDecoder(TokenDecoder):
    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens

    def push(self, token: int) -> str:
        return self._tokens[token]


def code_points(text: str) -> NDArray[Any]:
    """Return the code points of a text, uint8 if all are ASCII, else uint32 [characters]."""
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8)
    # Surrogates, which no UTF-8 file holds, are in arguments of the command line.
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


class WordVocabulary(ListedVocabulary):
    """Words and line ends; punctuation: whether marks are words of their own."""

    kind = "words"
    at_words = True

    def __init__(
        self, tokens: Sequence[str], unknown: int | None, lower: bool, punctuation: bool
    ) -> None:
        super().__init__(tokens, unknown, lower)
        self.punctuation = punctuation

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}

    def encode(self, text: str) -> Ids:
        """Return the ids of the words and line ends of a text, int32 [words]."""
        words = words_of(self._prepared(text), self.punctuation)
        known, missing = self._ids, _MISSING if self.unknown is None else self.unknown
        ids = np.fromiter(map(known.get, words, repeat(missing)), np.int32, len(words))
        if self.unknown is None and len(ids) and ids.min() == _MISSING:
            raise self._refuse(words[at] for at in np.flatnonzero(ids == _MISSING).tolist())
        return ids

    def decoder(self, before: Sequence[int] = ()) -> TokenDecoder:
        """Return a decoder of words, with blanks between them."""
        last = self.tokens[before[-1]] if len(before) else ""
        return _WordDecoder(self.tokens, last, self.punctuation)

    def to_json(self) -> dict[str, Any]:
        """Return the words, and how texts are read."""
        return {**super().to_json(), "punctuation": self.punctuation}


class _WordDecoder(TokenDecoder):
    def __init__(self, tokens: Sequence[str], before: str, punctuation: bool) -> None:
        self._tokens, self._before, self._punctuation = tokens, before, punctuation

    def push(self, token: int) -> str:
        word = self._tokens[token]
        text = joined([word], self._before, self._punctuation)
        self._before = word
        return text
