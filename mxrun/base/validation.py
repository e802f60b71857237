"""Diagnostics of pydantic's errors: one wording for sections of a config and for parameters."""

from __future__ import annotations

import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from mxrun.base.dataclass import dataclass
from mxrun.base.description import brief, describe_field, describe_type, describe_value, flow
from mxrun.base.errors import Diagnostic, SourceLocation
from mxrun.base.foreign_names import choice_hint, keys_for
from mxrun.base.near_names import nearest

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices that lead to a value."""

# Step that pydantic adds after a key of a mapping that is wrong itself.
_KEY = "[key]"
_MAX_HINTED = 2**31
# Types of pydantic's errors where a mapping is expected: its keys are best seen in an example.
_NO_MAPPING = ("model_type", "dict_type")
_UNQUOTED = {
    "int_type": r"[-+]?\d{1,18}",
    "float_type": r"[-+]?(\d{1,18}\.?\d{0,18}|\.\d{1,18})([eE][-+]?\d{1,3})?",
    "bool_type": r"true|false|True|False|TRUE|FALSE",
}
_TRUTHS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


class Source(ABC):
    """Names and places, for messages, of the values that `model` validates.

    `noun` is the name of a field: key or parameter.
    """

    noun: ClassVar[str]

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model

    @abstractmethod
    def name(self, path: Path) -> str:
        """Return the name of the value at `path`."""

    @abstractmethod
    def place(self, path: Path) -> SourceLocation | None:
        """Return the place of the value at `path`, or of its nearest existing parent."""

    def key_place(self, path: Path) -> SourceLocation | None:
        """Return the place of the key at `path`, or of its nearest existing parent."""
        return self.place(path)

    def value(self, path: Path, given: object) -> object:
        """Return the value at `path` as the user wrote it; `given` is the one validated."""
        del path
        return given

    def known_keys(self, path: Path) -> Iterable[str]:
        """Return the valid keys of the mapping at `path`."""
        model = annotation_at(self.model, path)
        return tuple(model.model_fields) if _is_model(model) else ()

    def elsewhere(self, key: str) -> str:
        """Return where a config has the unknown `key`, or what does the same; empty if nowhere."""
        del key
        return ""

    def problem(self, path: Path, value: object) -> str:
        """Return the sentence about a wrong value."""
        return f"{self.name(path)} cannot be {brief(value)}"

    def hint(self, kind: str, path: Path, value: object) -> str:
        """Return advice that only this source can give on an error; empty without any."""
        del kind, path, value
        return ""


def custom_error(
    kind: str, expected: str, hint: str = "", item: int | None = None
) -> PydanticCustomError:
    """Return an error that a validator raises for a value of a wrong form.

    item: the item of a list that is wrong; None for the value itself.
    """
    # As the template itself, the text's braces would refer to the context.
    context = {"expected": expected, "hint": hint, "item": item}
    return PydanticCustomError(kind, "{expected}", context)


def explain(
    error: ValidationError, source: Source, without: Iterable[Path] = ()
) -> tuple[Diagnostic, ...]:
    """Return a diagnostic for each problem of a ValidationError except those at `without`."""
    all_details = error.errors(include_url=False)
    # pydantic also reports a list with invalid items as too short; the items' errors suffice.
    ignored = {
        (each["loc"][:length], "too_short")
        for each in all_details
        for length in range(len(each["loc"]))
    }
    paths = set(without)
    problems = [
        _Problem.of(each, source)
        for each in all_details
        if each["loc"] not in paths and (each["loc"], each["type"]) not in ignored
    ]
    # Each member of a union has errors of its own; those deepest in the value are of the member
    # that was probably meant.
    deepest: dict[Path, int] = {}
    for problem in problems:
        union = problem.union
        if union is not None:
            deepest[union] = max(deepest.get(union, 0), len(problem.path))
    reported: dict[Path, Diagnostic] = {}
    for problem in problems:
        if problem.union is None or len(problem.path) == deepest[problem.union]:
            reported.setdefault(problem.path, problem.diagnostic(source))
    return tuple(reported.values())


def annotation_at(model: type[BaseModel], path: Path) -> Any:
    """Return the type of the value at `path` within a model, without None; None if unknown."""
    found: Any = model
    for step in path:
        found = _without_none(_inside(found, step))
    return found


def dotted(path: Path) -> str:
    """Return a path in command-line form: `network.layers[0].Convolution.num_filter`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            word = f'"{step}"' if not step or any(mark in step for mark in '.[]="') else step
            text += f".{word}" if text else word
    return text


