"""Survey of data for `init`: records, classes, shapes, and the statistics of their values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.keywords import REST
from mxrun.base.near_names import listed
from mxrun.base.tensor import Shape
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.split import ALL, Split
from mxrun.io.transforms.base import RecordShape

_SHARE = 0.8
# Classes that are numbers below this are listed without gaps.
_MAX_NUMBERS = 10_000
# Bytes of a channel that are summed at once.
_BLOCK = 1 << 16
# Records whose values give mean and deviation.
_MAX_MEASURED = 2000
# The smallest class has less than this share of the records of the largest.
_IMBALANCE = 1 / 3
# Classes with fewer records of training are named in a warning.
_MIN_RECORDS = 10


@dataclass(frozen=True)
class SurveyedPart:
    """Part of the records that a data section reads.

    split: its value in a config; None for the section's default. options: keys of the section
    beside those of training. counts: records by class, empty for labels that are no classes.
    """

    records: int
    split: object = None
    options: Mapping[str, object] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageSizes:
    """Heights and widths of the images that were looked at, and how many these are."""

    least: tuple[int, int]
    median: tuple[int, int]
    greatest: tuple[int, int]
    images: int

    @property
    def is_one(self) -> bool:
        """Whether all images have the same size."""
        return self.least == self.greatest

    def __str__(self) -> str:
        if self.is_one:
            return f"{_size(self.median)} pixels (height x width)"
        return (
            f"{_size(self.least)} to {_size(self.greatest)} pixels (height x width), "
            f"median {_size(self.median)}"
        )


@dataclass(frozen=True)
class DataSurvey:
    """Records for training and evaluation, as the data set `dataset` reads them.

    options: the data set's options for a config, with `comments` by key. shape: that of a record,
    None where records differ. mean, std: of the training part's values, by channel or column, or
    one for all; empty if they need no change. target: mean and deviation of labels that are
    numbers to predict, else None; label_shape: the shape of a label. vocabulary: the number of
    different tokens of texts. naive_shape, future_shape: of a series' naive forecast, and of what
    is known of its future. facts: what was seen, one sentence each. warnings: what stands in the
    way of good results. left_out: data that are not used, and why; doubts: what was decided and may
    be doubted: each with the key that changes it.
    """

    dataset: str
    options: Mapping[str, object]
    train: SurveyedPart
    evaluation: SurveyedPart
    shape: RecordShape
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    sizes: ImageSizes | None = None
    target: tuple[float, float] | None = None
    label_shape: Shape = ()
    vocabulary: int = 0
    naive_shape: Shape = ()
    future_shape: Shape = ()
    comments: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their numbers."""
        return tuple(self.train.counts)

    @property
    def is_imbalanced(self) -> bool:
        """Whether some class has far fewer records of training than another."""
        counts = self.train.counts.values()
        return bool(counts) and min(counts) < _IMBALANCE * max(counts)


def image_sizes(sizes: NDArray[np.int64]) -> ImageSizes:
    """Return the least, median and greatest of heights and widths, [images, 2]."""
    least, median, greatest = (
        (int(height), int(width))
        for height, width in (sizes.min(0), np.median(sizes, 0), sizes.max(0))
    )
    return ImageSizes(least, median, greatest, len(sizes))


def split_parts(
    complete: Dataset, of: str, where: str
) -> tuple[SurveyedPart, SurveyedPart, Dataset]:
    """Split records without a part for evaluation: 80 % of each class for training, and the rest.

    of: the split they are. Returns both parts, and the records of the first. Raises UserError if
    there are too few records; where: their file or folder.
    """
    labels = complete.class_numbers
    names = tuple(class_counts(complete))
    split = Split(of, share=_SHARE, stratify=labels is not None)
    if split.check(len(complete), labels, {}) or replace(split, rest=True).check(
        len(complete), labels, {}
    ):
        problem = f"{where}: too few records to keep some for evaluation"
        expected = "at least 2 records, and of some class at least 2"
        raise UserError(Diagnostic(problem, None, expected, str(len(complete))))
    train, rest = complete.part(split), complete.part(replace(split, rest=True))
    written: dict[str, object] = {} if of in ("", ALL) else {"of": of}
    written |= {"share": _SHARE} | ({"stratify": True} if labels is not None else {})
    parts = [
        SurveyedPart(len(part), form, counts=class_counts(part, names))
        for part, form in ((train, written | {"seed": split.seed}), (rest, REST))
    ]
    return parts[0], parts[1], train


