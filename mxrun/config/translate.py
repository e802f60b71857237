"""Diagnostics of a config's sections, with source locations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from mxrun.base.errors import Diagnostic, SourceLocation
from mxrun.base.validation import Path, Source, dotted, explain
from mxrun.config.marked import SourceNode
from mxrun.config.section import Section


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

    def known_keys(self, path: Path) -> Iterable[str]:
        return (*super().known_keys(path), *(() if path else self._grammar))
