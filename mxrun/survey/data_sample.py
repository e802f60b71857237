"""Some records of a config's data, as the network reads them, or as their files hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.near_names import listed
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.records import (
    column_names,
    location_of_record,
    number_of_record,
    scale_of,
    stored_record,
)
from mxrun.io.loading.batch import SAMPLE_WEIGHT, is_label
from mxrun.io.loading.iterator import DataIterator
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.order import BatchOrder
from mxrun.io.loading.staging import Staging, staging_specs
from mxrun.io.transforms.pipeline import values
from mxrun.options.datasets import PeekOptions
from mxrun.preparation.record_order import shuffle_of
from mxrun.survey.data_sections import TRAIN, DataSections

# Values that may be missing from 0..1 because of rounding.
_ROUNDING = 1e-3
# Numbers of a box, and boxes that a label names.
_BOX, _MAX_NAMED_BOXES = 5, 4


@dataclass(frozen=True, eq=False)
class SampledRecord:
    """Record with the rows that the network reads, by input.

    number: in the complete split. file: empty if it is not known. label: its class, its numbers as
    text, or empty. texts: of inputs that are ids of tokens. boxes: float32 [boxes, 5 or more] of a
    label of boxes: class, left, top, right and bottom in 0..1 of the image's sides.
    """

    number: int
    file: str
    label: str
    rows: Mapping[str, NDArray[Any]]
    boxes: NDArray[np.float32]
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DataSample:
    """Records of a section in the order of an epoch.

    images: inputs whose rows are images, with the pictures that show them, uint8 [height, width] or
    [height, width, 3]; in the order of `records`. columns: names of a table's columns. notes:
    remarks on how values are shown.
    """

    name: str
    section: str
    epoch: int
    seed: int
    records: tuple[SampledRecord, ...]
    images: Mapping[str, tuple[NDArray[np.uint8], ...]]
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the sample as JSON; of images only their shape, least and greatest value."""
        return {
            "name": self.name,
            "section": self.section,
            "epoch": self.epoch,
            "seed": self.seed,
            "columns": list(self.columns),
            "records": [
                {
                    "record": record.number,
                    "file": record.file or None,
                    "label": record.label or None,
                    **({"texts": dict(record.texts)} if record.texts else {}),
                    "inputs": {
                        name: _figures(row, name in self.images)
                        for name, row in record.rows.items()
                    },
                }
                for record in self.records
            ],
            "notes": list(self.notes),
        }


def sample_records(sections: DataSections, options: PeekOptions) -> DataSample:
    """Return records in the order in which an epoch of training or evaluation reads them.

    Raises UserError for a section that the config lacks, and for records that cannot be read.
    """
    dataset = sections.section(options.split)
    run = sections.built.options
    seed = run.seed if options.seed is None else options.seed
    shuffle = shuffle_of(getattr(run.data, options.split), dataset)
    count = min(options.count, len(dataset))
    if options.raw:
        order = BatchOrder(len(dataset), count, shuffle, seed)
        indices = order.indices(options.epoch)[:count].tolist()
        rows = [_stored_rows(dataset, index) for index in indices]
    else:
        built = sections.built
        size = built.batch_size if options.split == TRAIN else built.model.batch_size
        staging = Staging([_arrays(dataset, size)])
        workers = run.data.loader_threads
        iterator = open_iterator(
            dataset, size, shuffle=shuffle, seed=seed, workers=workers, staging=staging
        )
        with closing(iterator):
            iterator.reset(options.epoch)
            indices, rows = _read(iterator, dataset, size, count)
    records = tuple(_record(dataset, index, row) for index, row in zip(indices, rows, strict=True))
    images, notes = _images(dataset, rows, options.raw)
    names = column_names(dataset)
    epoch = options.epoch
    return DataSample(
        sections.name, options.split, epoch, seed, records, images, names, tuple(notes)
    )


def _images(
    dataset: Dataset, rows: Sequence[Mapping[str, NDArray[Any]]], raw: bool
) -> tuple[dict[str, tuple[NDArray[np.uint8], ...]], list[str]]:
    """Return the pictures of each input that has images, and remarks on them."""
    notes: list[str] = []
    images = {}
    for name in dataset.inputs:
        if not is_label(name) and _are_images(rows, name):
            shown = [row[name] if raw else _without_norm(dataset, name, row[name]) for row in rows]
            images[name] = _pictures(shown, name, notes)
    return images, notes


