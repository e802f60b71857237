"""Evaluator of `${...}`, compared with Python's arithmetic, and its refusals."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxrun.config.arithmetic import ExpressionError, evaluate

NAMES = {"filters": 64, "rate": 0.5, "i": 2, "flag": True, "text": "x", "kernel": (3, 3)}


@pytest.mark.parametrize(
    "text",
    [
        "1 + 2 * 3",
        "(1 + 2) * 3",
        "2 ** 3 ** 2",
        "-2 ** 2",
        "2 ** -1",
        "7 // 2",
        "-7 // 2",
        "-7 % 3",
        "7 / 2",
        "7 - 2 - 1",
        "2 * -3",
        "--3",
        "+3",
        "1.5e2 + .5",
        "filters * 2 ** i",
        "min(filters, 3, i)",
        "max(1, rate)",
        "round(2.5)",
        "round(2.345, 2)",
        "int(7 / 2)",
        "1 if i == 2 else 0",
        "1 if i < 2 else 2 if flag else 3",
        "i >= 2",
        "filters != 64",
        "  1  ",
    ],
)
def test_it_means_what_it_means_in_python(text: str) -> None:
    functions = {"min": min, "max": max, "round": round, "int": int}
    expected = eval(text.strip(), {"__builtins__": functions}, dict(NAMES))
    found = evaluate(text, NAMES)
    assert found == expected
    assert type(found) is type(expected)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return str(draw(st.integers(0, 20)))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    sign = draw(st.sampled_from(["+", "-", "*", "//", "%", "/"]))
    text = f"{left} {sign} {right}"
    return f"({text})" if draw(st.booleans()) else text


@given(expressions())
def test_random_expressions_agree_with_python(text: str) -> None:
    try:
        expected = eval(text)
    except ZeroDivisionError:
        with pytest.raises(ExpressionError):
            evaluate(text, {})
        return
    assert evaluate(text, {}) == expected


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", 0),
        ("1 +", 3),
        ("1 2", 2),
        ("(1", 2),
        ("1)", 1),
        ("1 / 0", 2),
        ("0 ** -1", 2),
        ("(-8) ** 0.5", 5),
        ("9 ** 65", 2),
        ("2 ** 63", 2),
        ("9223372036854775807 + 1", 20),
        ("9 ** 9 ** 9", 2),
        ("1e400", 0),
        ("10.0 ** 64 * 1e300 * 1e300", 11),
        ("round(5, -1000000000)", 0),
        ("round(1, 2, 3)", 0),
        ("min(1)", 0),
        ("min", 3),
        ("width", 0),
        ("text + 1", 0),
        ("kernel * 2", 0),
        ("__import__('os')", 11),
        ("i.real", 1),
        ("i[0]", 1),
        ("1 if 2", 6),
        ("if", 0),
        ("lambda: 1", 6),
        ("1 = 1", 2),
        ("(" * 100 + "1" + ")" * 100, None),
        ("-" * 150 + "1", None),
        ("1" * 201, 0),
        ("1 < 2 < 3", 6),
    ],
)
def test_what_it_refuses_and_where(text: str, offset: int | None) -> None:
    with pytest.raises(ExpressionError) as raised:
        evaluate(text, NAMES)
    if offset is not None:
        assert raised.value.offset == offset


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ExpressionError) as raised:
        evaluate("filter * 2", NAMES)
    assert "'filters'" in raised.value.hint


@given(st.text(alphabet="0123456789.e+-*/%()<>=! ifelsmnxround,", max_size=60))
def test_any_text_gives_a_finite_number_or_an_expression_error(text: str) -> None:
    offset, value = 0, 0.0
    try:
        value = evaluate(text, NAMES)
    except ExpressionError as error:
        offset = error.offset
    assert 0 <= offset <= len(text)
    assert math.isfinite(value)
