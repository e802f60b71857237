"""Definite assignment: wherever a variable is read, every path has assigned it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from mxrun.codegen.sequential.arithmetic import Untyped

_Names: TypeAlias = "frozenset[str] | None"
"""Variables that have a value at a place of the code; None if no path leads there."""


def check_assigned(
    function: ast.FunctionDef, local_names: Iterable[str], given: Iterable[str]
) -> None:
    """Check that no path reads a variable without a value, or returns none where others do.

    local_names: the function's parameters and variables; given: those with a value at its start.
    Raises Untyped with the line.
    """
    paths = Paths(frozenset(local_names), "{} has no value on some path")
    end = paths.block(function.body, frozenset(given))
    values = {node.value is not None for node in paths.returns}
    if True in values and (end is not None or False in values):
        raise Untyped(f"{function.name} returns a value on some paths only").at(function.lineno)


class Paths:
    """Walk along all paths of a function, each loop's body once: it only adds assignments.

    local_names: variables that must have a value where they are read; else `missing` is raised.
    """

    def __init__(self, local_names: frozenset[str], missing: str) -> None:
        self._local_names, self._missing = local_names, missing
        self._breaks: list[list[_Names]] = []
        self.returns: list[ast.Return] = []

    def block(self, body: Sequence[ast.stmt], names: _Names) -> _Names:
        """Return the variables that have a value after the statements."""
        for statement in body:
            if names is None:
                return None
            names = self._after(statement, names)
        return names

    def _after(self, node: ast.stmt, names: frozenset[str]) -> _Names:
        if isinstance(node, ast.If):
            self._read(node.test, names)
            return _joined(self.block(node.body, names), self.block(node.orelse, names))
        if isinstance(node, ast.While):
            self._read(node.test, names)
            endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
            return _joined(*self._loop(node.body, names), None if endless else names)
        if isinstance(node, ast.For):
            self._read(node.iter, names)
            return _joined(*self._loop(node.body, names | set(stored(node.target))), names)
        self._read(node, names)
        if isinstance(node, ast.Break):
            self._breaks[-1].append(names)
        if isinstance(node, ast.Return):
            self.returns.append(node)
        ends = isinstance(node, (ast.Break, ast.Continue, ast.Return))
        assigns = not isinstance(node, ast.AnnAssign) or node.value is not None
        return None if ends else names | set(stored(node)) if assigns else names

    def _loop(self, body: Sequence[ast.stmt], names: frozenset[str]) -> list[_Names]:
        """Return the variables that have a value at each `break`."""
        self._breaks.append([])
        self.block(body, names)
        return self._breaks.pop()

    def _read(self, node: ast.AST, names: frozenset[str]) -> None:
        """Check the variables that a statement or an expression reads."""
        read = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        found = {each.id for each in read if isinstance(each.ctx, ast.Load)}
        found -= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
        if isinstance(node, ast.AugAssign):
            found |= set(stored(node.target))
        missing = sorted((found & self._local_names) - names)
        if missing:
            raise Untyped(self._missing.format(missing[0])).at(getattr(node, "lineno", 0))


def stored(node: ast.AST) -> Iterator[str]:
    """Yield the variables that a part of a function assigns."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id


def _joined(*ends: _Names) -> _Names:
    """Return the variables that have a value on all paths that meet."""
    reached = [each for each in ends if each is not None]
    return frozenset.intersection(*reached) if reached else None
