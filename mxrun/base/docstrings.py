"""Docstrings as texts for users."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from mxrun.base import flags


def docstring(of: Any) -> str:
    """Return the docstring of a function or class of a module, without indentation.

    If the interpreter has stripped docstrings, that of the source becomes its `__doc__`, which
    pydantic reads as well.
    """
    if of.__doc__ is None and not flags.docstrings():
        of.__doc__ = _of_source(of.__module__).get(of.__name__)
    return inspect.cleandoc(of.__doc__ or "")


@cache
def _of_source(module: str) -> Mapping[str, str | None]:
    """Return the docstrings that a module's source has, by name; none without a source."""
    statements: list[ast.stmt] = []
    with suppress(OSError, TypeError):
        statements = ast.parse(inspect.getsource(sys.modules[module])).body
    named = (each for each in statements if isinstance(each, ast.FunctionDef | ast.ClassDef))
    return {each.name: ast.get_docstring(each) for each in named}
