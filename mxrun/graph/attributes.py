"""Attributes of nodes: strings such as `__lr_mult__`, given by scope or by variable.

Graphs store attributes under MXNet's names with two underscores on each side. `ctx_group`,
`lr_mult` and a few others may be written without the underscores, and MXNet shows them both ways.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from contextvars import ContextVar, Token

from mxrun.base.dtype import NAMES_BY_CODE, TYPE_CODES
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.base.tensor import PartialShape
from mxrun.graph.node import Node

_SHAPE, _DTYPE = "__shape__", "__dtype__"
# Attributes that may be written without underscores (nnvm's kHiddenKeys).
_SHORT = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")


class AttrScope:
    """Context manager whose attributes every variable and operator composed in its block gets.

    Scopes nest; an inner scope's value replaces an outer one's. Raises UserError for a value that
    is no string.
    """

    def __init__(self, **attributes: str) -> None:
        self._own = normalised(attributes)
        self._tokens: list[Token[Mapping[str, str]]] = []

    def __enter__(self) -> AttrScope:
        self._tokens.append(_SCOPE.set({**_SCOPE.get(), **self._own}))
        return self

    def __exit__(self, *exception: object) -> None:
        _SCOPE.reset(self._tokens.pop())


_SCOPE: ContextVar[Mapping[str, str]] = ContextVar("attributes", default={})  # noqa: B039


def in_scope(given: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return the attributes of a new node: those of the scopes in use, and the given ones."""
    return {**_SCOPE.get(), **normalised(given or {})}


def normalised(attributes: Mapping[str, object]) -> dict[str, str]:
    """Return attributes under the names that graphs store; UserError unless values are strings."""
    wrong = {key: value for key, value in attributes.items() if not isinstance(value, str)}
    if wrong:
        raise UserError(
            Diagnostic(f"attribute {key!r} is no string", expected="a string", got=repr(value))
            for key, value in wrong.items()
        )
    return {f"__{key}__" if key in _SHORT else key: str(value) for key, value in attributes.items()}


def is_hidden(key: str) -> bool:
    """Return whether a key is an attribute's and not an operator's parameter."""
    return key.startswith("__") and key.endswith("__") and len(key) > len("____")


def variable_attributes(
    shape: Iterable[int] | None,
    dtype: str | None,
    further: Mapping[str, object],
) -> dict[str, str]:
    """Return MXNet's attributes of a variable. Raises UserError for an unknown dtype."""
    found: dict[str, str] = {}
    if shape is not None:
        found[_SHAPE] = str(tuple(shape))
    if dtype is not None:
        if dtype not in TYPE_CODES:
            hint = nearest(dtype, TYPE_CODES) or f"known: {', '.join(TYPE_CODES)}"
            raise UserError(Diagnostic(f"unknown data type {dtype!r}", hint=hint))
        found[_DTYPE] = str(TYPE_CODES[dtype])
    given = {key: value for key, value in further.items() if value is not None}
    return {**found, **{key: str(value) for key, value in given.items()}}


def declared_shape(node: Node) -> PartialShape:
    """Return the shape that a variable's attributes declare; 0 and -1 are unknown sizes."""
    text = node.attributes.get(_SHAPE)
    if text is None:
        return None
    try:
        return tuple(int(size) if int(size) > 0 else None for size in ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError):
        place, problem = node.place, f"variable {node.name!r} has a bad attribute {_SHAPE}"
        raise UserError(Diagnostic(problem, place, "such as (64, 3)", repr(text))) from None


def declared_type(node: Node) -> str | None:
    """Return the dtype that a variable's attributes declare, or None."""
    code = node.attributes.get(_DTYPE, "")
    return NAMES_BY_CODE.get(int(code)) if code.isdecimal() else None


def shown(node: Node) -> dict[str, str]:
    """Return a node's parameters and attributes as MXNet lists them."""
    parameters = {} if node.prop is None else node.prop.parameters.to_strings()
    short = {
        key: node.attributes[f"__{key}__"] for key in _SHORT if f"__{key}__" in node.attributes
    }
    return {**parameters, **node.attributes, **short}
