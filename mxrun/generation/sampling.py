"""Choice of the next token from its logits: greedy, or a draw from the most likely ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.runtime import random

Array = npt.NDArray[Any]

# Number of the largest weights that are sorted first.
_SORTED = 128
# Random numbers that are made at once.
_BLOCK = 1024


@dataclass(frozen=True)
class TokenSampling:
    """How tokens are drawn: with the probabilities softmax(logits / temperature), restricted to the
    `top_k` most likely tokens, and of these to the fewest that together have the probability
    `top_p`.

    temperature: 0 for the most likely token. Of equal tokens the lower ids come first.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def choose(self, logits: Array, uniform: float) -> int:
        """Return a token.

        logits: [tokens]. uniform: a random number in [0, 1). Raises UserError for logits that are
        not numbers.
        """
        highest = int(logits.argmax())
        peak = logits.item(highest)
        if not math.isfinite(peak):
            raise UserError(
                Diagnostic(
                    "the network's logits are not finite",
                    got=str(peak),
                    hint="the weights have diverged in training: use another checkpoint",
                )
            )
        if not self.temperature:
            return highest
        ids, values = None, logits
        if self.top_k is not None and self.top_k < len(logits):
            ids = most_likely(logits, self.top_k)
            values = logits[ids]
        weights = values.astype(np.float64)
        weights -= peak
        if self.temperature != 1:
            # Differences that a tiny temperature makes too large for a float have the weight 0.
            with np.errstate(over="ignore"):
                weights /= self.temperature
        np.exp(weights, weights)
        if self.top_p is not None and self.top_p < 1:
            kept = nucleus(weights, self.top_p)
            ids, weights = kept if ids is None else ids[kept], weights[kept]
        sums = weights.cumsum()
        drawn = int(sums.searchsorted(uniform * sums.item(-1), "right"))
        drawn = min(drawn, len(sums) - 1)
        return drawn if ids is None else int(ids[drawn])


def most_likely(values: Array, count: int) -> Array:
    """Return the indices of the `count` largest values, ascending; of equal ones the first."""
    limit = np.partition(values, len(values) - count)[len(values) - count]
    chosen = np.flatnonzero(values >= limit)
    if len(chosen) > count:
        equal = chosen[values[chosen] == limit]
        surplus = equal[len(equal) - (len(chosen) - count) :]
        chosen = chosen[~np.isin(chosen, surplus)]
    return chosen


def nucleus(weights: Array, share: float) -> Array:
    """Return the indices, ascending, of the fewest largest weights with this share of their sum.

    Only as many of the largest are sorted as it takes: 50,000 weights would take 20 ms.
    """
    wanted, count = share * weights.sum(), min(_SORTED, len(weights))
    while True:
        chosen = most_likely(weights, count)
        order = chosen[np.argsort(-weights[chosen], kind="stable")]
        sums = weights[order].cumsum()
        if count == len(weights) or sums.item(-1) >= wanted:
            return np.sort(order[: int(sums.searchsorted(wanted)) + 1])
        count = min(8 * count, len(weights))


class RowDraws:
    """Random numbers of a row, one for each position, read in ascending order.

    They are made in blocks: a long text needs no memory for all of them.
    """

    def __init__(self, seed: int, row: int) -> None:
        self._seed, self._name = seed, f"generate/{row}"
        self._first = 0
        self._block: list[float] = []

    def at(self, position: int) -> float:
        """Return the number of a position, in [0, 1)."""
        if not self._first <= position < self._first + len(self._block):
            self._first = position - position % _BLOCK
            drawn = random.uniform(self._seed, self._name, (_BLOCK,), self._first)
            self._block = drawn.tolist()
        return self._block[position - self._first]
