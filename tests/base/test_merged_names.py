"""Merging of many names into a few patterns."""

from __future__ import annotations

import pytest

from mxrun.base.merged_names import merged_names


@pytest.mark.parametrize(
    ("names", "merged"),
    [
        ("", ""),
        ("conv1_weight", "conv1_weight"),
        ("conv1_weight conv2_weight conv1_bias", "conv*_weight conv1_bias"),
        ("s1/u1/w s1/u2/w s1/u10/w", "s1/u*/w"),
        ("s1/u1/w s2/u1/w", "s*/u1/w"),
        ("a1 a2 b a3", "a* b"),
        ("1x 2x x1 x2 x", "*x x* x"),
        ("fc fc fc2", "fc fc2"),
    ],
)
def test_names_that_differ_in_numbers_alone_are_merged(names: str, merged: str) -> None:
    assert merged_names(names.split()) == tuple(merged.split())
