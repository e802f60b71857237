"""Table of operator cases: numbers of operators, cases, comparisons and exceptions."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

from operator_row import AGREEMENT
from operator_rows import REFERENCES, ROWS

from mxrun.operator.register import OPERATORS, implementations

PUBLIC = [name for name in OPERATORS if not OPERATORS.get(name).is_internal]
SYNONYMS = {"plus": "add", "minus": "sub"}
# Prints the operators with a PyTorch function. Whatever the modules take from torch is a class that
# has every attribute.
TRANSLATED = """
import sys

class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub

class Stub(metaclass=Anything):
    def __init__(self, *given, **named):
        pass

    def __call__(self, function):
        return function

for name in ("torch", "torch.nn", "torch.nn.functional", "torch.nn.utils", "torch.nn.utils.rnn"):
    sys.modules[name] = Stub
from mxrun.peers.pytorch import OPERATORS
print(*OPERATORS)
"""


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


def test_every_operator_has_five_cases_or_more() -> None:
    counts = Counter(row.operator for row in ROWS)
    assert {name: counts[name] for name in {*PUBLIC, *REFERENCES} if counts[name] < 5} == {}


def test_rows_name_peers_and_nothing_else() -> None:
    """A text in place of a tuple would be its letters."""
    for row in ROWS:
        assert isinstance(row.peers, tuple), f"{row}: peers must be a tuple of names"
        assert {*row.peers} <= {"MXNet", "PyTorch"}, f"{row}: unknown peers"


def test_every_operator_that_is_compared_with_pytorch_is_translated() -> None:
    """Reads the names of translations with a stand-in for torch, which few environments have."""
    done = subprocess.run(
        [sys.executable, "-c", TRANSLATED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    translated = set(done.stdout.split())
    lacking = sorted({row.operator for row in ROWS if "PyTorch" in row.peers} - translated)
    assert not lacking, f"these lack a function in mxrun/peers/pytorch/: {lacking}"


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
    silent, needless = sorted(lacking - said), sorted(said - lacking)
    assert not silent, f"these lack `no_peer`, which peer is missing and why: {silent}"
    assert not needless, f"these are compared with both and have a `no_peer`: {needless}"
    assert all(len(reasons[name]) == 1 for name in lacking)


def test_few_operators_agree_less_than_1e_5_with_their_peers() -> None:
    looser = {row.operator for row in ROWS if row.agreement != AGREEMENT}
    assert AGREEMENT == 1e-5
    assert len(looser) <= 10
    assert all(AGREEMENT <= row.agreement <= 1e-4 for row in ROWS)
