"""Variables of native functions have a value wherever they are read, on every path."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mxrun.codegen.sequential.arithmetic import Untyped
from mxrun.codegen.sequential.assignment import check_assigned


def check(body: str) -> None:
    text = f"def function(count, output):\n{textwrap.indent(body, '    ')}\n"
    names: dict[str, object] = {}
    exec(text, names)
    (tree,) = ast.parse(text).body
    assert isinstance(tree, ast.FunctionDef)
    local_names = names["function"].__code__.co_varnames  # type: ignore[attr-defined]
    check_assigned(tree, local_names, ("count", "output"))


ASSIGNED = {
    "both branches": "if count:\n a = 1\nelse:\n a = 2\nreturn a",
    "the other branch returns": "if count:\n a = 1\nelse:\n return 0\nreturn a",
    "both return": "if count:\n return 1\nelse:\n return 2\nreturn a",
    "before a loop": "a = 1\nwhile a < count:\n a += 1\nreturn a",
    "each break": "while True:\n a = count\n if a:\n  break\n b = a\nreturn a",
    "an endless loop": "while True:\n a = count\nreturn a",
    "the loop's own variable": "for i in range(count):\n output[i] = i",
    "before continue": "for i in range(count):\n if i:\n  continue\n a = i\n output[a] = a",
    "parts of a tuple": "(a, b), c = (1, 2), 3\nreturn a + b + c",
    "an annotation with a value": "a: int = 1\nreturn a",
    "a global of the same file": "return other + count",
}
MISSING = {
    "one branch": ("if count:\n a = 1\nreturn a", "a", 4),
    "a loop that may be empty": ("for i in range(count):\n a = i\nreturn a", "a", 4),
    "the variable of such a loop": ("for i in range(count):\n pass\nreturn i", "i", 4),
    "a condition that may be false": ("while count:\n a = 1\nreturn a", "a", 4),
    "a later iteration's": ("for i in range(count):\n if i:\n  output[0] = a\n a = i", "a", 4),
    "a break before it": ("while True:\n if count:\n  break\n a = 1\nreturn a", "a", 6),
    "after continue": ("for i in range(count):\n if i:\n  a = 1\n  continue\n b = a", "a", 6),
    "its own value": ("a = a + 1", "a", 2),
    "an augmented value": ("a += 1", "a", 2),
    "an index": ("output[a] = 1\na = 2", "a", 2),
    "a condition": ("if a:\n pass\na = 1", "a", 2),
    "a bound": ("for i in range(a):\n pass\na = 1", "a", 2),
    "an annotation alone": ("a: int\nreturn a", "a", 3),
}


@pytest.mark.parametrize("body", ASSIGNED.values(), ids=ASSIGNED)
def test_a_variable_with_a_value_on_every_path(body: str) -> None:
    check(body)


@pytest.mark.parametrize(("body", "name", "line"), MISSING.values(), ids=MISSING)
def test_a_variable_without_a_value_on_some_path(body: str, name: str, line: int) -> None:
    with pytest.raises(Untyped, match=f"^{name} has no value on some path") as caught:
        check(body)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "body",
    [
        "if count:\n return 3",
        "if count:\n return\nreturn 3",
        "if count:\n return 3\nreturn",
        "while count:\n return 3",
    ],
)
def test_a_value_that_some_path_does_not_return(body: str) -> None:
    with pytest.raises(Untyped, match="returns a value on some paths only"):
        check(body)


@pytest.mark.parametrize("body", ["while True:\n return 3", "return", "if count:\n return"])
def test_every_path_returns_alike(body: str) -> None:
    check(body)
