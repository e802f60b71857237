"""Warm start from another run's parameters: selection by name, and check of shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy.typing as npt

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.merged_names import merged_names
from mxrun.base.near_names import listed
from mxrun.base.patterns import PatternTable
from mxrun.config import StartFrom
from mxrun.frontend import ModelDefinition
from mxrun.session.synthetic_data import synthetic_notes
from mxrun.session.trained_model import averages, choose
from mxrun.train.checkpoint import Checkpoint


@dataclass(frozen=True, eq=False)
class WarmStartSource:
    """Pretrained parameters of a run, in addition to its initialisers.

    arrays: copied from the other run. missing: selected, but not in the other run. misshapen:
    selected, but of another shape (there, here). unexpected: in the other run, but not selected or
    not in this network. classes: class names of the other run. notes: notes for the user about it.
    """

    source: Path | None = None
    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    misshapen: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, built: ModelDefinition) -> WarmStartSource:
        """Read the parameters that `train.start_from` selects.

        Raises UserError with all diagnostics if a checkpoint cannot be used, a pattern matches no
        name, or (strict) a selected parameter is missing or misshapen.
        """
        section = built.config.train.start_from
        if section is None:
            return cls()
        checkpoint = _checkpoint(built, section)
        means = averages(checkpoint) if section.averaged else {}
        held = {**checkpoint.parameters, **checkpoint.auxiliary, **means}
        wanted = built.model.learned
        load, skip = PatternTable(section.load), PatternTable(section.skip)
        loads = {name: load.matching(name) for name in wanted}
        skips = {name: skip.matching(name) for name in wanted}
        problems = [
            Diagnostic(
                f"train.start_from.{key}: no parameter of this network matches {pattern!r}",
                place=built.config.place("train", "start_from", key),
                expected=f"patterns of {', '.join(wanted)}",
                got=pattern,
            )
            for key, patterns, matching in (
                ("load", section.load, loads),
                ("skip", section.skip, skips),
            )
            for pattern in _unmatched(patterns, matching)
        ]
        asked = [name for name in wanted if loads[name] and not skips[name]]
        missing = tuple(name for name in asked if name not in held)
        misshapen = tuple(
            f"{name} {list(held[name].shape)} there, {list(wanted[name].shape)} here"
            for name in asked
            if name in held and held[name].shape != wanted[name].shape
        )
        arrays = {
            name: held[name]
            for name in asked
            if name in held and held[name].shape == wanted[name].shape
        }
        unexpected = tuple(name for name in held if name not in asked)
        if section.strict and (missing or misshapen):
            lists = {
                "missing": merged_names(missing),
                "misshapen": misshapen,
                "unexpected": merged_names(unexpected),
            }
            told = [f"{kind}: {', '.join(them)}" for kind, them in lists.items() if them]
            problems.append(
                Diagnostic(
                    f"{checkpoint.folder} lacks parameters to load, or has them in other shapes",
                    place=built.config.key_place("train", "start_from"),
                    got="; ".join(told),
                    hint="select parameters with load and skip, or set strict: false",
                )
            )
        if problems:
            raise UserError(problems)
        classes = checkpoint.manifest.classes
        notes = synthetic_notes(checkpoint.folder)
        return cls(checkpoint.folder, arrays, missing, misshapen, unexpected, classes, notes)

    def notes_for(self, classes: Sequence[str]) -> tuple[str, ...]:
        """Return notes for the user about the other run, for a run with `classes`."""
        if not self.classes or not classes or tuple(classes) == self.classes:
            return self.notes
        theirs, ours = listed(self.classes), listed(classes)
        return (*self.notes, f"{self.source} learned the classes {theirs}; this run has {ours}")

    def to_json(self) -> dict[str, Any] | None:
        """Return the lists as JSON; None without a warm start."""
        if self.source is None:
            return None
        return {
            "run": str(self.source),
            "loaded": list(self.arrays),
            "missing": list(self.missing),
            "misshapen": list(self.misshapen),
            "unexpected": list(self.unexpected),
        }


def _unmatched(patterns: Sequence[str], matching: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the patterns that match no name; `matching` has the patterns of each name."""
    matched = set(chain.from_iterable(matching.values()))
    return [pattern for pattern in patterns if pattern not in matched]


def _checkpoint(built: ModelDefinition, section: StartFrom) -> Checkpoint:
    try:
        found = choose(Path(section.run), section.checkpoint)
    except UserError as error:
        key = "run" if section.checkpoint is None else "checkpoint"
        place = built.config.place("train", "start_from", key)
        raise UserError(
            replace(problem, place=problem.place or place) for problem in error.diagnostics
        ) from error
    assert found.checkpoint is not None
    return found.checkpoint
