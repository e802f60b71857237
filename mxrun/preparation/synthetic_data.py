"""Synthetic data for training: used if the config names no data, with notes for the user."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from mxrun.base.errors import UserError
from mxrun.config import RunOptions, load_config
from mxrun.frontend import ModelDefinition
from mxrun.frontend.data import pathless
from mxrun.io.dataset.registry import DATASETS
from mxrun.preparation.random_records import DEFAULT_LIMIT, batch_count, count_limits
from mxrun.train.run_directory import run_of

NO_PATH = "no data.train.path: this trains on synthetic data; give data.train.path=PATH"
"""Note for the user about a run with `synthetic_sections`."""

_DATASET = "synthetic"


def synthetic_sections(built: ModelDefinition) -> Mapping[str, Mapping[str, object]]:
    """Return the data sections of synthetic data that replace sections without a path, by role.

    Empty if either section has its data, because evaluation on other records would be useless.
    Transforms are removed with the data set, because synthetic records already have the network's
    shapes.
    """
    data = built.options.data
    sections = {"train": ("train", data.train.is_shuffled)}
    if data.eval is not None:
        sections["eval"] = ("test", data.eval.is_shuffled)
    if set(pathless(data)) != set(sections):
        return {}
    records = _records(built)
    classes = min(count_limits(built.model).values(), default=DEFAULT_LIMIT)
    shared = {"dataset": _DATASET, "records": records, "classes": classes}
    return {
        role: {"split": split, "shuffle": shuffle, **shared}
        for role, (split, shuffle) in sections.items()
    }


def with_synthetic_data(built: ModelDefinition) -> ModelDefinition:
    """Return the run on `synthetic_sections`, or as it is if it needs none."""
    sections = synthetic_sections(built)
    return built.with_data(sections) if sections else built


def uses_synthetic_data(options: RunOptions) -> bool:
    """Return whether a run trains or is evaluated on synthetic data, requested or by default."""
    sections = (options.data.train, options.data.eval)
    return any(section is not None and _is_synthetic(section.dataset) for section in sections)


def synthetic_notes(run: Path) -> tuple[str, ...]:
    """Return a note if the run of a folder or of a checkpoint trained on synthetic data.

    Empty if its config cannot be read.
    """
    folder = run_of(run)
    try:
        config = load_config(folder / "config.yaml")
    except UserError:
        return ()
    return synthetic_notes_of(folder, config)


def synthetic_notes_of(folder: Path, options: RunOptions) -> tuple[str, ...]:
    """Return a note if the run of a folder, whose config is known, trained on synthetic data."""
    if not trained_on_synthetic_data(options):
        return ()
    name = options.data.train.dataset
    return (
        f"{folder} was trained on synthetic data (dataset: {name}), not on data of a real task",
    )


def trained_on_synthetic_data(options: RunOptions) -> bool:
    """Return whether a run trains on synthetic data, requested or by default."""
    return _is_synthetic(options.data.train.dataset)


def _is_synthetic(name: str) -> bool:
    """Return whether a data set generates its records; plugins must be loaded before."""
    return name in DATASETS and DATASETS.get(name).synthetic


def _records(built: ModelDefinition) -> int:
    """Return the number of records that fill a few batches, at least one batch."""
    size = built.model.batch_size
    elements = sum(math.prod(spec.shape) for spec in built.model.records.values())
    return size * batch_count(size * elements)
