"""Diagnostics of a config's sections, with source locations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from mxrun.base.errors import Diagnostic, SourceLocation
from mxrun.base.foreign_names import keys_for, place_of
from mxrun.base.near_names import near_names
from mxrun.base.validation import Path, Source, dotted, explain
from mxrun.config.marked import SourceNode
from mxrun.config.run_config import RunConfig
from mxrun.config.section import Section, key_paths


def translate(
    error: ValidationError,
    tree: SourceNode,
    model: type[Section],
    without: Iterable[Path] = (),
    grammar: Sequence[str] = ("extends", "blocks"),
) -> tuple[Diagnostic, ...]:
    """Return a diagnostic for each error in the validation of `tree` except those at `without`.

    grammar: the keys at the top of the file that are no fields of `model`.
    """
    return explain(error, _SectionSource(model, tree, grammar), without)


def key_elsewhere(key: str) -> str:
    """Return a hint with the places in a config that have a `key`, or what does what it means in
    another framework; empty if there are none.
    """
    if place := place_of(key):
        return place
    words, places = keys_for(key) or (key,), list(key_paths(RunConfig))
    found = [
        path
        for word in words
        for path in ([word] if word in (*keys_for(key), *places) else places)
        if path == word or path.endswith(f".{word}")
    ]
    if not found:
        near = near_names(key, (path.rpartition(".")[2] for path in places))
        found = [path for path in places if path.rpartition(".")[2] in near[:1]]
    return f"did you mean {' or '.join(map(repr, found))}?" if found else ""


class _SectionSource(Source):
    """Sections of a config as written."""

    noun = "key"

    def __init__(self, model: type[Section], tree: SourceNode, grammar: Sequence[str]) -> None:
        super().__init__(model)
        self._tree, self._grammar = tree, grammar

    def name(self, path: Path) -> str:
        return dotted(path) or "the config"

    def place(self, path: Path) -> SourceLocation:
        return self._tree.find(*path).place

    def key_place(self, path: Path) -> SourceLocation:
        return self._tree.find(*path).start

    def value(self, path: Path, given: object) -> object:
        # What pydantic validates is marked in parts, or changed by earlier validators.
        del given
        return self._tree.find(*path).plain()

    def elsewhere(self, key: str) -> str:
        return key_elsewhere(key)

    def known_keys(self, path: Path) -> Iterable[str]:
        return (*super().known_keys(path), *(() if path else self._grammar))
