"""Selection of the collected tests by tier.

Three tiers: `pytest` runs a sample in minutes, `pytest --full` every test except the soak tests,
and a run with `--soak` the soak tests alone. The selection depends only on the tests' ids, so that
it is the same in every process and for every set of collected tests.

The sample has every test that is not part of a large matrix. Of a large matrix it has one case in
twelve, by a hash of the id, or the one with the lowest hash if there are none; likewise for every
operator with cases in the matrix. Of a file whose tests run complete commands, seconds each, it has
one test function in ten, by hash, at least one, and the same share of their cases. A test marked
`full` is left out; of a matrix marked `whole` every case is included, of one marked `sparse` a
twelfth for all operators together.

Tests marked `gpu` run with `-m gpu` alone, in the order of their files, which is that in which
faults are looked for.

A test requested by node id runs in any tier, and so does a `full` or sampled test in a run of few
tests. Soak tests run with `--soak` or by node id only.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

# A matrix with at most this many cases is included completely.
LARGE = 10
# One case in this many of a large matrix is included, and one test of complete commands.
SHARE, COMMANDS_SHARE = 12, 10
# A matrix of complete commands with at most this many cases is included completely.
FEW_COMMANDS = 2
# A run of no more tests than this takes all of them.
FEW = 100

MARKERS = {
    "full": "slow and alone of its kind in its file: left out of plain `pytest`",
    "whole": "a large matrix of which plain `pytest` runs every case: each takes no time",
    "sparse": "a large matrix over operators that others have as well: plain `pytest` runs a "
    "twelfth",
    "commands": "runs whole commands or trainings, as all of tests/cli, tests/commands, "
    "tests/frontend and the rooms of the commands does: plain `pytest` runs a tenth",
    "soak": "takes minutes, and is run by hand: `pytest --soak`",
    "gpu": "needs a card, and is run by hand: `pytest -m gpu`",
}


class Tier(Enum):
    """Tier of a run."""

    PLAIN = "a sample of the large matrices; --full runs every test, --soak the long ones"
    FULL = "every test; --soak runs the long ones"
    SOAK = "the long tests alone"
    GPU = "those of a card alone"


@dataclass(frozen=True)
class Case:
    """One test.

    function: the node id without parameters. operators: those named by its parameters. named:
    whether the command line names it by node id.
    """

    node: str
    function: str
    operators: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    named: bool = False


def choose(cases: Sequence[Case], tier: Tier) -> list[Case]:
    """The cases that a run takes, in their order."""
    if tier is Tier.GPU:
        return [case for case in cases if "gpu" in case.marks or case.named]
    soak = tier is Tier.SOAK
    candidates = [
        case
        for case in cases
        if (("soak" in case.marks) == soak and "gpu" not in case.marks) or case.named
    ]
    if tier is not Tier.PLAIN or len(candidates) <= FEW:
        return candidates
    return _sample(candidates)


def _sample(cases: Sequence[Case]) -> list[Case]:
    """Return the named cases, and the plain tier's share of the others."""
    matrices: dict[str, list[Case]] = {}
    files: dict[str, set[str]] = {}
    for case in cases:
        if not case.named and "full" not in case.marks:
            matrices.setdefault(case.function, []).append(case)
            if "commands" in case.marks:
                files.setdefault(case.function.partition("::")[0], set()).add(case.function)
    left_out = {name for names in files.values() for name in names - _tenth(names)}
    taken = {
        case.node
        for function, matrix in matrices.items()
        if function not in left_out
        for case in _share(matrix)
    }
    return [case for case in cases if case.named or case.node in taken]


def _tenth(names: Iterable[str]) -> set[str]:
    """Return one name in ten by hash, at least one."""
    ordered = sorted(names, key=lambda name: (_hash(name), name))
    return {name for name in ordered if _hash(name) % COMMANDS_SHARE == 0} or {*ordered[:1]}


def _share(matrix: Sequence[Case]) -> list[Case]:
    """Return the cases of a matrix that are in the sample."""
    if any("commands" in case.marks for case in matrix):
        nodes = [case.node for case in matrix]
        wanted = nodes if len(nodes) <= FEW_COMMANDS else _tenth(nodes)
        return [case for case in matrix if case.node in wanted]
    if len(matrix) <= LARGE:
        return list(matrix)
    lowest: dict[str, str] = {}
    for case in sorted(matrix, key=lambda case: (_hash(case.node), case.node)):
        for operator in [""] if "sparse" in case.marks else case.operators or [""]:
            lowest.setdefault(operator, case.node)
    needed = set(lowest.values())
    return [
        case
        for case in matrix
        if "whole" in case.marks or _hash(case.node) % SHARE == 0 or case.node in needed
    ]


def _hash(node: str) -> int:
    return zlib.crc32(node.encode())
