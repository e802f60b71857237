"""Catalogue of data sets and file formats: what each reads, its options, where its files are."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.inspection.reference import ReferenceEntry, config_reference, find
from mxrun.io.dataset.registry import DATASETS, DatasetFormat
from mxrun.io.fetch.published import PUBLISHED, PublishedDataset

Report = dict[str, Any]


def dataset_rows() -> list[Report]:
    """Return name, kind and summary of every data set and format, in alphabetical order."""
    return [_row(entry) for entry in _choice().entries]


def dataset_description(name: str) -> Report:
    """Return what is known about a data set: options, fields, splits, files and licence.

    Raises UserError with the nearest names for an unknown one.
    """
    entries = {entry.name: entry for entry in _choice().entries}
    if name not in entries:
        problem = f"there is no data set {name!r}"
        hint = nearest(name, entries) or "`mxrun datasets list` lists them"
        raise UserError(Diagnostic(problem, got=name, hint=hint))
    entry, known = entries[name], DATASETS.get(name)
    published = PUBLISHED.get(name)
    licence = DATASETS.attribute("licence").get(name, "")
    return {
        **_row(entry),
        "description": entry.description,
        "splits": _splits(known),
        "options": [
            {
                "name": option.name,
                "accepts": option.accepts,
                "required": option.is_required,
                "default": option.default,
                "about": option.description,
            }
            for option in entry.entries
        ],
        "licence": licence if published is None else published.licence,
        "files": None if published is None else _files(published),
        "example": entry.example,
    }


def _choice() -> ReferenceEntry:
    (choice,) = find(config_reference(), "data.train.dataset")
    return choice


def _row(entry: ReferenceEntry) -> Report:
    known = DATASETS.get(entry.name)
    return {"name": entry.name, "kind": _kind(known), "about": entry.summary}


def _kind(known: DatasetFormat) -> str:
    """Return where records come from: `published`, `bundled`, `synthetic` or `your files`."""
    if known.name in PUBLISHED:
        return "published"
    if known.synthetic:
        return "synthetic"
    return "your files" if "path" in known.options.model_fields else "bundled"


def _splits(known: DatasetFormat) -> list[str] | None:
    """Return the names of the splits; None if the files decide."""
    return None if known.find_split is not None else list(known.splits)


def _files(published: PublishedDataset) -> Report:
    """Return where the files of a published data set come from."""
    files = [
        {
            "name": file.name,
            "bytes": file.size,
            "sha256": file.sha256,
            "urls": [f"{mirror}{file.name}" for mirror in file.mirrors],
            "members": [asdict(member) for member in file.members],
        }
        for file in published.files
    ]
    return {
        "title": published.title,
        "bytes": published.size,
        "homepage": published.homepage,
        "digests": published.digests,
        "files": files,
        "fetch": f"mxrun datasets fetch {published.name}",
    }
