"""Base class of config sections: frozen, strict models without unknown keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from mxrun.config.choice import FORM, Choice
from mxrun.config.marked import Path

_NAMES: Mapping[type, str] = {int: "an integer", str: "text", Choice: FORM}


class Section(BaseModel):
    """Mapping of the config.

    `not_yet` lists keys, and `key: value` pairs, that belong to the grammar but are not available
    in this version of mxrun. `stand_ins` are values for required keys, used to check the rest of a
    section if the user's value for such a key is wrong.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
    )
    not_yet: ClassVar[frozenset[str]] = frozenset()
    stand_ins: ClassVar[Mapping[str, object]] = {}


def section_at(path: Path, model: type[Section]) -> type[Section] | None:
    """Return the model of the mapping at `path` within `model`, or None if there is none."""
    annotation: Any = model
    for step in path:
        annotation = _inside(annotation, step)
    return annotation if _is_section(annotation) else None


def sections_in(model: type[Section]) -> Iterator[type[Section]]:
    """Yield the models of all sections within `model`, once per occurrence."""
    for key in model.model_fields:
        inner = _inside(model, key)
        if get_origin(inner) is dict:
            inner = _inside(inner, "")
        if _is_section(inner):
            yield inner
            yield from sections_in(inner)


def describe_field(field: FieldInfo) -> str:
    """Describe the valid values of a key: type, range and an example."""
    annotation = field.annotation
    text = _NAMES.get(annotation, "") if isinstance(annotation, type) else ""
    if _is_section(annotation) or get_origin(annotation) is dict:
        text = "a mapping"
    elif get_origin(annotation) is tuple:
        text = "a list"
    least = next((rule.ge for rule in field.metadata if hasattr(rule, "ge")), None)
    if least is not None:
        text += f", {least} or more"
    example = next(iter(field.examples or ()), None)
    return text if example is None else f"{text}, such as {_flow(example)}"


def _flow(value: object) -> str:
    """Format an example as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return str(value)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _inside(annotation: Any, step: str | int) -> Any:
    """Return the type, without None, of the value at `step` within one of type `annotation`."""
    found: Any = None
    if _is_section(annotation):
        field = annotation.model_fields.get(str(step))
        found = field.annotation if field else None
    elif get_origin(annotation) is dict:
        found = get_args(annotation)[-1]
    if get_origin(found) in (UnionType, Union):
        found = next(part for part in get_args(found) if part is not type(None))
    return found
