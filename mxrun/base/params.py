"""Typed parameters: declared once with type, default, range and doc, validated by pydantic.

Error messages are mxrun's own. An operator's parameters also have MXNet's string form (`kernel="(3,
3)"`), which its JSON uses; `to_strings` and `from_strings` are inverse to each other.
"""

from __future__ import annotations

import ast
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mxrun.base.dtype import LARGEST_FLOAT32
from mxrun.base.errors import Diagnostic, SourceLocation
from mxrun.base.locks import FIRST_TIME
from mxrun.base.validation import Path, Source, dotted, explain

LARGEST_INT32 = 2**31 - 1
NULL = "null"
"""MXNet's name of the choice "none"."""

Float32 = Annotated[float, Field(ge=-LARGEST_FLOAT32, le=LARGEST_FLOAT32)]
"""Number representable in float32, for every value stored in a tensor or multiplied by one."""
Int32 = Annotated[int, Field(le=LARGEST_INT32)]
"""Integer that kernel libraries accept, for sizes and values that determine sizes."""
Positive = Annotated[Float32, Field(gt=0)]
NotNegative = Annotated[Float32, Field(ge=0)]


class StrictModel(BaseModel):
    """Base class of what configs hold: frozen, strict, finite."""

    # There are many classes and a run uses few: a pydantic model is built on first use.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    @classmethod
    def model_rebuild(cls, **options: Any) -> bool | None:
        """Build the model, which pydantic does under a lock of its own."""
        with FIRST_TIME:
            return super().model_rebuild(**options)


class Parameters(StrictModel):
    """Base class of parameters of operators, data sets and initialisers."""

    def to_strings(self) -> dict[str, str]:
        """Return the explicitly given parameters in MXNet's string form, in declaration order."""
        given = self.model_fields_set
        return {name: str(getattr(self, name)) for name in type(self).model_fields if name in given}


M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=Parameters)


class Locator(Protocol):
    """Places of parameters in their file, by the path within the parameters."""

    def place(self, path: Path) -> SourceLocation | None:
        """Return the place of the value at `path`, or of its nearest existing parent."""

    def key_place(self, path: Path) -> SourceLocation | None:
        """Return the place of the key at `path`, or of its nearest existing parent."""

    def elsewhere(self, key: str) -> str:
        """Return where a config has the unknown `key`, or what does the same; else empty."""


def check(
    model: type[M], values: Mapping[str, object], locator: Locator | None = None
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
        return None, explain(error, _ParameterSource(model, values, locator))


def from_strings(
    model: type[P], strings: Mapping[str, str]
) -> tuple[P | None, tuple[Diagnostic, ...]]:
    """Parse MXNet's string form by the declared types, then validate."""
    values: dict[str, object] = {}
    for name, text in strings.items():
        field = model.model_fields.get(name)
        values[name] = text if field is None else _parse(text, field.annotation)
    return check(model, values)


class _ParameterSource(Source):
    """Parameters as the user gave them."""

    noun = "parameter"

    def __init__(
        self, model: type[BaseModel], values: Mapping[str, object], locator: Locator | None
    ) -> None:
        super().__init__(model)
        self._values = values
        self._locator = locator

    def name(self, path: Path) -> str:
        return f"parameter {dotted(path)!r}"

    def place(self, path: Path) -> SourceLocation | None:
        return self._locator.place(path) if self._locator else None

    def key_place(self, path: Path) -> SourceLocation | None:
        return self._locator.key_place(path) if self._locator else None

    def elsewhere(self, key: str) -> str:
        return self._locator.elsewhere(key) if self._locator else ""

    def hint(self, kind: str, path: Path, value: object) -> str:
        """Return how to write one number for a parameter that takes a list."""
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kind != "tuple_type" or not is_number:
            return ""
        count = self._usual_length(str(path[0]))
        axes = ", one number for each axis" if count > 1 else ""
        return f"write [{', '.join([str(value)] * count)}]{axes}"

    def _usual_length(self, name: str) -> int:
        """Return the probable length of a list: of another list given, or of an example; else 1.

        The lists of one operator, such as kernel, stride and pad, usually have an item for each
        axis.
        """
        fields = self.model.model_fields
        others = (self._values[each] for each in fields if each in self._values)
        examples = (next(iter(each.examples or ()), None) for each in fields.values())
        own = next(iter(fields[name].examples or ()), None)
        lists = (each for each in (*others, own, *examples) if isinstance(each, (list, tuple)))
        return next((len(each) for each in lists if each), 1)


def _has_null_choice(model: type[BaseModel], name: str) -> bool:
    """Return whether the field has a choice called "null" and does not accept None."""
    field = model.model_fields.get(name)
    if field is None or _accepts(field.annotation, type(None)):
        return False
    return NULL in _literals(field.annotation)


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