def class_counts(dataset: Dataset, names: Sequence[str] = ()) -> dict[str, int]:
    """Return the records of each class by name; empty if labels are no classes.

    names: the names of the classes, by default the data set's; the number of a class is its name if
    it has no other. Numbers without records between others are listed, unless they are many.
    """
    labels = dataset.class_numbers
    if labels is None:
        return {}
    present, times = np.unique(labels, return_counts=True)
    counts = dict(zip(present.tolist(), times.tolist(), strict=True))
    if dataset.classes:
        numbers: Sequence[int] = range(len(dataset.classes))
    elif names:
        numbers = list(map(int, names))
    else:
        is_dense = present[0] >= 0 and present[-1] < _MAX_NUMBERS
        numbers = range(int(present[-1]) + 1) if is_dense else present.tolist()
    known = names or dataset.classes or list(map(str, numbers))
    return {name: counts.get(number, 0) for name, number in zip(known, numbers, strict=True)}


def check_class_counts(counts: Mapping[str, int], where: str, hint: str) -> None:
    """Raise UserError unless there are two classes with records."""
    present = [name for name, count in counts.items() if count]
    if len(present) < 2:
        problem = f"{where}: all records have the same class, {', '.join(present)}"
        raise UserError(Diagnostic(problem, None, "records of at least 2 classes", hint=hint))


def class_warnings(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return warnings about classes with few records of training."""
    few = [f"{name} {count}" for name, count in counts.items() if count < _MIN_RECORDS]
    if not few:
        return ()
    return (f"few training records of some classes: {listed(few)}",)


def statistics(
    values: NDArray[Any], scale: float = 1.0
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of `values` [records, channels, ...] * scale, by channel.

    At most 2,000 records are measured, spread evenly. Constant channels get a deviation of 1.
    """
    rows = np.linspace(0, len(values) - 1, min(len(values), _MAX_MEASURED)).astype(np.int64)
    measured = values[np.unique(rows)].astype(np.float64) * scale
    axes = (0, *range(2, measured.ndim))
    return rounded(measured.mean(axes), measured.std(axes))


def byte_moments(
    channels: NDArray[np.uint8],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and mean square of each channel of bytes [channels, values].

    Sums are exact, and of blocks: int64 numbers of a large image would take 1.5 GiB.
    """
    sums, squares = np.zeros((2, len(channels)), np.int64)
    for start in range(0, channels.shape[1], _BLOCK):
        wide = channels[:, start : start + _BLOCK].astype(np.int64)
        sums += wide.sum(1)
        squares += np.square(wide).sum(1)
    return sums / channels.shape[1], squares / channels.shape[1]


def rounded(
    means: NDArray[np.float64], deviations: NDArray[np.float64]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return means and deviations with as many digits as matter: 1/1000 of the deviation."""
    pairs = [_rounded(*pair) for pair in zip(means.tolist(), deviations.tolist(), strict=True)]
    return tuple(mean for mean, _ in pairs), tuple(std for _, std in pairs)


def _rounded(mean: float, std: float) -> tuple[float, float]:
    # Rounding errors of constant values are no deviation.
    if std <= 1e-6 * abs(mean) or std == 0:
        return float(f"{mean:.6g}"), 1.0
    digits = 3 - math.floor(math.log10(std))
    return round(mean, digits), float(f"{std:.4g}")


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
