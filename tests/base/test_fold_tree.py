"""The order in which gradients of batch parts are added."""

from __future__ import annotations

import numpy as np
import pytest

from mxrun.base.fold_tree import fold_step, partial_sums, tree_sum


def formula(parts: int) -> str:
    """Return the sum of parts as the steps make it."""
    waiting: dict[int, str] = {}
    for part in range(parts):
        step, text = fold_step(part, parts), str(part)
        for level in step.levels:
            text = f"({waiting.pop(level)}+{text})"
        if step.target is None:
            assert not waiting
            return text
        assert step.target < partial_sums(parts)
        waiting[step.target] = text
    raise AssertionError


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (1, "0"),
        (2, "(0+1)"),
        (3, "((0+1)+2)"),
        (4, "((0+1)+(2+3))"),
        (6, "(((0+1)+(2+3))+(4+5))"),
        (8, "(((0+1)+(2+3))+((4+5)+(6+7)))"),
    ],
)
def test_neighbours_are_added_first(parts: int, expected: str) -> None:
    assert formula(parts) == expected


@pytest.mark.parametrize(("parts", "ranks"), [(4, 2), (8, 2), (8, 4), (6, 3), (12, 3), (5, 5)])
def test_branches_may_be_added_up_apart(parts: int, ranks: int) -> None:
    """To the same bits: of ranks whose shares are powers of two."""
    arrays = np.random.default_rng(0).standard_normal((parts, 1000)).astype(np.float32)
    whole = tree_sum([*arrays.copy()])
    shares = np.split(arrays.copy(), ranks)
    np.testing.assert_array_equal(tree_sum([tree_sum([*share]) for share in shares]), whole)
    assert not np.array_equal(arrays.sum(0), whole)
