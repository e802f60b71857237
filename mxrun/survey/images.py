"""Survey of images: of a folder, as the data set `image_folder` reads it, or of files of many."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.base.tensor import TensorSpec
from mxrun.datasets.image_folder import ImageFolderOptions, find_split, read
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import LazyField
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.dataset.split import ALL, UnknownSplit
from mxrun.io.files import unreadable_error, user_path, visible_below
from mxrun.io.images.decode import decoded
from mxrun.io.images.kinds import SUFFIXES
from mxrun.runtime import random
from mxrun.survey.survey import (
    DataSurvey,
    ImageSizes,
    SurveyedPart,
    byte_moments,
    check_class_counts,
    class_counts,
    class_warnings,
    image_sizes,
    rounded,
    split_parts,
)

# Images that are decoded for the survey, until they have this many pixels together: some seconds.
_MAX_IMAGES = 400
_MAX_PIXELS = 1 << 28
_MAX_NAMES = 5


def survey_images(source: str) -> DataSurvey:
    """Look at a folder with a folder for each class, or at one with parts that have these.

    Raises UserError if training could not read it, and for fewer than two classes.
    """
    folder = user_path(source)
    options = ImageFolderOptions(path=source)
    of = find_split(options, "", "train")
    _check_layout(folder if of == ALL else folder / of)
    complete = read(options, of, {})
    if problems := complete.check_empty("train", {}):
        raise UserError(problems)
    hint = "give the folder that has a folder for each class"
    check_class_counts(class_counts(complete), str(folder), hint)
    parts = _parts(options, of, complete)
    train, evaluation, measured = parts.train, parts.evaluation, parts.measured
    damaged = _unusable_files(complete.lazy["data"])
    sample = _sample(complete.lazy["data"], measured.lazy["data"].rows, damaged, str(folder))
    looked_at = sample.sizes.images
    if parts.apart is not None:
        damaged |= _unusable_files(parts.apart.lazy["data"])
        looked_at += sum(1 for _ in _decoded(parts.apart.lazy["data"], damaged))
    warnings = (*class_warnings(train.counts), *complete.notes, *_damage_warnings(damaged))
    named = ("image_folder", {"path": source})
    return _surveyed(named, (train, evaluation), sample, looked_at, warnings)


def survey_stored_images(source: str, dataset: str, options: Mapping[str, object]) -> DataSurvey:
    """Look at images in files of many, such as RecordIO: 80 % of each class are for training.

    dataset, options: the data set that reads them, and its options beside the path. Raises
    UserError if training could not read them, and unless they have classes, at least two.
    """
    options = {"path": source, **options}
    known = DATASETS.get(dataset)
    typed = known.options.model_validate(options)
    complete = known.open(typed, ALL, {})
    images = complete.lazy.get("data")
    if images is None or complete.class_field is None:
        problem = f"{source}: its records are not images with a class each"
        hint = "write the config by hand: `mxrun docs data` explains labels and columns"
        raise UserError(Diagnostic(problem, None, "an image and a class in each record", hint=hint))
    if images.shape[0] == 1:
        complete = known.open(typed, ALL, {"data": TensorSpec((1, 1, 1))})
        images = complete.lazy["data"]
    check_class_counts(class_counts(complete), source, "train needs records of several classes")
    train, evaluation, measured = split_parts(complete, ALL, source)
    damaged: dict[str, str] = {}
    sample = _sample(images, measured.lazy["data"].rows, damaged, source)
    warnings = (*class_warnings(train.counts), *_damage_warnings(damaged))
    parts = (train, evaluation)
    return _surveyed((dataset, options), parts, sample, sample.sizes.images, warnings)


def _surveyed(
    named: tuple[str, Mapping[str, object]],
    parts: tuple[SurveyedPart, SurveyedPart],
    sample: _ImageSample,
    looked_at: int,
    warnings: tuple[str, ...],
) -> DataSurvey:
    """Return the survey of images; named: the data set and its options."""
    train, evaluation = parts
    total = train.records + evaluation.records
    looked = "all" if looked_at == total else f"{looked_at:,} of them"
    facts = (
        f"{total:,} images in {len(train.counts)} classes",
        f"{sample.sizes}, {'grey' if sample.is_grey else 'colour'} ({looked} looked at)",
    )
    height, width = sample.sizes.median
    same = sample.sizes.is_one
    return DataSurvey(
        *named,
        train,
        evaluation,
        (1 if sample.is_grey else 3, height if same else None, width if same else None),
        sample.mean,
        sample.std,
        sample.sizes,
        facts=facts,
        warnings=warnings,
    )


@dataclass(frozen=True)
class _Parts:
    """Parts of training and evaluation, and the records of training.

    apart: the records of evaluation if they have a folder of their own.
    """

    train: SurveyedPart
    evaluation: SurveyedPart
    measured: Dataset
    apart: Dataset | None = None


def _parts(options: ImageFolderOptions, of: str, complete: Dataset) -> _Parts:
    try:
        other = find_split(options, "", "eval")
    except UnknownSplit:
        other = of
    if other == of:
        return _Parts(*split_parts(complete, of, options.path))
    evaluation = read(options, other, {}).with_classes(complete.classes)
    return _Parts(
        SurveyedPart(len(complete), of, counts=class_counts(complete)),
        SurveyedPart(len(evaluation), other, counts=class_counts(evaluation)),
        complete,
        evaluation,
    )


@dataclass(frozen=True)
class _ImageSample:
    """Sizes and statistics of images that were decoded."""

    sizes: ImageSizes
    is_grey: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]


def _sample(
    images: LazyField, rows: NDArray[np.int64] | None, damaged: dict[str, str], folder: str
) -> _ImageSample:
    """Measure some images of a column.

    rows: the images of training, whose values are measured; None for all. damaged: see `_decoded`.
    """
    trained = set(range(images.count) if rows is None else rows.tolist())
    sizes, means, squares = [], [], []
    is_grey = True
    for index, image in _decoded(images, damaged):
        is_grey = is_grey and _is_grey(image)
        sizes.append(image.shape[1:])
        if index in trained:
            own_mean, own_square = byte_moments(image.reshape(len(image), -1))
            means.append(own_mean / 255)
            squares.append(own_square / 255**2)
    if not means:
        expected, got = "images that can be decoded", "; ".join([*damaged.values()][:_MAX_NAMES])
        raise UserError(Diagnostic(f"{folder}: no image can be read", None, expected, got))
    mean = np.mean(means, 0)
    std = np.sqrt(np.maximum(np.mean(squares, 0) - mean**2, 0))
    channels = slice(0, 1 if is_grey else 3)
    return _ImageSample(
        image_sizes(np.array(sizes)), is_grey, *rounded(mean[channels], std[channels])
    )


def _decoded(images: LazyField, damaged: dict[str, str]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield some images of a column with their indices, the same ones at each call.

    damaged: the problems of images by their places, which are not opened; those of images that
    cannot be decoded are added.
    """
    pixels = 0
    for index in random.permutation(0, "init", images.count)[:_MAX_IMAGES].tolist():
        if pixels > _MAX_PIXELS:
            return
        place = _place(images, index)
        if place in damaged:
            continue
        try:
            image = decoded(images.record(index), images.shape)
        except UserError as error:
            damaged[place] = error.diagnostics[0].problem
            continue
        pixels += image.shape[1] * image.shape[2]
        yield index, image


