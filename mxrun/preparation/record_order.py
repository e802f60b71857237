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


def carried_notes(built: ModelDefinition, dataset: Dataset) -> list[str]:
    """Return a note if states are carried from batch to batch, but rows do not continue each other.

    dataset: the training data.
    """
    states, section = [*built.model.carried], built.options.data.train
    is_mixed = section.shuffle is not False or section.sampling is not None
    if not states or dataset.is_stream or not (is_mixed or dataset.vocabulary is not None):
        return []
    hint = "leave out `shuffle` and `sampling`"
    if dataset.vocabulary is not None:
        hint = "write `order: stream`"
    return [
        f"data.train: the rows of a batch do not continue those of the last one, but {states[0]!r} "
        f"carries what each row has left there: {hint}"
    ]
