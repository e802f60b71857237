"""Statistics of a config's data: records by class, sizes, mean and deviation of the values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import UserError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.records import column_names, scale_of, stored_record
from mxrun.io.loading.batch import is_label
from mxrun.io.loading.scan import Advance, scan
from mxrun.survey.data_sections import DataSections
from mxrun.survey.survey import ImageSizes, byte_moments, class_counts, image_sizes, rounded
from mxrun.survey.text_statistics import TextStatistics, text_statistics


@dataclass(frozen=True)
class FieldStatistics:
    """Values of a field before its transforms, by channel: the first axis of a record.

    shape: of a record, None where records differ. sizes: of images of different sizes. mean and std
    count every record alike, whatever its size. names: of the columns of a table.
    """

    shape: tuple[int | None, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    least: tuple[float, ...]
    greatest: tuple[float, ...]
    sizes: ImageSizes | None = None
    names: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON."""
        return {**asdict(self), "min": self.least, "max": self.greatest}


@dataclass(frozen=True)
class SectionStatistics:
    """Records of a section: how many, of which classes, and the values of each data field.

    texts: the tokens of fields of texts. unreadable: records that are left out because they cannot
    be read. values: how the numbers of the records are read.
    """

    dataset: str
    split: str
    records: int
    classes: dict[str, int]
    fields: dict[str, FieldStatistics]
    texts: dict[str, TextStatistics] = field(default_factory=dict)
    unreadable: int = 0
    values: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON."""
        fields = {name: each.to_json() for name, each in self.fields.items()}
        texts = {name: each.to_json() for name, each in self.texts.items()}
        return {**asdict(self), "fields": fields, "texts": texts}


def section_statistics(
    sections: DataSections, roles: Sequence[str], workers: int, advance: Advance
) -> dict[str, SectionStatistics]:
    """Measure all records of some sections.

    advance: receives the number of records that are done, of all sections together.
    """
    found: dict[str, SectionStatistics] = {}
    done = 0
    for role in roles:
        dataset = sections.section(role)
        texts = dataset.token_fields
        names = [name for name in dataset.inputs if not is_label(name) and not texts]
        work = partial(_measured, dataset, names)
        chunks = scan(len(dataset), work, workers, advance, done)
        tokens = {name: text_statistics(dataset, name) for name in texts if not is_label(name)}
        found[role] = replace(_statistics(dataset, names, chunks), texts=tokens)
        done += len(dataset)
    return found


def normalize_text(field: FieldStatistics) -> str:
    """Return the transform that brings the values of a field to mean 0 and deviation 1."""
    if len(field.mean) == 1:
        return f"normalize: {{mean: {field.mean[0]}, std: {field.std[0]}}}"
    mean, std = (", ".join(map(str, values)) for values in (field.mean, field.std))
    return f"normalize: {{mean: [{mean}], std: [{std}]}}"


@dataclass(frozen=True)
class _Measured:
    """Measurements of one field of some records: each [records, channels], sizes [records, 2]."""

    mean: NDArray[np.float64]
    square: NDArray[np.float64]
    least: NDArray[np.float64]
    greatest: NDArray[np.float64]
    sizes: NDArray[np.int64]


_Chunk = tuple[dict[str, _Measured], int]


def _measured(dataset: Dataset, names: Sequence[str], records: range) -> _Chunk:
    """Measure some records; returns the measurements by field, and how many cannot be read."""
    rows: dict[str, list[NDArray[np.float64]]] = {name: [] for name in names}
    sizes: dict[str, list[tuple[int, ...]]] = {name: [] for name in names}
    unreadable = 0
    for index in records:
        try:
            stored = {name: stored_record(dataset, name, index) for name in names}
        except UserError:
            unreadable += 1
            continue
        for name, record in stored.items():
            rows[name].append(_figures(record, scale_of(dataset, name)))
            sizes[name].append(record.shape[1:] if record.ndim == 3 else (0, 0))
    found = {}
    for name in names:
        if rows[name]:
            mean, square, least, greatest = np.stack(rows[name], 1)
            found[name] = _Measured(
                mean=mean,
                square=square,
                least=least,
                greatest=greatest,
                sizes=np.array(sizes[name]),
            )
    return found, unreadable


def _figures(record: NDArray[Any], scale: float | None) -> NDArray[np.float64]:
    """Return mean, mean square, minimum and maximum of a record's channels, [4, channels]."""
    channels = record.reshape(record.shape[0] if record.ndim else 1, -1)
    factor = 1.0 if scale is None else float(np.float32(scale))
    if channels.dtype == np.uint8:
        mean, square = byte_moments(channels)
    else:
        values = channels.astype(np.float64)
        mean, square = values.mean(1), np.square(values).mean(1)
    least, greatest = channels.min(1) * factor, channels.max(1) * factor
    return np.stack((mean * factor, square * factor**2, least, greatest)).astype(np.float64)


def _statistics(
    dataset: Dataset, names: Sequence[str], chunks: Iterable[_Chunk]
) -> SectionStatistics:
    """Join the measurements of all records."""
    measured: dict[str, list[_Measured]] = {name: [] for name in names}
    unreadable = 0
    for found, count in chunks:
        unreadable += count
        for name, part in found.items():
            measured[name].append(part)
    fields = {name: _joined(dataset, name, parts) for name, parts in measured.items() if parts}
    counts = class_counts(dataset)
    about = (dataset.name, dataset.split, len(dataset), counts, fields)
    return SectionStatistics(*about, unreadable=unreadable, values=dataset.values_text)


def _joined(dataset: Dataset, name: str, parts: Sequence[_Measured]) -> FieldStatistics:
    means = np.concatenate([part.mean for part in parts])
    squares = np.concatenate([part.square for part in parts])
    mean = means.mean(0)
    std = np.sqrt(np.maximum(squares.mean(0) - mean**2, 0))
    shape = dataset.lazy[name].shape if name in dataset.lazy else dataset.specs[name].shape
    names = column_names(dataset)
    columns = names if len(shape) == 1 and len(names) == shape[0] else ()
    sizes = np.concatenate([part.sizes for part in parts])
    return FieldStatistics(
        shape,
        *rounded(mean, std),
        _floats(np.min([part.least.min(0) for part in parts], 0)),
        _floats(np.max([part.greatest.max(0) for part in parts], 0)),
        image_sizes(sizes) if len(shape) == 3 else None,
        columns,
    )


def _floats(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values.tolist())
