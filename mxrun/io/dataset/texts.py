"""Texts as records of one length: ids of their tokens, padding, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.dataset.buckets import Buckets
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.files import check_memory
from mxrun.io.vocabulary.form import TokenForm
from mxrun.io.vocabulary.vocabulary import Vocabulary

PADDING = "<pad>"
"""The token of padding, the first one of a vocabulary that is learned."""

DATA, LENGTHS, MASK = "data", "lengths", "mask"


@dataclass(frozen=True, eq=False)
class TextColumn:
    """Texts of records before they become tokens.

    length: number of tokens of a record. kept: which tokens of a longer text are. padding: the id
    after the last token. buckets: lengths of the buckets, ascending; the last one is `length`.
    name: file of the texts, for messages.
    """

    texts: Sequence[str]
    form: TokenForm
    length: int
    kept: Literal["start", "end"]
    padding: int
    buckets: tuple[int, ...]
    name: str

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, rows: slice | NDArray[np.int64]) -> TextColumn:
        """Return the texts of some records."""
        if isinstance(rows, slice):
            return replace(self, texts=self.texts[rows])
        return replace(self, texts=[self.texts[row] for row in rows.tolist()])

    def learn(self) -> Vocabulary:
        """Return the vocabulary of these texts, which are those of training."""
        return self.form.learn(self.texts)

    def fields(
        self, vocabulary: Vocabulary, inputs: Inputs
    ) -> tuple[dict[str, Field], Buckets | None]:
        """Return the fields of the texts: `data`, int32 [length], and what the network reads more.

        `lengths` are the numbers of tokens, at least 1; `mask`, float32 [length], is 1 for a token
        and 0 for padding. Also returns the buckets of the records. Raises UserError for a padding
        that the vocabulary does not have.
        """
        self.form.check(vocabulary)
        if self.padding >= len(vocabulary):
            problem = f"the vocabulary has no token {self.padding} for padding"
            expected = f"an id from 0 to {len(vocabulary) - 1}"
            raise UserError(Diagnostic(problem, None, expected, str(self.padding)))
        count, dtype = len(self.texts), np.dtype(vocabulary.dtype)
        check_memory(self.name, count * self.length * dtype.itemsize)
        rows = np.full((count, self.length), self.padding, dtype)
        # A text without tokens is one of padding, so that means over tokens exist.
        lengths = np.ones(count, np.int32)
        for row, text in enumerate(self.texts):
            ids = vocabulary.encode(text)
            ids = ids[: self.length] if self.kept == "start" else ids[-self.length :]
            rows[row, : len(ids)] = ids
            lengths[row] = max(1, len(ids))
        found = {DATA: Field(rows, dtype="int32")}
        if LENGTHS in inputs:
            found[LENGTHS] = Field(lengths.astype(inputs[LENGTHS].dtype))
        if MASK in inputs:
            tokens = np.arange(self.length) < lengths[:, np.newaxis]
            found[MASK] = Field(tokens.astype(np.uint8), scale=1.0)
        buckets = None
        if self.buckets:
            padded = frozenset(name for name in (DATA, MASK) if name in found)
            buckets = Buckets.of(self.buckets, lengths, padded)
        return found, buckets