@dataclass(frozen=True)
class _Problem:
    """One of pydantic's errors.

    path: of the value in the input. field: type and range of the value, or of the union that it is
    a part of. union: path of that union. is_key: the error is of the mapping's key, not its value.
    """

    details: ErrorDetails
    path: Path
    field: FieldInfo | None
    union: Path | None
    is_key: bool

    @classmethod
    def of(cls, details: ErrorDetails, source: Source) -> _Problem:
        """Find the value of an error in the model.

        In the location pydantic adds a step for each member of a union that it tried, and one after
        a key that is wrong itself.
        """
        path: list[str | int] = []
        found: Any = source.model
        field: FieldInfo | None = None
        union: Path | None = None
        location = details["loc"]
        is_key = _is_of_key(details)
        for step in location[:-1] if is_key else location:
            if _is_union(found):
                found, union = None, tuple(path)
                continue
            path.append(step)
            if union is None:
                inner = _inside(found, step)
                field = None if inner is None else _field_of(found, step, inner)
                if is_key and len(path) == len(location) - 1:
                    field = _key_field(found)
                found = _without_none(inner)
        item = details.get("ctx", {}).get("item")
        if item is not None:
            path.append(item)
        return cls(details, tuple(path), field, union, is_key)

    def diagnostic(self, source: Source) -> Diagnostic:
        """Return the diagnostic."""
        details, path, field = self.details, self.path, self.field
        kind = details["type"]
        if kind == "extra_forbidden":
            return _unknown_key(path, source)
        if kind == "missing":
            return _missing(path, field, details["input"], source)
        if self.is_key:
            name = f"{source.name(path[:-1])} cannot have the key {brief(path[-1])}"
            hint = _hint(details, path[-1], field)
            return Diagnostic(name, source.key_place(path), _expected(details, field), hint=hint)
        value = source.value(path, details["input"])
        got, place = describe_value(value), source.place(path)
        if kind in ("value_error", "assertion_error"):
            problem = str(details["ctx"]["error"]) or source.problem(path, value)
            return Diagnostic(problem, place, *((describe_field(field), got) if field else ()))
        hint = details.get("ctx", {}).get("hint") or source.hint(kind, path, value)
        expected = _expected(details, field)
        problem = source.problem(path, value)
        return Diagnostic(problem, place, expected, got, hint=hint or _hint(details, value, field))


def _is_of_key(details: ErrorDetails) -> bool:
    """Return whether an error is of a mapping's key; a key may also be called like the marker."""
    location = details["loc"]
    if len(location) < 2 or details["type"] in ("extra_forbidden", "missing"):
        return False
    return location[-1] == _KEY and details["input"] == location[-2]


def _unknown_key(path: Path, source: Source) -> Diagnostic:
    *parents, key = path
    known = tuple(source.known_keys(tuple(parents)))
    inside = f" in {dotted(tuple(parents))}" if parents else ""
    word = str(key)
    ours = next((each for each in keys_for(word) if each in known), "")
    hint = f"mxrun calls it {ours}" if ours else nearest(word, known)
    hint = hint or source.elsewhere(word)
    if hint == f"did you mean {word!r}?":
        hint = f"{word!r} is a key of the config itself, at its beginning"
    hint = hint or (
        f"known {source.noun}s: {', '.join(known)}" if known else f"there are no {source.noun}s"
    )
    return Diagnostic(f"unknown {source.noun} {key!r}{inside}", source.key_place(path), hint=hint)


