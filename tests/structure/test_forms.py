"""One form for each idea: no loop and no function is written a second time with other names."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from structure.test_layers import MODULES
from syntax import syntax_tree

# Statements from which a loop, and the body of a function, count as one.
_LOOP, _FUNCTION = 3, 5


def form(node: object, numbers: dict[str, int] | None = None) -> object:
    """Return what a part of a syntax tree has in common with those that differ in names alone.

    numbers: those of the names that came before, in the order of their first use.
    """
    numbers = {} if numbers is None else numbers
    match node:
        case ast.Name(name) | ast.arg(name):
            return type(node).__name__, numbers.setdefault(name, len(numbers))
        case ast.AST():
            return type(node).__name__, *(form(getattr(node, at), numbers) for at in node._fields)
        case list():
            return tuple(form(each, numbers) for each in node)
        case _:
            return repr(node)


def size(statements: list[ast.stmt]) -> int:
    return sum(isinstance(each, ast.stmt) for top in statements for each in ast.walk(top))


def parts(tree: ast.Module) -> Iterator[tuple[int, list[ast.stmt]]]:
    """Yield the loops and the bodies of functions that are large enough, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While) and size([node]) >= _LOOP:
            yield node.lineno, [node]
        elif isinstance(node, ast.FunctionDef):
            body = node.body if ast.get_docstring(node) is None else node.body[1:]
            is_loop = len(body) == 1 and isinstance(body[0], ast.For | ast.While)
            if size(body) >= _FUNCTION and not is_loop:
                yield node.lineno, body


def repeated(trees: Mapping[str, ast.Module]) -> list[list[str]]:
    """Return the places of each form that has several."""
    places = defaultdict(list)
    for module, tree in trees.items():
        for line, statements in parts(tree):
            places[form(statements)].append((module, line))
    return [
        [f"{module}:{line}" for module, line in found]
        for found in places.values()
        if len(found) > 1
    ]


def test_each_form_is_written_once() -> None:
    assert repeated({module: syntax_tree(path) for module, path in MODULES.items()}) == []


def test_a_second_form_is_found() -> None:
    first = "def f(a, b):\n  'Doc.'\n  for x in a:\n    if x > 1:\n      b.append(x)\n"
    second = "def g(p, q):\n  print(p)\n  for y in p:\n    if y > 1:\n      q.append(y)\n"
    other = second.replace("> 1", "> 2")
    assert repeated({"first": ast.parse(first), "other": ast.parse(other)}) == []
    found = repeated({"first": ast.parse(first), "second": ast.parse(second)})
    assert found == [["first:3", "second:3"]]
