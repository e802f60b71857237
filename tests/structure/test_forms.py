"""One form for each idea: no loop, function or longer run of statements is written a second time
with other names.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from structure.test_layers import MODULES
from syntax import syntax_tree

# Statements from which a loop, the body of a function, and a run of statements count as one.
_LOOP, _FUNCTION, _RUN = 3, 5, 7


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


def outlines(tree: ast.Module) -> dict[ast.stmt, tuple[int, int]]:
    """Return of each statement a hash of its form without names, and how many it consists of."""
    found: dict[ast.stmt, tuple[int, int]] = {}

    def outline(node: object) -> tuple[int, int]:
        if not isinstance(node, ast.AST):
            return hash(repr(node)), 0
        if isinstance(node, ast.Name | ast.arg):
            return hash(type(node)), 0
        inside, size = [hash(type(node))], int(isinstance(node, ast.stmt))
        for name in node._fields:
            value = getattr(node, name)
            for each in value if isinstance(value, list) else (value,):
                part, count = outline(each)
                inside.append(part)
                size += count
            inside.append(0)
        made = hash(tuple(inside)), size
        if isinstance(node, ast.stmt):
            found[node] = made
        return made

    outline(tree)
    return found


def blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements of a function or a statement within one."""
    is_outer = not (statement.col_offset or isinstance(statement, ast.FunctionDef))
    if not (is_outer or isinstance(statement, ast.ClassDef)):
        inner = [*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())]
        for node in (statement, *inner):
            for name in ("body", "orelse", "finalbody"):
                yield getattr(node, name, [])


def parts(sizes: Mapping[ast.stmt, int]) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield the loops, the bodies of functions and the runs of statements in blocks that are large
    enough, with their kinds.
    """
    for node, size in sizes.items():
        if isinstance(node, ast.For | ast.While) and size >= _LOOP:
            yield "loop", [node]
        elif isinstance(node, ast.FunctionDef):
            body = node.body if ast.get_docstring(node, clean=False) is None else node.body[1:]
            is_loop = len(body) == 1 and isinstance(body[0], ast.For | ast.While)
            if sum(map(sizes.__getitem__, body)) >= _FUNCTION and not is_loop:
                yield "function", body
        for block in blocks(node):
            for start in range(len(block)):
                size = 0
                for end in range(start, len(block)):
                    size += sizes[block[end]]
                    if size >= _RUN:
                        break
                if size >= _RUN and end > start:
                    yield "run", block[start : end + 1]


def repeated(trees: Mapping[str, ast.Module]) -> list[list[str]]:
    """Return the places of each form that has several."""
    alike = defaultdict(list)
    for module, tree in trees.items():
        found = outlines(tree)
        sizes = {node: size for node, (_, size) in found.items()}
        for kind, statements in parts(sizes):
            outline = tuple(found[each][0] for each in statements)
            alike[kind, outline].append((module, statements))
    places = defaultdict(list)
    for (kind, _), several in alike.items():
        if len(several) > 1:
            for module, statements in several:
                places[kind, form(statements)].append(f"{module}:{statements[0].lineno}")
    return [found for found in places.values() if len(found) > 1]


def test_each_form_is_written_once() -> None:
    assert repeated({module: syntax_tree(path) for module, path in MODULES.items()}) == []


def test_a_second_form_is_found() -> None:
    first = "def f(a, b):\n  'Doc.'\n  for x in a:\n    if x > 1:\n      b.append(x)\n"
    second = "def g(p, q):\n  print(p)\n  for y in p:\n    if y > 1:\n      q.append(y)\n"
    other = second.replace("> 1", "> 2")
    assert repeated({"first": ast.parse(first), "other": ast.parse(other)}) == []
    found = repeated({"first": ast.parse(first), "second": ast.parse(second)})
    assert found == [["first:3", "second:3"]]


def test_a_second_run_of_statements_is_found() -> None:
    lines = ["b = a", "if b:", "  c = b", "  d = c", "else:", "  d = 1", "e = d + b", "f = e * 2"]
    run = "".join(f"  {line}\n" for line in lines)
    first = f"def f(a):\n  begin(a)\n{run}  return f\n"
    second = f"def g(p, x):\n  with x:\n    pass\n{run}  end(f)\n".replace(" a\n", " p\n")
    other = second.replace("* 2", "* 3")
    assert repeated({"first": ast.parse(first), "other": ast.parse(other)}) == []
    found = repeated({"first": ast.parse(first), "second": ast.parse(second)})
    assert found == [["first:3", "second:4"]]
