"""Types, fields and values in words, for messages and tables."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import LARGEST_FLOAT32

_TYPES = {str: "text", bool: "true or false", float: "number", int: "integer"}
_BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
_LENGTHS = {"min_length": "at least", "max_length": "at most"}
# Limits that follow from the type in which a value is stored.
_RANGES = {
    ("le", LARGEST_FLOAT32): "float32",
    ("le", 2**31 - 1): "int32",
    ("lt", 2**31): "int32",
    ("lt", 2**63): "int64",
}
# Characters of a text shown in a message.
_MAX_TEXT = 60


@dataclass(frozen=True)
class Written:
    """Annotation of a type with the form in which users write its values."""

    text: str


@dataclass(frozen=True)
class PerAxis:
    """Annotation of a list with one number for each spatial axis of a layer's first tensor.

    In a config one number stands for all axes.
    """

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Return the schema of the list or of one of its numbers."""
        numbers = handler(core_schema)
        return {"anyOf": [numbers, numbers["items"]]}


def describe_field(field: FieldInfo) -> str:
    """Return the type and range of a field in words: `integer >= 1`."""
    return _with_limits(describe_type(field.annotation), field.metadata)


def describe_type(annotation: Any) -> str:
    """Return a type in words: `integer`, `[integer, ...]`, `one of relu, tanh`.

    A class that users write in a form of its own gives that form as `written`.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return describe_field(FieldInfo.from_annotation(annotation))
    if origin is typing.Literal:
        return "one of " + ", ".join(str(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe_type(argument) for argument in arguments)
    if origin in (tuple, list):
        items = ("..." if each is Ellipsis else describe_type(each) for each in arguments)
        return f"[{', '.join(items)}]"
    if annotation is type(None) or annotation is None:
        return "null"
    if hasattr(annotation, "written"):
        return str(annotation.written)
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, (Mapping, BaseModel)):
        return "mapping"
    name = getattr(annotation, "__name__", str(annotation))
    return _TYPES.get(annotation, str(name))


def _with_limits(text: str, rules: Sequence[Any]) -> str:
    """Append the limits of numbers of items, then those of values."""
    written = next((rule.text for rule in rules if isinstance(rule, Written)), None)
    if written is not None:
        return str(written)
    lengths = [(words, _limit(rule, key)) for rule in rules for key, words in _LENGTHS.items()]
    given = [f"{words} {limit}" for words, limit in lengths if limit is not None]
    patterns = [pattern for rule in rules if (pattern := _limit(rule, "pattern"))]
    if text == "text":
        given = [f"{each} character{'' if each.endswith(' 1') else 's'}" for each in given]
        text += f" of {' and '.join(given)}" if given else ""
        text += "".join(f" that matches {pattern}" for pattern in patterns)
    elif given:
        text += f" with {' and '.join(given)} {'item' if given[-1].endswith(' 1') else 'items'}"
    bounds, ranges = [], []
    for rule in rules:
        for key, sign in _BOUNDS.items():
            limit = _limit(rule, key)
            if (key, limit) in _RANGES:
                ranges.append(f"within {_RANGES[key, limit]}")
            elif limit is not None and limit != -LARGEST_FLOAT32:
                bounds.append(f"{sign} {limit}")
    text = f"{text} {' and '.join([*sorted(bounds, reverse=True), *ranges])}".rstrip()
    if any(isinstance(rule, PerAxis) for rule in rules):
        text += ", or one number for all axes"
    return text


def _limit(rule: object, key: str) -> Any:
    return getattr(rule, key, None)


def describe_value(value: object) -> str:
    """Return a value in words: its content and its type."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{brief(value)} (true or false)"
    if isinstance(value, int):
        return f"{value} (an integer)"
    if isinstance(value, float):
        return f"{value} (a number)"
    if isinstance(value, str):
        return f"{brief(value)} (text)"
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list"


def brief(value: object) -> str:
    """Return a value in YAML's flow form, shortened to 60 characters; texts in quotes."""
    if isinstance(value, str):
        return repr(_shortened(value))
    return _shortened(flow(value, quoted=True))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def flow(value: object, *, quoted: bool = False) -> str:
    """Return a value in YAML's flow form: `{sgd: {lr: 0.1}}`, `[3, 3]`, `null`."""
    if isinstance(value, Mapping):
        items = (f"{key}: {flow(part, quoted=quoted)}" for key, part in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(flow(part, quoted=quoted) for part in value)}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if quoted and isinstance(value, str) else str(value)