def _place(images: LazyField, index: int) -> str:
    location = images.source(index)
    return "" if location is None else str(location)


def _is_grey(image: NDArray[np.uint8]) -> bool:
    return bool((image == image[0]).all())


def _unusable_files(images: LazyField) -> dict[str, str]:
    """Return the problem of each file that no image can be read from, which a look at it tells."""
    files = (_place(images, index) for index in range(images.count))
    return {file: problem for file in files if (problem := _why_unusable(file))}


def _why_unusable(file: str) -> str:
    """Return why a file holds no image; empty if its content must be decoded to know."""
    try:
        status = os.stat(file)
    except OSError as error:
        return str(unreadable_error(file, error))
    if not stat.S_ISREG(status.st_mode):
        # Reading a pipe may never end.
        return f"{file}: not a regular file"
    return "" if status.st_size else f"{file}: the file is empty"


def _damage_warnings(damaged: dict[str, str]) -> tuple[str, ...]:
    if not damaged:
        return ()
    names = listed(sorted(damaged), _MAX_NAMES)
    are = f"{len(damaged)} images are" if len(damaged) > 1 else "1 image is"
    return (f"{are} damaged and will stop training, so remove or replace: {names}",)


def _check_layout(folder: Path) -> None:
    """Raise UserError for a folder without images in subfolders, saying what it holds instead."""
    beside: list[str] = []
    kinds: Counter[str] = Counter()
    for parent, _, shown in visible_below(folder):
        if Path(parent) == folder:
            beside = [name for name in shown if name.lower().endswith(SUFFIXES)]
        elif any(name.lower().endswith(SUFFIXES) for name in shown):
            return
        kinds.update(Path(name).suffix.lower() or "no suffix" for name in shown)
    expected = "a folder for each class with its images, or train and val with these folders"
    if beside:
        problem = f"{folder}: its images are not in folders of classes"
        hint = f"move them, such as {beside[0]}, into {folder}/CLASS; the folder is the label"
        raise UserError(Diagnostic(problem, None, expected, _listed(kinds), hint=hint))
    problem = f"{folder}: the folder {'holds no images' if kinds else 'is empty'}"
    hint = f"images end in {', '.join(SUFFIXES)}"
    if any(kind in kinds for kind in (".csv", ".tsv", ".npz")):
        hint = "for a table or an archive, give the file itself"
    raise UserError(Diagnostic(problem, None, expected, _listed(kinds), hint=hint))


def _listed(kinds: Counter[str]) -> str:
    ordered: Sequence[tuple[str, int]] = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    texts = [f"{count} {kind}" for kind, count in ordered]
    return f"files: {listed(texts, _MAX_NAMES)}" if texts else ""
