"""Implementation of `datasets`: what data there is, how it looks, and whether it is whole."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, Stopped, UserError
from mxrun.base.near_names import nearest
from mxrun.inspection.dataset_catalog import dataset_description, dataset_rows
from mxrun.io.fetch.files import FetchedFile, FetchRequest, FileProgress, fetch_files
from mxrun.io.fetch.published import PUBLISHED, PublishedDataset
from mxrun.io.fetch.transfer import TransferPolicy
from mxrun.io.files import user_path
from mxrun.options.datasets import CheckDataOptions, FetchOptions, PeekOptions, StatisticsOptions
from mxrun.survey.data_check import DataCheck, check_records
from mxrun.survey.data_sample import DataSample, sample_records
from mxrun.survey.data_sections import TRAIN, DataSections, open_sections
from mxrun.survey.data_statistics import SectionStatistics, normalize_text, section_statistics

__all__ = [
    "DataSections",
    "FetchResult",
    "StatisticsResult",
    "check",
    "count_records",
    "dataset_description",
    "dataset_rows",
    "fetch",
    "open_sections",
    "sample",
    "sheet_files",
    "statistics",
]

Advance = Callable[[int], None]
# Paths that YAML reads as texts without quotes.
_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*", re.ASCII)


def sample(sections: DataSections, options: PeekOptions) -> DataSample:
    """Return some records as an epoch reads them; see `sample_records`."""
    return sample_records(sections, options)


@dataclass(frozen=True)
class StatisticsResult:
    """Statistics of the sections of a config, and transforms that normalize its inputs.

    transforms: by input, from the training section, or from the one that was measured.
    """

    name: str
    sections: dict[str, SectionStatistics]
    transforms: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        sections = {role: section.to_json() for role, section in self.sections.items()}
        return {"name": self.name, "sections": sections, "transforms": self.transforms}


def statistics(
    sections: DataSections, options: StatisticsOptions, advance: Advance
) -> StatisticsResult:
    """Measure all records of a section, or of all sections.

    advance: receives the number of records that are done.
    """
    roles = [*sections.datasets] if options.split is None else [options.split]
    found = section_statistics(sections, roles, options.workers or _cores(), advance)
    measured = found.get(TRAIN) or next(iter(found.values()))
    transforms = {name: normalize_text(field) for name, field in measured.fields.items()}
    return StatisticsResult(sections.name, found, transforms)


def check(sections: DataSections, options: CheckDataOptions, advance: Advance) -> DataCheck:
    """Read all records of all sections; see `check_records`."""
    return check_records(sections, options.workers or _cores(), advance)


@dataclass(frozen=True)
class FetchResult:
    """Files of a data set in a folder, and lines of a config that read them."""

    dataset: PublishedDataset
    folder: Path
    files: tuple[FetchedFile, ...]

    @property
    def config(self) -> str:
        """Section `data` of a config that trains on the files."""
        name = self.dataset.name
        return (
            "data:\n"
            "  batch_size: 64\n"
            f"  train: {{dataset: {name}, path: {_yaml(str(self.folder))}, shuffle: true}}\n"
            f"  eval: {{dataset: {name}}}\n"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        example = self.dataset.example
        setting = shlex.quote(f"data.train.path={self.folder / self.dataset.example_file}")
        next_command = f"mxrun train {example} {setting}" if example else None
        return {
            "dataset": self.dataset.name,
            "folder": str(self.folder),
            "files": [asdict(file) for file in self.files],
            "digests": self.dataset.digests,
            "licence": self.dataset.licence,
            "config": self.config,
            "next": next_command,
        }


def fetch(options: FetchOptions, progress: FileProgress) -> FetchResult:
    """Fetch the files of a published data set that are not there yet.

    Raises UserError with the nearest names for a data set that is not published, and as
    `fetch_files` does; Stopped on Ctrl-C.
    """
    name = options.name
    if name not in PUBLISHED:
        problem = f"{name!r} is not a data set that can be fetched"
        expected = f"one of {', '.join(PUBLISHED)}"
        hint = nearest(name, PUBLISHED) or "`mxrun datasets list` lists all data sets"
        raise UserError(Diagnostic(problem, None, expected, name, hint=hint))
    dataset = PUBLISHED[name]
    target = Path(name) if options.to is None else user_path(str(options.to))
    policy = TransferPolicy(options.timeout)
    request = FetchRequest(dataset, target, options.origin, options.overwrite, policy)
    try:
        files = fetch_files(request, progress)
    except KeyboardInterrupt:
        raise Stopped(
            "stopped; the same command continues with what has arrived in " + str(target)
        ) from None
    return FetchResult(dataset, target, files)


def count_records(sections: DataSections, role: str | None = None) -> int:
    """Return the number of records of a section, or of all sections together."""
    roles = [*sections.datasets] if role is None else [role]
    return sum(len(sections.section(role)) for role in roles)


def sheet_files(sample: DataSample, file: Path | None) -> dict[str, Path]:
    """Return the file of the image sheet of each input that has images.

    file: by default one named after the run and the section, in the working folder. A second input
    adds its name to the file's. Raises UserError for a name of another format than PNG.
    """
    if file is not None and file.suffix.lower() != ".png":
        problem = f"{file}: the sheet is a PNG file"
        raise UserError(Diagnostic(problem, None, "a name that ends in .png", file.name))
    first = file or Path(f"{sample.name}_{sample.section}.png")
    names = [*sample.images]
    others = {name: first.with_name(f"{first.stem}_{name}{first.suffix}") for name in names[1:]}
    return {name: others.get(name, first) for name in names}


def _yaml(text: str) -> str:
    """Return a text as a YAML scalar within braces."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _cores() -> int:
    return len(os.sched_getaffinity(0))
