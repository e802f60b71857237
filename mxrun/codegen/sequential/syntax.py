"""Syntax trees of functions that are loaded."""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Iterator, Mapping
from functools import cache

from mxrun.base.errors import InternalError


def tree_of(code: types.CodeType) -> ast.FunctionDef:
    """Return the syntax tree of a function.

    Raises InternalError if its source cannot be read or is not that of `code`, because the file
    has changed since it was imported.
    """
    key = code.co_name, code.co_firstlineno
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename))
    trees, codes = _functions(code.co_filename, text)
    if key not in trees or codes.get(key) != code:
        raise InternalError(
            f"{code.co_filename}:{code.co_firstlineno}: the source of {code.co_name} cannot be "
            "read, or it has changed since it was imported"
        )
    return trees[key]


_Key = tuple[str, int]


@cache
def _functions(
    file: str, text: str
) -> tuple[Mapping[_Key, ast.FunctionDef], Mapping[_Key, types.CodeType]]:
    """Return trees and codes of a file's functions by name and first line, that of a decorator."""
    try:
        module = ast.parse(text)
    except SyntaxError:
        return {}, {}
    trees = {
        (node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])): node
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef)
    }
    # The entire file is compiled, because a function's code depends on the imports around it.
    compiled = compile(module, file, "exec", dont_inherit=True)
    return trees, {(code.co_name, code.co_firstlineno): code for code in _inside(compiled)}


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _inside(each)
