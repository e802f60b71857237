"""Training on synthetic data: where the config names no data, and what users are told of it."""

from __future__ import annotations

import math
from pathlib import Path

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.config import RunConfig, load_config
from mxrun.frontend import ModelDefinition
from mxrun.frontend.data import pathless
from mxrun.io.dataset import DATASETS
from mxrun.session.benchmark_loop import FEW, batch_count, count_limits
from mxrun.train.checkpoint import MANIFEST_FILE

NO_PATH = "no data.train.path: this trains on synthetic data; give data.train.path=PATH"
"""What the user should know of a run with `made_up_sections`."""

_DATASET = "synthetic"


def synthetic_sections(built: ModelDefinition) -> tuple[str, ...]:
    """Overrides that put made-up records in the place of data whose path the user has not given.

    None where a section has its data: records of two kinds would be evaluated in vain. Transforms
    go with the data set, since these records are what the network takes already.
    """
    data = built.config.data
    sections = {"train": ("train", data.train.shuffle)}
    if data.eval is not None:
        sections["eval"] = ("test", data.eval.shuffle)
    if set(pathless(data)) != set(sections):
        return ()
    records = _records(built)
    classes = min(count_limits(built.model).values(), default=FEW)
    return tuple(
        f"data.{role}={{dataset: {_DATASET}, split: {split}, shuffle: {str(shuffle).lower()}, "
        f"records: {records}, classes: {classes}}}"
        for role, (split, shuffle) in sections.items()
    )


def uses_synthetic_data(config: RunConfig) -> bool:
    """Whether a run trains or is evaluated on synthetic data, whoever wanted them."""
    sections = (config.data.train, config.data.eval)
    return any(section is not None and _is_synthetic(section.dataset) for section in sections)


def synthetic_notes(run: Path) -> tuple[str, ...]:
    """One line where the run in a folder, or the one that a checkpoint is of, trained on synthetic
    data; nothing where that cannot be read.
    """
    library.load()
    folder = run.parent if (run / MANIFEST_FILE).is_file() else run
    try:
        config = load_config(folder / "config.yaml")
    except UserError:
        return ()
    if not trained_on_synthetic_data(config):
        return ()
    name = config.data.train.dataset
    return (f"{folder} was trained on synthetic data (dataset: {name}), not on a real task's",)


def trained_on_synthetic_data(config: RunConfig) -> bool:
    """Whether a run learns from synthetic data, whoever wanted them."""
    return _is_synthetic(config.data.train.dataset)


def _is_synthetic(name: str) -> bool:
    """Whether a data set, which a plugin may have to register first, draws its records."""
    return name in list(DATASETS) and DATASETS.get(name).synthetic


def _records(built: ModelDefinition) -> int:
    """How many records fill a few batches; at least one batch."""
    size = built.model.batch_size
    elements = sum(math.prod(spec.shape) for spec in built.model.records.values())
    return size * batch_count(size * elements)
