"""Base class of config sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, get_origin

from pydantic import ConfigDict

from mxrun.base.params import StrictModel
from mxrun.base.validation import Path, annotation_at


class NoEffect:
    """Marker of keys that change no bit of a run's result, and so may change on resume."""


def paths_without_effect(model: type[Section], above: Path = ()) -> Iterator[Path]:
    """Yield the paths of the keys of a section, and of those within, that are marked `NoEffect`."""
    for key, field in model.model_fields.items():
        path = (*above, key)
        if any(isinstance(mark, NoEffect) for mark in field.metadata):
            yield path
            continue
        inner = annotation_at(model, (key,))
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from paths_without_effect(inner, path)


class Section(StrictModel):
    """Mapping of the config.

    `stand_ins` are values for required keys, used to check the rest of a section if the user's
    value for such a key is wrong.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    stand_ins: ClassVar[Mapping[str, object]] = {}


def key_paths(model: type[Section], start: str = "") -> Iterator[str]:
    """Yield the dotted paths of all keys within `model`; NAME stands for a name of the user's."""
    for key in model.model_fields:
        path, inner = f"{start}{key}", annotation_at(model, (key,))
        yield path
        if get_origin(inner) is dict:
            path, inner = f"{path}.NAME", annotation_at(model, (key, ""))
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from key_paths(inner, f"{path}.")


def sections_in(model: type[Section]) -> Iterator[type[Section]]:
    """Yield the models of all sections within `model`, once per occurrence."""
    for key in model.model_fields:
        inner = annotation_at(model, (key,))
        if get_origin(inner) is dict:
            inner = annotation_at(model, (key, ""))
        if isinstance(inner, type) and issubclass(inner, Section):
            yield inner
            yield from sections_in(inner)