def _missing(path: Path, field: FieldInfo | None, given: object, source: Source) -> Diagnostic:
    *parents, key = path
    if isinstance(key, int):
        parent = tuple(parents)
        kind = annotation_at(source.model, parent)
        expected = "" if kind is None else describe_type(kind)
        got = brief(source.value(parent, given))
        problem = f"{source.name(parent)} has too few items"
        return Diagnostic(problem, source.place(parent), expected, got)
    place = source.key_place(path)
    problem = f"{source.name(path)} is missing"
    if field is None:
        return Diagnostic(problem, place, got="nothing")
    return Diagnostic(problem, place, _with_example(field), "nothing", hint=field.description or "")


def _with_example(field: FieldInfo) -> str:
    """Return the type and range of a field in words, with an example if the field has one."""
    examples = "".join(f", such as {flow(each)}" for each in (field.examples or ())[:1])
    return describe_field(field) + examples


def _expected(details: ErrorDetails, field: FieldInfo | None) -> str:
    context = details.get("ctx", {})
    if "hint" in context:
        return str(context["expected"])
    if field is None:
        return details["msg"]
    return _with_example(field) if details["type"] in _NO_MAPPING else describe_field(field)


def _hint(details: ErrorDetails, value: object, field: FieldInfo | None) -> str:
    """Return how to write a value that is nearly right; empty for others."""
    kind = details["type"]
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", details["ctx"]["expected"])
        return choice_hint(str(value), choices) or nearest(str(value), choices)
    is_scalar = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if kind == "tuple_type" and field is not None and is_scalar:
        has_numbers = _without_none(_inside(_without_none(field.annotation), 0)) in (int, float)
        return f"write [{flow(value)}]" if has_numbers != isinstance(value, str) else ""
    if (
        kind == "int_type"
        and isinstance(value, float)
        and value.is_integer()
        and abs(value) < _MAX_HINTED
    ):
        return f"write {int(value)}"
    if isinstance(value, str) and kind in ("int_type", "float_type", "bool_type"):
        if kind == "bool_type" and value.lower() in _TRUTHS:
            return f"write {_TRUTHS[value.lower()]}"
        if re.fullmatch(_UNQUOTED[kind], value):
            return f"remove the quotes: {value}"
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        return "write it in quotes"
    if kind == "string_unicode":
        return "the name has bytes that are not UTF-8: rename the file or the folder"
    return ""


def _key_field(mapping: Any) -> FieldInfo | None:
    arguments = typing.get_args(mapping)
    return FieldInfo.from_annotation(arguments[0]) if len(arguments) == 2 else None


def _field_of(parent: Any, step: str | int, annotation: Any) -> FieldInfo:
    if _is_model(parent):
        return parent.model_fields[step]  # type: ignore[no-any-return]
    return FieldInfo.from_annotation(annotation)


def _inside(annotation: Any, step: str | int) -> Any:
    """Return the type of the value at `step` of one of type `annotation`; None if unknown."""
    if _is_model(annotation):
        field = annotation.model_fields.get(step)
        return field.annotation if field else None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple and isinstance(step, int):
        is_uniform = arguments[-1:] == (Ellipsis,)
        return arguments[0] if is_uniform else dict(enumerate(arguments)).get(step)
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    return arguments[-1] if is_mapping else None


def _without_none(annotation: Any) -> Any:
    """Return a type without its metadata and without None."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _without_none(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) not in (typing.Union, UnionType):
        return annotation
    members = [each for each in typing.get_args(annotation) if each is not NoneType]
    return _without_none(members[0]) if len(members) == 1 else annotation


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, UnionType)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
