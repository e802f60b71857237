"""Suggestions for misspelt names, and the cost of the comparison."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mxrun.base.errors import MAX_SHOWN, Diagnostic, UserError
from mxrun.base.near_names import Suggestions, edit_distance, listed, near_names, nearest
from mxrun.base.patterns import PatternTable

KNOWN = ("BatchNorm", "Convolution", "LRN", "norm", "floor", "relu", "LeakyReLU", "batch_dot")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("batch_norm", ["BatchNorm"]),
        ("RELU", ["relu"]),
        ("BatchNorm2d", ["BatchNorm"]),
        ("Convolutoin", ["Convolution"]),
        ("conv", ["Convolution"]),
        ("rleu", ["relu"]),
        ("RNN", []),
        ("LRM", ["LRN"]),
        ("NLR", []),
        ("LNR", ["LRN"]),
        ("LRNN", ["LRN"]),
        ("LayerNorm", []),
        ("Foo", []),
        ("", []),
        ("x", []),
    ],
)
def test_a_name_is_near_by_its_letters_and_length(name: str, near: list[str]) -> None:
    assert near_names(name, KNOWN) == near


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [("", "", 0), ("ab", "ba", 1), ("abc", "abcd", 1), ("abcd", "bcde", 2), ("ab", "xy", 2)],
)
def test_edit_distance(left: str, right: str, distance: int) -> None:
    assert edit_distance(left, right, 3) == distance
    assert edit_distance(right, left, 3) == distance
    assert edit_distance(left, right, 0) == min(distance, 1)


@pytest.mark.parametrize(
    ("name", "known"),
    [("gpu", "cpu"), ("lag", "log"), ("lag", "nag"), ("np", "nd"), ("lr", "wd")],
)
def test_short_names_that_share_few_letters_are_not_near(name: str, known: str) -> None:
    assert near_names(name, [known]) == near_names(known, [name]) == []


@pytest.mark.parametrize(
    ("name", "known"), [("fcc", "fc"), ("rum", "run"), ("sdg", "sgd"), ("adm", "adam")]
)
def test_short_names_with_a_letter_too_many_or_swapped_are_near(name: str, known: str) -> None:
    assert near_names(name, [known]) == [known]


def test_a_colon_without_a_space_is_named() -> None:
    assert nearest("lr:0.1", ["lr", "wd"]) == "write a space after the colon: lr: 0.1"
    assert nearest("lr:0.1", ["wd"]) == ""


def test_long_lists_of_names_are_cut() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([f"n{i}" for i in range(40)]).endswith("n10, n11 and 28 more")


class Counted(list[str]):
    """Names that count their iterations."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        self.read += 1
        return super().__iter__()


def test_near_names_are_looked_for_as_often_as_they_are_shown() -> None:
    known = Counted(["weight"])
    suggestions = Suggestions(most=2)
    hints = [suggestions.nearest(f"weight{i}", known) for i in range(100)]
    assert hints[:2] == ["did you mean 'weight'?"] * 2
    assert set(hints[2:]) == {""}
    assert known.read == 2


def test_an_error_shows_its_first_problems_and_counts_the_others() -> None:
    error = UserError(Diagnostic(f"problem {i}") for i in range(MAX_SHOWN + 30))
    assert len(error.diagnostics) == MAX_SHOWN + 30
    lines = str(error).splitlines()
    assert len(lines) == MAX_SHOWN + 1
    assert lines[-1] == "and 30 more problems"


def test_names_are_held_against_patterns_that_begin_alike() -> None:
    names = [f"fc{i}_weight" for i in range(500)]
    patterns = [f"fc{i}_*" for i in range(250)] + names[250:] + ["*_bias", "fc1_[vw]*"]
    table = PatternTable(patterns)
    assert table.matching("fc1_weight") == ["fc1_*", "fc1_[vw]*"]
    assert table.matching("fc300_weight") == ["fc300_weight"]
    assert table.matching("fc1_bias") == ["fc1_*", "*_bias"]
    assert table.matching("FC1_weight") == []
    # Their own, and those that every name or every name of fc1 begins like.
    assert sum(len(table.candidates(name)) for name in names) == 500 + 500 + 1
