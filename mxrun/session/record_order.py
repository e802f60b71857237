"""Order in which the data sections of a config read their records."""

from __future__ import annotations

from mxrun.base.errors import Diagnostic, UserError
from mxrun.config import DatasetSection, WindowSection
from mxrun.frontend import ModelDefinition
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.loading.open import balanced
from mxrun.io.loading.sampling import Shuffle, ShuffleWindow


def shuffle_of(section: DatasetSection, dataset: Dataset) -> Shuffle:
    """Return how the records of an epoch are drawn. Raises UserError for missing classes."""
    if dataset.is_stream:
        if section.is_shuffled:
            problem = "the records of a stream follow each other: they have one order"
            raise UserError(Diagnostic(problem, dataset.place, hint="remove shuffle and sampling"))
        return False
    if section.sampling is not None:
        return balanced(dataset)
    if isinstance(section.shuffle, WindowSection):
        return ShuffleWindow(section.shuffle.window)
    return section.shuffle


def carried_notes(built: ModelDefinition) -> list[str]:
    """Return a note if states are carried from batch to batch although records are shuffled."""
    states, section = [*built.model.carried], built.config.data.train
    if not states or (not section.shuffle and section.sampling is None):
        return []
    return [
        f"data.train: records are drawn in another order, but {states[0]!r} carries what a row of "
        "the last batch left to the same row of the next: leave out `shuffle` and `sampling`, so "
        "that these rows continue each other"
    ]
