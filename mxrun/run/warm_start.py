"""Warm start from another run's parameters: selection by name, and check of shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.merged_names import merged_names
from mxrun.base.near_names import listed
from mxrun.base.patterns import PatternTable
from mxrun.config import PATHLESS, StartFrom
from mxrun.frontend import ModelDefinition
from mxrun.io.dataset.pixels import Whites, values_text
from mxrun.io.files import user_path, with_prefix
from mxrun.preparation.synthetic_data import synthetic_notes
from mxrun.run.foreign_weights import translated_weights
from mxrun.run.trained_model import averages, not_a_run, select_checkpoint
from mxrun.train.checkpoint import Checkpoint, StartedFrom
from mxrun.train.run_directory import is_run


@dataclass(frozen=True, eq=False)
class WarmStartSource:
    """Pretrained parameters of a run, in addition to its initialisers.

    source: the other run's checkpoint, or a file of weights. arrays: copied from it. missing:
    selected, but not there. misshapen: selected, but of another shape (there, here). unexpected:
    there, but not selected or not in this network. classes: class names of the other run. notes:
    notes for the user about it. vocabulary: SHA-256 of its vocabulary, if it was trained on text.
    whites: of its images; None if they are not known.
    """

    source: Path | None = None
    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    misshapen: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    vocabulary: str | None = None
    whites: Whites | None = field(default_factory=dict)

    @classmethod
    def read(cls, built: ModelDefinition, runs: Path) -> WarmStartSource:
        """Read the parameters that `train.start_from` selects; `runs` is the folder of runs.

        Raises UserError with all diagnostics if a checkpoint cannot be used, a pattern matches no
        name, or (strict) a selected parameter is missing or misshapen.
        """
        section = built.options.train.start_from
        if section is None:
            return cls()
        there = _of_run(built, section, runs) if section.run else _of_file(built, section)
        available = there.arrays
        learned = built.model.learned
        selected, problems = _selected(built, section)
        missing = tuple(name for name in selected if name not in available)
        fits = {
            name: available[name].shape == learned[name].shape
            for name in selected
            if name in available
        }
        misshapen = tuple(
            f"{name} {list(available[name].shape)} there, {list(learned[name].shape)} here"
            for name, fit in fits.items()
            if not fit
        )
        arrays = {name: available[name] for name, fit in fits.items() if fit}
        problems += filter(None, (_impossible(built, there, *each) for each in arrays.items()))
        unselected = (name for name in available if name not in selected)
        unexpected = (*unselected, *there.unexpected)
        lists_of_names = (missing, misshapen, unexpected)
        if section.strict and (missing or misshapen):
            problems.append(_incomplete(built, there.source, *lists_of_names))
        if problems:
            raise UserError(problems)
        return replace(
            there,
            arrays=arrays,
            missing=missing,
            misshapen=misshapen,
            unexpected=unexpected,
        )

    def notes_for(
        self, classes: Sequence[str], whites: Whites, vocabulary: str | None = None
    ) -> tuple[str, ...]:
        """Return notes for the user about the other run, for a run with `classes`.

        whites: of the run's images. vocabulary: SHA-256 of the run's own, if it reads text.
        """
        if self.source is None:
            return ()
        found = [*self.notes]
        changed = sorted((self.whites or {}).keys() ^ whites.keys())
        if changed and self.whites is not None:
            found.append(
                f"{self.source} was trained on other values: {values_text(self.whites, changed)}; "
                f"this run has {values_text(whites, changed)}"
            )
        if self.vocabulary != vocabulary and None not in (self.vocabulary, vocabulary):
            found.append(
                f"{self.source} has another vocabulary: the same ids are other tokens there"
            )
        elif self.classes and classes and tuple(classes) != self.classes:
            found.append(
                f"{self.source} learned the classes {listed(self.classes)}; this run has "
                f"{listed(classes)}"
            )
        return tuple(found)

    def record(self) -> StartedFrom | None:
        """Return the lists as checkpoints hold them; None without a warm start."""
        if self.source is None:
            return None
        return StartedFrom(
            run=str(self.source),
            loaded=tuple(self.arrays),
            missing=self.missing,
            misshapen=self.misshapen,
            unexpected=self.unexpected,
        )


def _impossible(
    built: ModelDefinition, there: WarmStartSource, name: str, values: npt.NDArray[Any]
) -> Diagnostic | None:
    """Return the problem of a tensor that no training has, or None."""
    is_variance = name.endswith("_moving_var")
    wrong = values[~np.isfinite(values) | (is_variance & (values < 0))]
    if not wrong.size:
        return None
    return Diagnostic(
        f"{there.source}: {name}: {wrong.size:,} of {values.size:,} values are damaged",
        built.options.place("train", "start_from"),
        f"finite numbers of {values.dtype}" + ", as variances not below 0" * is_variance,
        f"{wrong[0]:g}",
        hint=f"leave it out, `skip: [{name}]`, or take another file",
    )


def _selected(built: ModelDefinition, section: StartFrom) -> tuple[list[str], list[Diagnostic]]:
    """Return the names of the selected parameters, and diagnostics for patterns without a match."""
    learned = built.model.learned
    load, skip = PatternTable(section.load), PatternTable(section.skip)
    loads = {name: load.matching(name) for name in learned}
    skips = {name: skip.matching(name) for name in learned}
    problems = [
        Diagnostic(
            f"train.start_from.{key}: no parameter of this network matches {pattern!r}",
            place=built.options.place("train", "start_from", key),
            expected=f"patterns of {', '.join(learned)}",
            got=pattern,
        )
        for key, patterns, matching in (
            ("load", section.load, loads),
            ("skip", section.skip, skips),
        )
        for pattern in _unmatched(patterns, matching)
    ]
    return [name for name in learned if loads[name] and not skips[name]], problems


def _incomplete(
    built: ModelDefinition,
    source: Path | None,
    missing: Sequence[str],
    misshapen: Sequence[str],
    unexpected: Sequence[str],
) -> Diagnostic:
    """Return the diagnostic for selected parameters that cannot be loaded."""
    lists = {
        "missing": merged_names(missing),
        "misshapen": misshapen,
        "unexpected": merged_names(unexpected),
    }
    return Diagnostic(
        f"{source} lacks parameters to load, or has them in other shapes",
        place=built.options.key_place("train", "start_from"),
        got="; ".join(f"{kind}: {', '.join(them)}" for kind, them in lists.items() if them),
        hint="select parameters with load and skip, or set strict: false",
    )


def _unmatched(patterns: Sequence[str], matching: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the patterns that match no name; `matching` has the patterns of each name."""
    matched = set(chain.from_iterable(matching.values()))
    return [pattern for pattern in patterns if pattern not in matched]


