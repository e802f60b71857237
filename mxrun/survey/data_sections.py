"""The data sections of a config, opened without a plan: their records, before any training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.config.bundled import find_config
from mxrun.frontend import ModelDefinition
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets
from mxrun.preparation.planning import load, trust_plugins

TRAIN, EVAL = "train", "eval"


@dataclass(frozen=True)
class DataSections:
    """Data sets of a config's sections by name, `train` and `eval`, and the config."""

    built: ModelDefinition
    datasets: dict[str, Dataset]

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.built.options.name

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the data sets, each once."""
        return tuple(dict.fromkeys(note for each in self.datasets.values() for note in each.notes))

    def section(self, role: str) -> Dataset:
        """Return the data set of a section; raises UserError if the config has no such section."""
        if role not in self.datasets:
            place = self.built.options.key_place("data")
            problem, expected = f"the config has no data.{role}", "a data set for evaluation"
            raise UserError(Diagnostic(problem, place, expected))
        return self.datasets[role]


def open_sections(
    config: str | Path, overrides: Sequence[str] = (), allow_plugins: bool = False
) -> DataSections:
    """Read a config and open its data sets.

    Raises UserError for errors in the config, for paths that it does not give, and for files that
    cannot be read.
    """
    path = find_config(str(config))
    if allow_plugins:
        trust_plugins(path, overrides)
    built = load(path, overrides, needs_device=False)
    if built.missing:
        raise UserError(built.missing)
    return DataSections(built, open_datasets(built.data, built.model.records))
