"""Table of operator cases: numbers of operators, cases, comparisons and exceptions."""

from __future__ import annotations

import re
from collections import Counter

from operator_row import AGREEMENT
from operator_rows import ROWS

from mxrun.operator.register import OPERATORS, implementations

PUBLIC = [name for name in OPERATORS if not OPERATORS.get(name).is_internal]
SYNONYMS = {"plus": "add", "minus": "sub"}


def map_of(name: str) -> str:
    """Return the common name of the scalar, broadcast and reversed variants of a map."""
    name = re.sub(r"^_r(?=\w+_scalar$)", "_", name)
    name = re.sub(r"^(broadcast_|elemwise_|_)", "", name).removesuffix("_scalar")
    return SYNONYMS.get(name, name)


def test_twins_are_told() -> None:
    twins = ("broadcast_sub", "elemwise_sub", "_minus_scalar", "_rminus_scalar")
    assert {map_of(name) for name in twins} == {"sub"}
    assert map_of("_equal_scalar") == map_of("broadcast_equal") == "equal"
    assert map_of("reciprocal") == "reciprocal"


def test_there_are_120_distinct_operators() -> None:
    assert len({map_of(name) for name in PUBLIC}) >= 120


def test_every_operator_has_three_cases_or_more() -> None:
    counts = Counter(row.operator for row in ROWS)
    assert {name: counts[name] for name in PUBLIC if counts[name] < 3} == {}


def test_only_what_runs_nothing_has_no_compiled_kernel() -> None:
    alone = {name for name in PUBLIC if not implementations(name)}
    assert alone == {name for name in PUBLIC if OPERATORS.get(name).is_view}
    assert len(alone) <= 10


def test_every_operator_is_compared_with_both_peers_or_says_why_not() -> None:
    compared: dict[str, set[str]] = {}
    reasons: dict[str, set[str]] = {}
    for row in (row for row in ROWS if row.operator in PUBLIC):
        compared.setdefault(row.operator, set()).update(row.peers)
        reasons.setdefault(row.operator, set()).add(row.no_peer)
    lacking = {name for name, peers in compared.items() if peers != {"MXNet", "PyTorch"}}
    # All cases of an operator share one reason, and only operators that need a reason have one.
    said = {name for name, sentences in reasons.items() if sentences != {""}}
    assert not lacking - said, (
        "these lack `no_peer`: which of MXNet and PyTorch is missing, and why"
    )
    assert not said - lacking, "these are compared with both and have a `no_peer`"
    assert all(len(reasons[name]) == 1 for name in lacking)


def test_few_operators_agree_less_than_1e_5_with_their_peers() -> None:
    looser = {row.operator for row in ROWS if row.agreement != AGREEMENT}
    assert AGREEMENT == 1e-5
    assert len(looser) <= 10
    assert all(AGREEMENT <= row.agreement <= 1e-4 for row in ROWS)