def _of_run(built: ModelDefinition, section: StartFrom, runs: Path) -> WarmStartSource:
    """Return all that a run's checkpoint has."""
    checkpoint = _checkpoint(built, section, runs)
    means = averages(checkpoint) if section.averaged else {}
    manifest = checkpoint.manifest
    return WarmStartSource(
        checkpoint.folder,
        {**checkpoint.parameters, **checkpoint.auxiliary, **means},
        classes=manifest.classes,
        notes=synthetic_notes(checkpoint.folder),
        vocabulary=manifest.vocabulary,
        whites=manifest.whites,
    )


def _of_file(built: ModelDefinition, section: StartFrom) -> WarmStartSource:
    """Return all of a file of weights that has a name here, and the names of the others."""
    assert section.weights is not None
    place = built.options.place("train", "start_from", "weights")
    places = _places(place, section.weights)
    path = next(filter(os.path.isfile, places), places[0])
    try:
        found = translated_weights(built, path, section.names)
    except UserError as error:
        raise with_prefix(error, "train.start_from", place) from error
    return WarmStartSource(
        path, found.arrays, unexpected=found.unexpected, notes=found.notes, whites=None
    )


def _checkpoint(built: ModelDefinition, section: StartFrom, runs: Path) -> Checkpoint:
    assert section.run is not None
    places = _places(built.options.place("train", "start_from", "run"), section.run, runs)
    path = next(filter(is_run, places), None)
    if path is None:
        looked = f"looked in {listed([os.path.abspath(each) for each in places])}"
        there = next(filter(os.path.exists, places), places[0])
        problem = not_a_run(there, f"train.start_from: {section.run} is not a run", looked)
        raise UserError(replace(problem, place=built.options.place("train", "start_from", "run")))
    try:
        found = select_checkpoint(path, section.checkpoint)
    except UserError as error:
        key = "run" if section.checkpoint is None else "checkpoint"
        place = built.options.place("train", "start_from", key)
        raise UserError(
            replace(problem, place=problem.place or place) for problem in error.diagnostics
        ) from error
    assert found.checkpoint is not None
    return found.checkpoint


def _places(written: SourceLocation | None, given: str, runs: Path | None = None) -> list[Path]:
    """Return where a run or file may be: beside the config that names its path, here, in `runs`."""
    path = user_path(given)
    places = [path] if runs is None else [path, runs / path]
    # A bare name means a run of that name, not a folder beside the config.
    is_name = runs is not None and path.name == given
    if written is not None and written.file not in PATHLESS and not is_name:
        places.insert(0, Path(written.file).parent / path)
    return list(dict.fromkeys(places))
