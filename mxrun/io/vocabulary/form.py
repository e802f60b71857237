"""How texts become tokens: what is learned from training's text, and what is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.io.files import user_path
from mxrun.io.vocabulary.vocabulary import (
    ByteVocabulary,
    CharacterVocabulary,
    ListedVocabulary,
    Vocabulary,
    WordVocabulary,
    code_points,
)
from mxrun.io.vocabulary.words import with_line_feeds, words_of

BYTES, CHARACTERS, WORDS = "bytes", "characters", "words"
KINDS = (CHARACTERS, BYTES, WORDS)
LISTED = (CHARACTERS, WORDS)
"""Kinds whose vocabulary is learned from training's text."""

_CODE_POINTS = 0x110000
_ASCII = 128
# Characters that are counted at once.
_JOINED = 1 << 20


@dataclass(frozen=True)
class TokenForm:
    """Form of the tokens: one of `KINDS`, or the path of a tokenizer's file.

    lower: whether texts are read in lower case. punctuation: whether marks are words of their own.
    min_count: how often a token occurs in the text of training, at least. size: the most tokens of
    the vocabulary, the most frequent ones; None for all. unknown: the token that stands for all
    others; None: others are refused. extra: tokens of the first ids, such as one for padding.
    written: names of these options that a config writes, and not only leaves at their defaults.
    """

    tokens: str = CHARACTERS
    lower: bool = False
    punctuation: bool = True
    min_count: int = 1
    size: int | None = None
    unknown: str | None = None
    extra: tuple[str, ...] = ()
    written: frozenset[str] = frozenset()

    @property
    def at_words(self) -> bool:
        """Whether texts may be cut only between words."""
        return self.tokens not in (CHARACTERS, BYTES)

    def check(self, vocabulary: Vocabulary) -> None:
        """Raise UserError if a written option says something else than a vocabulary that is given:
        that of training reads all texts.
        """
        own = {"tokens": self.tokens, "lower": self.lower, "punctuation": self.punctuation}
        kind = vocabulary.kind
        same = {**own, "tokens": kind if kind in KINDS or self.tokens in KINDS else self.tokens}
        if isinstance(vocabulary, ListedVocabulary):
            same["lower"] = vocabulary.lower
        if isinstance(vocabulary, WordVocabulary):
            same["punctuation"] = vocabulary.punctuation
        for name, value in own.items():
            if name in self.written and value != same[name]:
                problem = f"{name}: texts are read with the vocabulary of training, which differs"
                expected, got = (
                    f"{name}: {str(each).lower() if isinstance(each, bool) else each}"
                    for each in (same[name], value)
                )
                raise UserError(Diagnostic(problem, None, expected, got, hint=f"leave out {name}"))

    def learn(self, texts: Iterable[str]) -> Vocabulary:
        """Return the vocabulary of the pieces of training's text.

        Raises UserError if none of its tokens counts, and for a tokenizer's file that is not one.
        """
        if self.tokens == BYTES:
            return ByteVocabulary()
        if self.tokens not in KINDS:
            from mxrun.io.vocabulary.tokenizer_file import read_tokenizer

            return read_tokenizer(user_path(self.tokens))
        texts = map(with_line_feeds, texts)
        if self.lower:
            texts = (text.lower() for text in texts)
        if self.tokens == WORDS:
            kept = self._kept(_word_counts(texts, self.punctuation), by_count=True)
            return WordVocabulary(kept, self._unknown_id, self.lower, self.punctuation)
        kept = self._kept(_character_counts(texts), by_count=self.size is not None)
        return CharacterVocabulary(kept, self._unknown_id, self.lower)

    @property
    def _unknown_id(self) -> int | None:
        return None if self.unknown is None else len(self.extra)

    def _kept(self, counts: Counter[str], by_count: bool) -> list[str]:
        """Return the tokens of a vocabulary by id: the special ones, and those that count.

        These are ordered by their texts or, with `by_count`, by how often they occur, and those
        that occur as often by their texts.
        """
        first = [*self.extra, *([] if self.unknown is None else [self.unknown])]
        enough = [
            token
            for token, count in counts.items()
            if count >= self.min_count and token not in first
        ]
        enough.sort(key=lambda token: (-counts[token], token) if by_count else (0, token))
        if not enough:
            raise UserError(self._nothing_counts(bool(counts), first))
        if self.size is not None and self.size <= len(first):
            problem = f"a vocabulary of {self.size} has no room for {self.tokens} of the text"
            expected = f"vocabulary: {len(first) + 1} or more, for {listed(first)} and the others"
            raise UserError(Diagnostic(problem, None, expected, f"vocabulary: {self.size}"))
        return first + enough[: None if self.size is None else self.size - len(first)]

    def _nothing_counts(self, has_some: bool, first: list[str]) -> Diagnostic:
        """Return the diagnostic for a text without tokens for the vocabulary.

        has_some: whether it has tokens at all. first: the special ones.
        """
        if has_some and self.min_count > 1:
            problem = f"no {self.tokens} of the text occur {self.min_count} times or more"
            return Diagnostic(problem, hint="lower min_count, or give more text")
        but = f" but {listed(first)}" if has_some else ""
        problem = f"the text for training has no {self.tokens}{but}"
        return Diagnostic(problem, None, f"{self.tokens} to make a vocabulary of")


def _character_counts(texts: Iterable[str]) -> Counter[str]:
    """Return how often each character occurs."""
    counts = np.zeros(_CODE_POINTS, np.int64)
    for text in _joined(texts):
        found = code_points(text)
        size = _ASCII if found.dtype == np.uint8 else _CODE_POINTS
        counts[:size] += np.bincount(found, minlength=size)
    return Counter({chr(each): int(counts[each]) for each in np.flatnonzero(counts).tolist()})


def _joined(texts: Iterable[str]) -> Iterator[str]:
    """Yield short texts joined to longer ones: to count all of Unicode for each takes 1.4 ms."""
    waiting, size = list[str](), 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= _JOINED:
            yield "".join(waiting)
            waiting, size = [], 0
    yield "".join(waiting)


def _word_counts(texts: Iterable[str], punctuation: bool) -> Counter[str]:
    """Return how often each word occurs."""
    return Counter(chain.from_iterable(words_of(text, punctuation) for text in texts))
