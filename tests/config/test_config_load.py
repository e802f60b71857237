"""YAML to source nodes: YAML 1.2 scalars, locations, limits, and bytes that are not a config."""

import math
from pathlib import Path

import pytest
from refusals import only_problem

from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.config.load import LARGEST_FILE, load_file, load_text
from mxrun.config.marked import SourceNode
from mxrun.config.scalar import resolve

START = SourceLocation("c.yaml", 1, 1)


def load(text: str) -> SourceNode:
    problems = Diagnostics()
    marked = load_text(text, START, problems)
    assert not list(problems)
    return marked


def problems_of(text: str) -> list[Diagnostic]:
    problems = Diagnostics()
    try:
        load_text(text, START, problems)
    except UserError as error:
        problems += error.diagnostics
    return list(problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-0.5E+2", -50.0),
        ("3", 3),
        ("+12", 12),
        ("-7", -7),
        ("010", 10),
        ("0o17", 15),
        ("0xfF", 255),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2001-01-01", "2001-01-01"),
        ("=", "="),
        ("0b11", "0b11"),
        ("1e", "1e"),
        (".", "."),
        ("~", None),
        ("", None),
        ("null", None),
        ("Null", None),
        ("nULL", "nULL"),
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("tRue", "tRue"),
        ("false", False),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("inf", "inf"),
        ("٣", "٣"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    found = resolve(text)
    assert found == value
    assert type(found) is type(value)


def test_nan_and_quoted_scalars() -> None:
    assert math.isnan(resolve(".NaN"))
    assert load("['3', \"true\", '', x]").plain() == ("3", "true", "", "x")
    assert load("a: |-\n  12\nb: >-\n  x\n  y\n").plain() == {"a": "12", "b": "x y"}


def test_every_key_and_value_keeps_its_place() -> None:
    root = load("a: 1\nb:\n  - {c: x, d: [2, 3]}\n  -\n    e: 'é'\n")
    assert root.place == SourceLocation("c.yaml", 1, 1)
    assert root.find("a").place == SourceLocation("c.yaml", 1, 4)
    assert root.find("a").key_place == SourceLocation("c.yaml", 1, 1)
    assert root.find("b", 0, "d", 1).place == SourceLocation("c.yaml", 3, 19)
    assert root.find("b", 0, "d").key_place == SourceLocation("c.yaml", 3, 12)
    assert root.find("b", 1, "e").start == SourceLocation("c.yaml", 5, 5)
    assert root.find("b", 7, "e").start == SourceLocation("c.yaml", 2, 1)


def test_places_start_where_the_text_starts() -> None:
    root = load_text("{a: [1, x]}", SourceLocation("<command line>", 4, 11), Diagnostics())
    assert root.find("a", 1).place == SourceLocation("<command line>", 4, 19)


def test_aliases_repeat_a_value_under_their_own_key() -> None:
    root = load("a: &x {k: 1}\nb: *x\n")
    assert root.plain() == {"a": {"k": 1}, "b": {"k": 1}}
    assert root.find("b").key_place == SourceLocation("c.yaml", 2, 1)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "given twice"),
        ("a: 1\n2: 3\n", 2, 1, "a key must be text"),
        ("? [1, 2]\n: 3\n", 1, 3, "a key must be text"),
        ("true: 3\n", 1, 1, "a key must be text"),
        ("a: !!python/object:os.system x\n", 1, 4, "tag"),
        ("a: !!int '3'\n", 1, 4, "tag"),
        ("a: ! 3\n", 1, 4, "tag"),
        ("a: &b {c: 1}\nd: {<<: *b}\n", 2, 5, "merge keys"),
        ("a: *b\n", 1, 4, "anchor &b"),
        ("a: &b [*b]\n", 1, 8, "anchor &b"),
        ("a:\n\t- 1\n", 2, 1, "tab"),
        ("a: [1, 2\n", 2, 1, "not valid YAML"),
        ("a: b: c\n", 1, 5, "mapping values"),
        ("a: 1\n b: 2\n", 2, 3, "mapping values"),
        ("a: {b: ${c}}\n", 1, 9, "not valid YAML"),
        ('a: "\\UFFFFFFFF"\n', 1, 7, "not valid YAML"),
        ('a: "\\ud800"\n', 1, 4, "surrogate"),
        ("a: 1\n---\nb: 2\n", 2, 1, "second document"),
        ("%YAML 1.a\n---\n", 1, 9, "not valid YAML"),
        ("a: x\x01\n", 1, 5, "forbids"),
        ("[" * 70, 1, 65, "too deeply"),
        ("- " * 70 + "1", 1, 129, "too deeply"),
        (f"a: {'9' * 5000}\n", 1, 4, "too long"),
    ],
)
def test_F9_bad_text_is_one_diagnostic_with_its_place(
    text: str, line: int, column: int, words: str
) -> None:
    (problem, *more) = problems_of(text)
    assert (problem.place, more) == (SourceLocation("c.yaml", line, column), [])
    assert words in problem.problem


def test_an_expression_without_quotes_in_braces_gets_the_right_hint() -> None:
    (problem,) = problems_of("a: {b: ${c}}\n")
    assert "in quotes" in problem.hint


def test_problems_that_reading_survives_are_all_reported() -> None:
    assert len(problems_of("a: 1\na: 2\n3: 4\nb: !x y\n")) == 3


def test_an_alias_bomb_is_refused_early() -> None:
    lines = ["a0: &a0 [" + ",".join("1" * 10) + "]"]
    lines += [f"a{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * 10) + "]" for i in range(1, 30)]
    (problem,) = problems_of("\n".join(lines))
    assert "too many values" in problem.problem
    assert problem.place is not None
    assert problem.place.line < 8


@pytest.mark.full
def test_too_many_values_are_refused() -> None:
    (problem,) = problems_of("[" + "1," * 60_000 + "]")
    assert "too many values" in problem.problem


def test_a_file_that_cannot_be_read_is_one_diagnostic(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (LARGEST_FILE + 1))
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: 1\nb: caf\xc3\xa9 \xff\n")
    utf16 = tmp_path / "utf16.yaml"
    utf16.write_bytes("a: 1".encode("utf-16"))
    expected = {
        tmp_path: "is a folder",
        tmp_path / "none.yaml": "no such file",
        Path("nul\0.yaml"): "",
        large: "too large",
        binary: "not UTF-8",
        utf16: "not UTF-8",
    }
    for path, words in expected.items():
        problem = only_problem(load_file, path, str(path), Diagnostics())
        assert words in problem.problem
        assert problem.place is not None
    with pytest.raises(UserError) as raised:
        load_file(binary, "b", Diagnostics())
    assert raised.value.diagnostics[0].place == SourceLocation("b", 2, 9)


def test_an_unreadable_file_is_one_diagnostic(tmp_path: Path) -> None:
    circle = tmp_path / "circle.yaml"
    circle.symlink_to(circle)
    with pytest.raises(UserError) as raised:
        load_file(circle, "circle.yaml", Diagnostics())
    assert len(raised.value.diagnostics) == 1


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "mark.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    root = load_file(path, "mark.yaml", Diagnostics())
    assert root.plain() == {"a": 1}
    assert root.find("a").start == SourceLocation("mark.yaml", 1, 1)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "---\n", "--- \n...\n"])
def test_a_text_without_value_is_null(text: str) -> None:
    assert load(text).value is None
