"""Texts of files as compact arrays of token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import UserError
from mxrun.io.files import check_memory, with_prefix
from mxrun.io.text.spans import TextSpan, byte_chunks, text_chunks, word_chunks
from mxrun.io.vocabulary.form import BYTES, TokenForm
from mxrun.io.vocabulary.vocabulary import Vocabulary


def learn_vocabulary(form: TokenForm, spans: Sequence[TextSpan]) -> Vocabulary:
    """Return the vocabulary of parts of files; raises UserError for text that cannot be read."""
    if form.tokens == BYTES:
        return form.learn(())
    read = word_chunks if form.at_words else text_chunks
    return form.learn(chain.from_iterable(map(read, spans)))


def encoded(spans: Sequence[TextSpan], vocabulary: Vocabulary) -> NDArray[Any]:
    """Return the ids of parts of files, one after the other: uint8, uint16 or int32 [tokens].

    Raises UserError naming the file with a token that the vocabulary does not have, and if the ids
    do not fit into memory.
    """
    if spans:
        # A token has a byte or more; pieces and their concatenation are there together.
        size = sum(map(len, spans)) * np.dtype(vocabulary.dtype).itemsize
        check_memory(spans[0].path, 2 * size if vocabulary.reads_text else size)
    pieces = [
        np.zeros(0, vocabulary.dtype),
        *chain.from_iterable(_pieces(span, vocabulary) for span in spans),
    ]
    return np.concatenate(pieces)


def _pieces(span: TextSpan, vocabulary: Vocabulary) -> Iterator[NDArray[Any]]:
    """Yield the ids of a part of a file, piece by piece."""
    if not vocabulary.reads_text:
        for _, content in byte_chunks([span]):
            yield np.frombuffer(content, np.uint8)
        return
    for text in (word_chunks if vocabulary.at_words else text_chunks)(span):
        try:
            ids = vocabulary.encode(text)
        except UserError as error:
            raise with_prefix(error, str(span.path)) from error
        yield ids.astype(vocabulary.dtype)
