"""Draws of tokens: their distribution, restrictions, and what they depend on."""

from __future__ import annotations

import numpy as np
import pytest

from mxrun.base.errors import UserError
from mxrun.generation.sampling import RowDraws, TokenSampling, most_likely, nucleus
from mxrun.runtime import random

LOGITS = np.log(np.array([0.1, 0.4, 0.05, 0.25, 0.2], np.float32))
# Numbers at the middle of a thousand equal parts of [0, 1).
GRID = (np.arange(1000) + 0.5) / 1000


def frequencies(sampling: TokenSampling, logits: np.ndarray = LOGITS) -> list[float]:
    drawn = [sampling.choose(logits, float(u)) for u in GRID]
    return [drawn.count(token) / len(GRID) for token in range(len(logits))]


def test_frequencies_are_the_probabilities() -> None:
    np.testing.assert_allclose(frequencies(TokenSampling()), [0.1, 0.4, 0.05, 0.25, 0.2], atol=2e-3)
    squares = np.array([0.01, 0.16, 0.0025, 0.0625, 0.04])
    np.testing.assert_allclose(
        frequencies(TokenSampling(temperature=0.5)), squares / squares.sum(), atol=2e-3
    )


def test_top_k_and_top_p_leave_the_likeliest() -> None:
    two = frequencies(TokenSampling(top_k=2))
    np.testing.assert_allclose(two, [0, 0.4 / 0.65, 0, 0.25 / 0.65, 0], atol=2e-3)
    # 0.4 + 0.25 is less than 0.7, so that a third token belongs to the share.
    share = frequencies(TokenSampling(top_p=0.7))
    np.testing.assert_allclose(share, [0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85], atol=2e-3)
    both = frequencies(TokenSampling(top_k=2, top_p=0.5))
    assert both == [0, 1, 0, 0, 0]
    assert frequencies(TokenSampling(top_k=5, top_p=1.0)) == frequencies(TokenSampling())


def test_greedy_takes_the_first_of_the_likeliest() -> None:
    greedy = TokenSampling(temperature=0)
    assert [greedy.choose(LOGITS, u) for u in (0.0, 0.999)] == [1, 1]
    assert greedy.choose(np.array([0.5, 2.0, 2.0], np.float32), 0.9) == 1
    assert frequencies(TokenSampling(top_k=1)) == [0, 1, 0, 0, 0]


def test_equal_logits_lose_their_last_tokens() -> None:
    equal = np.zeros(6, np.float32)
    assert most_likely(equal, 4).tolist() == [0, 1, 2, 3]
    assert most_likely(np.array([1, 5, 3, 3, 3, 0]), 3).tolist() == [1, 2, 3]
    assert nucleus(np.ones(4), 0.5).tolist() == [0, 1]
    assert nucleus(np.array([0.0, 1.0, 0.0]), 1e-9).tolist() == [1]


@pytest.mark.parametrize("share", [0.01, 0.5, 0.97, 1.0])
def test_a_share_of_many_weights_is_that_of_all_sorted(share: float) -> None:
    weights = np.random.default_rng(3).integers(1, 40, 5000).astype(np.float64)
    order = np.argsort(-weights, kind="stable")
    count = int(weights[order].cumsum().searchsorted(share * weights.sum())) + 1
    assert nucleus(weights, share).tolist() == sorted(order[:count].tolist())


@pytest.mark.parametrize("extreme", [3e38, 80.0])
def test_extreme_logits_do_not_overflow(extreme: float) -> None:
    logits = np.array([-extreme, extreme, 0], np.float32)
    for sampling in (TokenSampling(), TokenSampling(temperature=1e-6), TokenSampling(top_p=0.3)):
        assert sampling.choose(logits, 0.5) == 1
    assert TokenSampling().choose(np.array([-np.inf, 0, -np.inf], np.float32), 0.0) == 1
    with pytest.raises(UserError, match="not finite"):
        TokenSampling().choose(np.array([0, np.nan], np.float32), 0.5)


def test_random_numbers_depend_on_seed_row_and_position_alone() -> None:
    expected = random.uniform(7, "generate/3", (3000,))
    draws = RowDraws(7, 3)
    read = range(500, 3000, 7)
    assert [draws.at(position) for position in read] == expected[500::7].tolist()
    assert RowDraws(7, 4).at(500) != expected[500] != RowDraws(8, 3).at(500)


def test_a_tiny_temperature_takes_the_likeliest_without_warnings() -> None:
    logits = np.array([-3.0, 2.0, -1e30], np.float32)
    with np.errstate(over="raise"):
        assert TokenSampling(5e-324).choose(logits, 0.999) == 1
