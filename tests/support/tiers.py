"""Which of the collected tests a run takes.

Three tiers: `pytest` takes a sample in minutes, `pytest --full` every test but the soak tests, and
`pytest --soak` these alone. The choice depends on nothing but the tests' ids, so that it is the
same in every process and whatever is collected beside them.

The sample has every test that is not one of a large matrix, and of a large matrix the cases whose
id has one hash in ten, the first of them by hash if there are none, and likewise for every
operator that the matrix has cases of. Of a file whose tests run whole commands, seconds each, it
has the test functions with one hash in five, the first of them if there are none, and of their
cases the same share. A test marked `full` is left out of it, of a matrix marked `whole` every case
is in it, and of one marked `sparse` a tenth, whatever their operators.

What is asked for by node id runs in any tier; so does a `full` or sampled test where a run has few
tests altogether. Soak tests run with `--soak` or by node id alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

# A matrix of no more cases is taken whole.
LARGE = 20
# One case in so many of a large matrix is taken, and one test in so many of whole commands.
SHARE, COMMANDS_SHARE = 10, 5
# Of whole commands a matrix of no more cases is taken whole.
FEW_COMMANDS = 2
# A run of no more tests than this takes all of them.
FEW = 100

MARKERS = {
    "full": "slow and alone of its kind in its file: left out of plain `pytest`",
    "whole": "a large matrix of which plain `pytest` runs every case: each takes no time",
    "sparse": "a large matrix over operators that others have as well: plain `pytest` runs a tenth",
    "commands": "runs whole commands or trainings, as all of tests/cli, tests/commands and "
    "tests/session does: plain `pytest` runs a fifth",
    "soak": "takes minutes, and is run by hand: `pytest --soak`",
}


class Tier(Enum):
    """What a run is asked for."""

    PLAIN = "a sample of the large matrices; --full runs every test, --soak the long ones"
    FULL = "every test; --soak runs the long ones"
    SOAK = "the long tests alone"


@dataclass(frozen=True)
class Case:
    """One test.

    function: the node id without parameters. operators: those that its parameters name. named:
    whether the command line names it by node id.
    """

    node: str
    function: str
    operators: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    named: bool = False


def choose(cases: Sequence[Case], tier: Tier) -> list[Case]:
    """The cases that a run takes, in their order."""
    soak = tier is Tier.SOAK
    asked = [case for case in cases if ("soak" in case.marks) == soak or case.named]
    if tier is not Tier.PLAIN or len(asked) <= FEW:
        return asked
    return _sample(asked)


def _sample(cases: Sequence[Case]) -> list[Case]:
    """The named cases, and the plain tier's share of the others."""
    matrices: dict[str, list[Case]] = {}
    files: dict[str, set[str]] = {}
    for case in cases:
        if not case.named and "full" not in case.marks:
            matrices.setdefault(case.function, []).append(case)
            if "commands" in case.marks:
                files.setdefault(case.function.partition("::")[0], set()).add(case.function)
    left_out = {name for names in files.values() for name in names - _fifth(names)}
    taken = {
        case.node
        for function, matrix in matrices.items()
        if function not in left_out
        for case in _share(matrix)
    }
    return [case for case in cases if case.named or case.node in taken]


def _fifth(names: Iterable[str]) -> set[str]:
    """One name in five, by hash; at least one."""
    ordered = sorted(names, key=lambda name: (_hash(name), name))
    return {name for name in ordered if _hash(name) % COMMANDS_SHARE == 0} or {*ordered[:1]}


def _share(matrix: Sequence[Case]) -> list[Case]:
    """The cases that stand for a matrix."""
    if any("commands" in case.marks for case in matrix):
        nodes = [case.node for case in matrix]
        wanted = nodes if len(nodes) <= FEW_COMMANDS else _fifth(nodes)
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
