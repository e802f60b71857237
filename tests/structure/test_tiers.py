"""Tests left out by each tier, and tests that no tier leaves out."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import tiers
from operator_rows import ROWS
from tiers import FEW, LARGE, Case, Tier, choose

TESTS = Path(__file__).parents[1]


def matrix(function: str, parameters: list[str], **more: object) -> list[Case]:
    return [Case(f"{function}[{each}]", function, **more) for each in parameters]


def numbered(function: str, count: int, **more: object) -> list[Case]:
    return matrix(function, [str(number) for number in range(count)], **more)


def table(function: str) -> list[Case]:
    """A matrix over the rows of the operators' table, each in two types."""
    return [
        Case(f"{function}[{dtype}-{row}]", function, frozenset({row.operator}))
        for row in ROWS
        for dtype in ("float32", "float64")
    ]


MANY = numbered("tests/a.py::test_many", 10 * FEW)


def test_every_operator_is_in_each_sampled_matrix() -> None:
    for function in ("tests/a.py::test_forward", "tests/b.py::test_backward"):
        cases = table(function)
        taken = choose(cases, Tier.PLAIN)
        operators = {name for case in taken for name in case.operators}
        assert operators == {row.operator for row in ROWS}
        # A tenth, plus one per operator.
        assert len(taken) < len(cases) / tiers.SHARE * 1.3 + len(operators)


def test_a_choice_depends_on_nothing_but_the_case() -> None:
    cases = [*table("tests/a.py::test_forward"), *MANY]
    taken = {case.node for case in choose(cases, Tier.PLAIN)}
    shuffled = random.Random(0).sample(cases, len(cases))
    assert {case.node for case in choose(shuffled, Tier.PLAIN)} == taken
    beside = [*numbered("tests/b.py::test_others", 3 * LARGE), *cases]
    with_more = {case.node for case in choose(beside, Tier.PLAIN)}
    assert {node for node in with_more if not node.startswith("tests/b.py")} == taken
    # Adding or removing a case changes no other one, unless it is the first of its operator.
    assert {case.node for case in choose(MANY[1:], Tier.PLAIN)} >= {
        case.node for case in choose(MANY, Tier.PLAIN)[2:]
    }


def test_a_tenth_of_a_matrix_without_operators_is_taken() -> None:
    taken = choose(MANY, Tier.PLAIN)
    assert len(MANY) / 20 < len(taken) < len(MANY) / 5
    assert taken == [case for case in MANY if case in taken]


def test_no_function_vanishes() -> None:
    functions = [f"tests/a.py::test_{number}" for number in range(40)]
    for count in (1, LARGE, LARGE + 1, 5 * LARGE):
        cases = [case for function in functions for case in numbered(function, count)]
        taken = choose([*cases, *MANY], Tier.PLAIN)
        assert {case.function for case in taken} >= set(functions)
        if count <= LARGE:
            assert set(cases) <= set(taken)


def test_marks_leave_out_and_keep() -> None:
    slow = numbered("tests/a.py::test_slow", 2, marks=frozenset({"full"}))
    cheap = numbered("tests/a.py::test_cheap", 3 * LARGE, marks=frozenset({"whole"}))
    long = numbered("tests/soak/a.py::test_long", 2, marks=frozenset({"soak"}))
    cases = [*slow, *cheap, *long, *MANY]
    plain = set(choose(cases, Tier.PLAIN))
    assert not plain & {*slow, *long}
    assert plain >= set(cheap)
    assert choose(cases, Tier.FULL) == [*slow, *cheap, *MANY]
    assert choose(cases, Tier.SOAK) == long


def test_a_tenth_of_whole_commands_is_taken_and_some_of_every_file() -> None:
    marks = frozenset({"commands"})
    files = [f"tests/cli/test_{number}.py" for number in range(40)]
    cases = [
        case
        for file in files
        for count, name in ((1, "one"), (1, "other"), (2, "both"), (40, "many"))
        for case in numbered(f"{file}::test_{name}", count, marks=marks)
    ]
    taken = choose([*cases, *MANY], Tier.PLAIN)
    assert {case.function.partition("::")[0] for case in taken} == {*files, "tests/a.py"}
    functions = {case.function for case in taken} - {MANY[0].function}
    assert len(files) <= len(functions) < 0.4 * 4 * len(files)
    for function in functions:
        cases_of = [case for case in cases if case.function == function]
        share = [case for case in taken if case.function == function]
        assert share == cases_of if len(cases_of) <= 2 else 0 < len(share) < len(cases_of) / 2


def test_of_a_sparse_matrix_a_tenth_is_taken() -> None:
    rows = [replace(case, marks=frozenset({"sparse"})) for case in table("tests/a.py::test_rows")]
    taken = choose([*rows, *MANY], Tier.PLAIN)
    share = [case for case in taken if case in rows]
    assert 0 < len(share) < len(rows) / tiers.SHARE * 1.3


def test_what_is_named_runs() -> None:
    named = numbered("tests/a.py::test_slow", 1, marks=frozenset({"full"}), named=True)
    named += numbered("tests/soak/a.py::test_long", 1, marks=frozenset({"soak"}), named=True)
    named += numbered("tests/a.py::test_cases", 5 * LARGE, named=True)
    for tier in Tier:
        assert set(choose([*named, *MANY], tier)) >= set(named)


def test_a_few_tests_all_run() -> None:
    few = MANY[: FEW - 1] + numbered("tests/a.py::test_slow", 1, marks=frozenset({"full"}))
    assert choose(few, Tier.PLAIN) == few
    assert choose([*few, *MANY[FEW:]], Tier.PLAIN) != [*few, *MANY[FEW:]]


def marked(path: Path, mark: str) -> bool:
    """Return whether an entire file has a mark."""
    return re.search(rf"^pytestmark = .*pytest\.mark\.{mark}\b", path.read_text(), re.M) is not None


def test_soak_tests_are_in_their_folder_and_no_other() -> None:
    for path in TESTS.rglob("test_*.py"):
        assert marked(path, "soak") == (path.parent.name == "soak"), path


def test_no_file_is_left_out_of_the_plain_tier() -> None:
    """Every file has tests without the mark `full`."""
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        assert not marked(path, "full"), path
        left_out = len(re.findall(r"^@pytest\.mark\.full$", text, re.M))
        assert left_out < len(re.findall(r"^def test_", text, re.M)), path
