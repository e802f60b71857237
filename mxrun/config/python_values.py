"""Configs and overrides that Python code gives: dictionaries as trees placed by dotted keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np

from mxrun.base.errors import PYTHON, Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.validation import Path as KeyPath
from mxrun.base.validation import dotted
from mxrun.config.load import DEEPEST, MAX_VALUES
from mxrun.config.marked import Scalar, SourceNode
from mxrun.config.scalar import MAX_NUMBER_LENGTH

_WHOLE = "the config"
_MAX_SHOWN = 60


class PythonValues:
    """Converter of Python values into trees whose parts are placed by their dotted keys."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._order = count(1)

    def place(self, path: KeyPath) -> SourceLocation:
        """Return the place of the value at `path`, after all places returned before."""
        return SourceLocation(PYTHON, next(self._order), 1, dotted(path) or _WHOLE)

    def tree(self, value: Any, path: KeyPath) -> SourceNode:
        """Return a value as a tree; dictionaries, lists, tuples, NumPy values and paths are read.

        Values of other types are added to the diagnostics. Raises UserError beyond the limits of a
        config's depth and size.
        """
        place = self.place(path)
        if len(path) > DEEPEST:
            problem = "nested too deeply"
            raise UserError(Diagnostic(problem, place, f"at most {DEEPEST} levels"))
        if place.line > MAX_VALUES:
            problem = "the config holds too many values"
            raise UserError(Diagnostic(problem, place, f"up to {MAX_VALUES}"))
        if isinstance(value, (np.ndarray, np.generic)):
            value = value.tolist()
        if isinstance(value, Mapping):
            return SourceNode(self._entries(value, path), place, place)
        if isinstance(value, (list, tuple)):
            items = (self.tree(item, (*path, index)) for index, item in enumerate(value))
            return SourceNode(tuple(items), place, place)
        return SourceNode(self._scalar(value, place), place, place)

    def _entries(self, mapping: Mapping[Any, Any], path: KeyPath) -> dict[str, SourceNode]:
        entries = {}
        for key, value in mapping.items():
            if isinstance(key, str) and _is_text(key):
                entries[key] = self.tree(value, (*path, key))
            else:
                place = self.place(path)
                self._diagnostics.add(Diagnostic("a key must be text", place, "text", repr(key)))
        return entries

    def _scalar(self, value: Any, place: SourceLocation) -> Scalar:
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, str) and not _is_text(value):
            self._diagnostics.add(Diagnostic("half of a surrogate pair is not a character", place))
            return ""
        if isinstance(value, int) and abs(value) >= 10**MAX_NUMBER_LENGTH:
            expected = f"a number of at most {MAX_NUMBER_LENGTH} digits"
            self._diagnostics.add(Diagnostic("the number is too long", place, expected))
            self._diagnostics.unknown.add(place)
            return None
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        self._diagnostics.add(
            Diagnostic(
                f"a config holds no values of the type {type(value).__name__}",
                place,
                "a number, text, true or false, None, a list or a dictionary",
                repr(value)[:_MAX_SHOWN],
            )
        )
        # What is wrong with the stand-in is not reported.
        self._diagnostics.unknown.add(place)
        return None


def _is_text(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)
