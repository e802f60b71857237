"""Typed parameters: declared once with type, default, range and doc, validated by pydantic.

Error messages are mxrun's own. An operator's parameters also have MXNet's string form (`kernel="(3,
3)"`), which its JSON uses; `to_strings` and `from_strings` are inverse to each other.
"""

from __future__ import annotations

import ast
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from mxrun.base.errors import Diagnostic, SourceLocation
from mxrun.base.near_names import nearest

LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127
LARGEST_INT32 = 2**31 - 1
NULL = "null"
"""MXNet's name of the choice "none"."""

Float32 = Annotated[float, Field(ge=-LARGEST_FLOAT32, le=LARGEST_FLOAT32)]
"""Number representable in float32, for every value stored in a tensor or multiplied by one."""
Int32 = Annotated[int, Field(le=LARGEST_INT32)]
"""Integer that kernel libraries accept, for sizes and values that determine sizes."""
Positive = Annotated[Float32, Field(gt=0)]
NotNegative = Annotated[Float32, Field(ge=0)]


class Parameters(BaseModel):
    """Base class of parameters of operators, data sets and initialisers: frozen, strict, finite."""

    # There are many classes and a run uses few: a pydantic model is built on first use.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    def to_strings(self) -> dict[str, str]:
        """Return the explicitly given parameters in MXNet's string form, in declaration order."""
        given = self.model_fields_set
        return {name: str(getattr(self, name)) for name in type(self).model_fields if name in given}


M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=Parameters)


Locate = Callable[[tuple[str | int, ...]], SourceLocation | None]
"""Returns the place of an invalid value from its path within the parameters."""


def _nowhere(path: tuple[str | int, ...]) -> None:
    return None


def check(
    model: type[M], values: Mapping[str, object], locate: Locate = _nowhere
) -> tuple[M | None, tuple[Diagnostic, ...]]:
    """Validate `values` against `model`; return the instance, or None and every problem found.

    None means the choice "null" (MXNet's spelling, which YAML reads as None) if a field has such a
    choice and does not accept None itself.
    """
    named = {
        name: NULL if value is None and _has_null_choice(model, name) else value
        for name, value in values.items()
    }
    try:
        return model.model_validate(_with_tuples(named)), ()
    except ValidationError as error:
        # pydantic also reports a list with invalid items as too short; the items' errors suffice.
        parents = {detail["loc"][:-1] for detail in error.errors()}
        return None, tuple(
            _explain(model, values, dict(detail), locate)
            for detail in error.errors()
            if detail["type"] != "too_short" or detail["loc"] not in parents
        )


def from_strings(
    model: type[P], strings: Mapping[str, str]
) -> tuple[P | None, tuple[Diagnostic, ...]]:
    """Parse MXNet's string form by the declared types, then validate."""
    values: dict[str, object] = {}
    for name, text in strings.items():
        field = model.model_fields.get(name)
        values[name] = text if field is None else _parse(text, field.annotation)
    return check(model, values)


def describe_field(field: FieldInfo) -> str:
    """Return the type and range of a field in words."""
    text = describe_type(field.annotation)
    words = {"Gt": ">", "Ge": ">=", "Lt": "<", "Le": "<="}
    bounds = []
    for rule in field.metadata:
        kind = type(rule).__name__
        if kind in words:
            bound = getattr(rule, kind.lower())
            if abs(bound) != LARGEST_FLOAT32:
                bounds.append(f"{words[kind]} {bound}")
    text += _describe_length(field)
    bounds.sort(reverse=True)
    if any(getattr(rule, "le", None) == LARGEST_FLOAT32 for rule in field.metadata):
        bounds.append("within float32")
    return f"{text} {' and '.join(bounds)}".rstrip()


def _describe_length(field: FieldInfo) -> str:
    """Return the limits on a field's number of items in words; empty if there are none."""
    words = {"min_length": "at least", "max_length": "at most"}
    limits = [
        f"{text} {getattr(rule, key)}"
        for rule in field.metadata
        for key, text in words.items()
        if hasattr(rule, key)
    ]
    return f" of {' and '.join(limits)}" if limits else ""


