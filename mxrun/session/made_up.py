"""Training where the config names no data: on made-up records of the network's input shapes."""

from __future__ import annotations

import math

from mxrun.build import Built
from mxrun.build.data import pathless
from mxrun.session.steps import FEW, batch_count, count_limits

NO_PATH = "no data.train.path: the records are made up; give data.train.path=PATH to train on data"
"""What the user should know of a run with `made_up_sections`."""

_DATASET = "synthetic"


def made_up_sections(built: Built) -> tuple[str, ...]:
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


def trains_on_made_up(built: Built) -> bool:
    """Whether a run learns from made-up records, whoever wanted them."""
    return built.config.data.train.dataset == _DATASET


def _records(built: Built) -> int:
    """How many records fill a few batches; at least one batch."""
    size = built.model.batch_size
    elements = sum(math.prod(spec.shape) for spec in built.model.records.values())
    return size * batch_count(size * elements)
