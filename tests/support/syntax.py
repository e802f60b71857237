"""Syntax trees of source files, for tests of the structure of the product."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the syntax tree of a source file, which a process parses once."""
    return ast.parse(path.read_text())