def describe_type(annotation: Any) -> str:
    """Return a type in words: `int`, `[int, ...]`, `one of relu, tanh`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return describe_field(FieldInfo.from_annotation(annotation))
    if origin is typing.Literal:
        return "one of " + ", ".join(str(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe_type(argument) for argument in arguments)
    if origin in (tuple, list):
        return (
            "[" + ", ".join("..." if a is Ellipsis else describe_type(a) for a in arguments) + "]"
        )
    if annotation is type(None) or annotation is None:
        return "null"
    names = {str: "text", bool: "true or false", float: "number", int: "integer"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _explain(
    model: type[BaseModel], values: Mapping[str, object], detail: dict[str, Any], locate: Locate
) -> Diagnostic:
    path = tuple(part for part in detail["loc"] if not _is_union_branch(part))
    place = locate(path)
    name = str(path[0]) if path else ""
    field = model.model_fields.get(name)
    known = ", ".join(model.model_fields)
    if detail["type"] == "extra_forbidden":
        hint = nearest(name, model.model_fields)
        return Diagnostic(f"unknown parameter {name!r}", place, f"one of {known}", name, hint)
    expected = describe_field(field) if field is not None else detail["msg"]
    if detail["type"] == "missing":
        doc = field.description if field is not None and field.description else ""
        return Diagnostic(f"missing parameter {name!r}", place, expected, "nothing", doc)
    if detail["type"] == "value_error":
        problem = str(detail["ctx"]["error"])
        if field is None:
            return Diagnostic(problem, place)
        return Diagnostic(problem, place, expected, repr(detail["input"]))
    got = NULL if detail["input"] is None else repr(_with_lists(detail["input"]))
    hint = ""
    if detail["type"] == "literal_error" and field is not None:
        hint = nearest(str(detail["input"]), _literals(field.annotation))
    elif detail["type"] == "tuple_type" and field is not None:
        hint = _as_list_hint(detail["input"], _usual_length(model, values, field))
    return Diagnostic(f"parameter {name!r} cannot be {got}", place, expected, got, hint)


def _as_list_hint(value: object, count: int) -> str:
    """Return how to write one number for a field that takes a list; empty for other values."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    axes = ", one number for each axis" if count > 1 else ""
    return f"write [{', '.join([str(value)] * count)}]{axes}"


def _usual_length(model: type[BaseModel], values: Mapping[str, object], field: FieldInfo) -> int:
    """Return the probable length of a list: that of another given list or an example; else 1.

    The lists of one operator, such as kernel, stride and pad, usually have an item for each axis.
    """
    others = (values[name] for name in model.model_fields if name in values)
    examples = (next(iter(each.examples or ()), None) for each in model.model_fields.values())
    own = next(iter(field.examples or ()), None)
    lists = (each for each in (*others, own, *examples) if isinstance(each, (list, tuple)))
    return next((len(each) for each in lists if each), 1)


def _has_null_choice(model: type[BaseModel], name: str) -> bool:
    """Return whether the field has a choice called "null" and does not accept None."""
    field = model.model_fields.get(name)
    if field is None or _accepts(field.annotation, type(None)):
        return False
    return NULL in _literals(field.annotation)


def _is_union_branch(part: str | int) -> bool:
    return isinstance(part, str) and (
        "[" in part or part in ("int", "float", "str", "bool", "none")
    )


def _literals(annotation: Any) -> list[str]:
    if typing.get_origin(annotation) is typing.Literal:
        return [str(value) for value in typing.get_args(annotation)]
    return [text for part in typing.get_args(annotation) for text in _literals(part)]


def _with_tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_tuples(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_with_tuples(item) for item in value)
    return value


def _with_lists(value: Any) -> Any:
    return [_with_lists(item) for item in value] if isinstance(value, tuple) else value


def _parse(text: str, annotation: Any) -> object:
    """Parse one MXNet string; text that does not parse stays a string, for `check` to report."""
    if typing.get_origin(annotation) is typing.Literal or annotation is str:
        return text
    if _accepts(annotation, bool) and not _accepts(annotation, int):
        truths = {"1": True, "true": True, "0": False, "false": False}
        if text.lower() in truths:
            return truths[text.lower()]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    if isinstance(value, int) and not isinstance(value, bool) and _accepts(annotation, tuple):
        return (value,)
    return value


def _accepts(annotation: Any, kind: type) -> bool:
    if annotation is kind or typing.get_origin(annotation) is kind:
        return True
    return any(_accepts(part, kind) for part in typing.get_args(annotation) if part is not Ellipsis)
