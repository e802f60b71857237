"""Statistics of texts: how many tokens, which are frequent, and the loss of guessing by that."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.io.dataset.dataset import Dataset

_FREQUENT = 10
# Ids that are counted at once.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class TextStatistics:
    """Tokens of a field of a section, without padding.

    kind: of the tokens. vocabulary: number of different ones that there are ids for. unknown:
    tokens that stand for others; None if the vocabulary has no such token. frequent: the most
    frequent tokens with their counts. entropy: of the tokens' frequencies, in nats: the loss of a
    model that knows nothing else.
    """

    kind: str
    vocabulary: int
    tokens: int
    unknown: int | None
    frequent: tuple[tuple[str, int], ...]
    entropy: float

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON."""
        return asdict(self)


def text_statistics(dataset: Dataset, name: str) -> TextStatistics:
    """Count the tokens of a field of texts."""
    vocabulary = dataset.vocabulary
    assert vocabulary is not None
    ids = dataset.fields[name].distinct.reshape(-1)
    counts = np.zeros(len(vocabulary), np.int64)
    for start in range(0, len(ids), _CHUNK):
        counts += np.bincount(ids[start : start + _CHUNK], minlength=len(vocabulary))
    if dataset.padding is not None:
        counts[dataset.padding] = 0
    order = np.argsort(-counts, kind="stable")[:_FREQUENT]
    frequent = [(vocabulary.token(number), int(counts[number])) for number in order.tolist()]
    unknown = vocabulary.unknown
    shares = counts[counts > 0] / max(1, counts.sum())
    return TextStatistics(
        vocabulary.kind,
        len(vocabulary),
        int(counts.sum()),
        None if unknown is None else int(counts[unknown]),
        tuple(each for each in frequent if each[1]),
        float(-(shares * np.log(shares)).sum()),
    )