def _read(
    iterator: DataIterator, dataset: Dataset, size: int, count: int
) -> tuple[list[int], list[dict[str, NDArray[Any]]]]:
    """Return the first `count` records of batches of `size`, and their rows."""
    slots = _arrays(dataset, size) | {SAMPLE_WEIGHT: np.empty(size, np.float32)}
    indices: list[int] = []
    rows: list[dict[str, NDArray[Any]]] = []
    while len(rows) < count and (batch := iterator.next_into(slots)) is not None:
        indices += batch.indices[: batch.valid].tolist()
        for row in range(batch.valid):
            rows.append({name: slots[name][row].copy() for name in dataset.inputs})
    return indices[:count], rows[:count]


def _arrays(dataset: Dataset, count: int) -> dict[str, NDArray[Any]]:
    specs = staging_specs(dataset.inputs, count)
    return {name: np.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}


def _stored_rows(dataset: Dataset, index: int) -> dict[str, NDArray[Any]]:
    """Return a record's inputs without transforms, scaled."""
    rows = {}
    for name in dataset.inputs:
        record, scale = stored_record(dataset, name, index), scale_of(dataset, name)
        rows[name] = record if scale is None else values(record, scale)
    return rows


def _record(dataset: Dataset, index: int, rows: Mapping[str, NDArray[Any]]) -> SampledRecord:
    location = location_of_record(dataset, index)
    labels = [row for name, row in rows.items() if is_label(name)]
    tokens = dataset.token_fields
    is_text = any(is_label(name) for name in tokens)
    label = _label(dataset, labels[0]) if labels and not is_text else ""
    file = "" if location is None else str(location)
    boxes = [_boxes(row) for row in labels if row.ndim == 2 and row.shape[1] >= _BOX]
    found = boxes[0] if boxes else np.empty((0, _BOX), np.float32)
    texts = {name: dataset.text_of(rows[name]) for name in rows if name in tokens}
    return SampledRecord(number_of_record(dataset, index), file, label, rows, found, texts)


def _boxes(label: NDArray[Any]) -> NDArray[np.float32]:
    """Return the boxes of a label, without the rows of -1 that fill it up."""
    return label[label[:, 0] >= 0].astype(np.float32)


def _label(dataset: Dataset, label: NDArray[Any]) -> str:
    """Return a label as text: a class, probabilities of classes, or numbers."""
    classes = dataset.classes
    if label.ndim == 0:
        number = label.item()
        named = isinstance(number, int) and 0 <= number < len(classes)
        return classes[number] if named else f"{number:.6g}"
    if label.shape == (len(classes),):
        likely = np.argsort(-label, kind="stable")[: int(np.count_nonzero(label))]
        return ", ".join(f"{classes[at]} {label[at]:.2g}" for at in likely[:3])
    if label.ndim == 2 and label.shape[1] >= _BOX:
        numbers = _boxes(label)[:, 0].astype(int).tolist()
        names = [classes[at] if at < len(classes) else str(at) for at in numbers]
        return listed(names, _MAX_NAMED_BOXES)
    return ", ".join(f"{number:.4g}" for number in label.ravel()[:5].tolist())


def _are_images(rows: Sequence[Mapping[str, NDArray[Any]]], name: str) -> bool:
    return all(row[name].ndim == 3 and row[name].shape[0] in (1, 3) for row in rows)


def _without_norm(dataset: Dataset, name: str, row: NDArray[Any]) -> NDArray[Any]:
    """Return an image's values before `normalize`, so that it looks as it did."""
    for step in reversed([*dataset.pipeline.of(name)]):
        if step.transform.name == "normalize":
            mean, std = (
                np.array(getattr(step.transform, key), np.float32).reshape(-1, 1, 1)
                for key in ("mean", "std")
            )
            row = row * std + mean
    return row


def _pictures(
    rows: Sequence[NDArray[Any]], name: str, notes: list[str]
) -> tuple[NDArray[np.uint8], ...]:
    """Return images of values as bytes; values outside of 0..1 are stretched to that range."""
    least = min(float(row.min()) for row in rows)
    greatest = max(float(row.max()) for row in rows)
    offset, factor = 0.0, 1.0
    if least < -_ROUNDING or greatest > 1 + _ROUNDING:
        offset, factor = least, 1 / (greatest - least)
        notes.append(f"{name}: black is {least:.4g} and white is {greatest:.4g}")
    pictures = []
    for row in rows:
        pixels = np.clip((row.astype(np.float32) - offset) * factor, 0, 1) * 255
        picture = np.rint(pixels).astype(np.uint8)
        pictures.append(picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0))
    return tuple(pictures)


def _figures(row: NDArray[Any], is_image: bool) -> Any:
    """Return a row as JSON: its numbers, or of an image its shape and range."""
    if not is_image:
        return row.tolist()
    return {"shape": list(row.shape), "min": float(row.min()), "max": float(row.max())}
