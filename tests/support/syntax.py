"""Syntax trees of source files, for tests of the structure of the product."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the syntax tree of a source file, which a process parses once."""
    return ast.parse(path.read_text())


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes of a tree in the order of `ast.walk`, which is passed through once."""
    found = [tree]
    for node in found:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return tuple(found)
