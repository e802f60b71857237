"""Survey of arrays: the bundled digits, files of MNIST and CIFAR, NumPy archives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import folded, listed
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.fetch.files import recorded_dataset
from mxrun.io.files import user_path
from mxrun.io.formats.npy import npz_shapes, read_npz
from mxrun.io.images.decode import takes_images
from mxrun.survey.survey import (
    DataSurvey,
    SurveyedPart,
    check_class_counts,
    class_counts,
    class_warnings,
    rounded,
    split_parts,
    statistics,
)

# Names of arrays in archives, in the form that `folded` returns; the most usual first.
_DATA = (
    "data",
    "x",
    "images",
    "features",
    "inputs",
    "xtrain",
    "trainimages",
    "trainx",
    "traindata",
)
_LABELS = (
    "label",
    "labels",
    "y",
    "target",
    "targets",
    "classes",
    "ytrain",
    "trainlabels",
    "trainy",
)
_TEST_DATA = ("xtest", "testimages", "testx", "testdata", "xval", "valimages", "valx", "valdata")
_TEST_LABELS = ("ytest", "testlabels", "testy", "yval", "vallabels", "valy")
_MAX_CLASSES, _MAX_FLOAT_CLASSES = 1000, 20
# Records of one axis with more numbers have one mean for all of them.
_MAX_COLUMNS = 100
_CHANNELS = (1, 3)
# White of images of one and of two bytes.
_WHITES = (255, 65_535)

Arrays = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


def known_files(folder: Path) -> tuple[str, tuple[str, ...]] | None:
    """Return the data set whose files are in a folder, and the parts that are there."""
    same = DATASETS.attribute("same_files")
    for dataset, files in DATASETS.attribute("files").items():
        parts = [
            part
            for part, name in files.items()
            if (folder / name).is_file() or (folder / f"{name}.gz").is_file()
        ]
        if parts:
            recorded = recorded_dataset(folder)
            named = recorded if same.get(recorded) == dataset else dataset
            return named, tuple(parts)
    return None


def survey_files(source: str, dataset: str, parts: tuple[str, ...]) -> DataSurvey:
    """Look at the parts of a data set with its own file format. Raises UserError as it does."""
    options: dict[str, object] = {"path": source} if source else {}
    train = _read(dataset, options, parts[0], {})
    if len(parts) == 1:
        facts = f"only the part {parts[0]} is there: evaluation takes a share of it"
        first, second, measured = split_parts(train, parts[0], source)
        return _survey(dataset, options, (first, second), measured, facts)
    evaluation = _read(dataset, options, parts[1], {})
    both = (
        SurveyedPart(len(train), parts[0], counts=class_counts(train)),
        SurveyedPart(len(evaluation), parts[1], counts=class_counts(evaluation)),
    )
    return _survey(dataset, options, both, train, f"parts {parts[0]} and {parts[1]}")


def survey_archive(source: str, label: str | None = None) -> DataSurvey:
    """Look at the arrays of an .npz file; label: name of the array of labels.

    Raises UserError unless it has an array of data and one of labels with as many records. Arrays
    that cannot be read are left out, and are named in this error.
    """
    path = user_path(source)
    arrays, others = npz_shapes(path, words=True)
    try:
        names = _training_arrays(arrays, path, label)
    except UserError as error:
        raise UserError([*error.diagnostics, *others]) from error
    survey = _survey_arrays(source, path, arrays, names)
    left_out = [f"{each.problem} ({each.got})" for each in others]
    test = survey.evaluation.options.get("arrays", {})
    assert isinstance(test, Mapping)
    free = [each for each in arrays if each not in (*names.values(), *test.values())]
    if free:
        why = f"the network has one input, which reads {names['data']}"
        left_out.append(f"{listed(free)}: {why}; `arrays: {{data: NAME}}` reads another array")
    return replace(survey, left_out=tuple(left_out))


def _survey_arrays(source: str, path: Path, arrays: Arrays, names: Mapping[str, str]) -> DataSurvey:
    spec = _data_spec(arrays[names["data"]][0], f"{path}: {names['data']}.npy")
    options: dict[str, object] = {"path": source} | _arrays_option(names)
    _check_records(arrays, names, path)
    shape, label_dtype = arrays[names["label"]]
    label_shape, is_word = shape[1:], label_dtype.kind in "SU"
    is_class = label_shape == () and (is_word or _holds_classes(path, names["label"]))
    inputs = {"data": spec, "label": TensorSpec(label_shape, "int32" if is_class else "float32")}
    complete = _read("npz", options, "all", inputs)
    white = _white(complete.fields["data"])
    if white is not None:
        options["images"] = {"data": white}
        complete = _read("npz", options, "all", inputs)
    where = f"{path}: {names['label']}.npy"
    if is_class:
        check_class_counts(class_counts(complete), where, "name another array: --label NAME")
    elif not np.ptp(complete.fields["label"].records):
        raise UserError(Diagnostic(f"{where}: all labels are equal", None, "at least 2 values"))
    facts = f"arrays {names['data']} and {names['label']}"
    test = _test_arrays(arrays, names)
    if test is None:
        first, second, measured = split_parts(complete, "", str(path))
        return _survey("npz", options, (first, second), measured, facts)
    evaluation = _read("npz", {**options, "arrays": test}, "all", inputs)
    if is_class and evaluation.fields["label"].records.min() < 0:
        problem = f"{path}: {test['label']}.npy: a class is negative"
        raise UserError(Diagnostic(problem, None, "numbers of classes, from 0"))
    # The numbers of one part may go further than those of the other.
    class_names = tuple(class_counts(complete) | class_counts(evaluation))
    both = (
        SurveyedPart(len(complete), counts=class_counts(complete, class_names)),
        SurveyedPart(
            len(evaluation), None, {"arrays": test}, class_counts(evaluation, class_names)
        ),
    )
    facts += f" for training, {test['data']} and {test['label']} for evaluation"
    return _survey("npz", options, both, complete, facts)


def _white(column: Field) -> float | None:
    """Return the pixel value of white if records could be images, else None.

    Whole numbers up to 255, or up to 65,535, and fractions up to 1 are taken for pixels.
    """
    if not takes_images(column.spec):
        return None
    least, greatest = float(column.records.min()), float(column.records.max())
    if least < 0 or greatest > _WHITES[-1]:
        return None
    if greatest <= 1:
        return 1
    is_whole = bool((column.records == np.floor(column.records)).all())
    return next(white for white in _WHITES if greatest <= white) if is_whole else None


def _survey(
    dataset: str,
    options: Mapping[str, object],
    parts: tuple[SurveyedPart, SurveyedPart],
    measured: Dataset,
    fact: str,
) -> DataSurvey:
    """Return the survey; measured: the records of training."""
    train, evaluation = parts
    column = measured.fields["data"]
    shape = column.spec.shape
    records = column.records
    if len(shape) not in (1, 3) or (len(shape) == 1 and shape[0] > _MAX_COLUMNS):
        # Channels or columns of such records are not known: one mean for all values.
        records = records.reshape(len(records), 1, -1)
    mean, std = statistics(records, column.scale or 1.0)
    target = None
    if not train.counts:
        labels = measured.fields["label"].records.astype(np.float64).reshape(-1, 1)
        means, stds = rounded(labels.mean(0), labels.std(0))
        target = means[0], stds[0]
    what = "x".join(map(str, shape))
    total = train.records + evaluation.records
    return DataSurvey(
        dataset,
        options,
        train,
        evaluation,
        shape,
        mean,
        std,
        target=target,
        label_shape=measured.fields["label"].spec.shape,
        comments={"images": "white is this pixel; leave it out if data are no images"},
        facts=(f"{total:,} records of {what}", fact),
        warnings=class_warnings(train.counts),
    )


def _read(
    dataset: str, options: Mapping[str, object], part: str, inputs: Mapping[str, TensorSpec]
) -> Dataset:
    format = DATASETS.get(dataset)
    return format.open(format.options.model_validate(options), part, inputs)


def _training_arrays(arrays: Arrays, path: Path, label: str | None) -> dict[str, str]:
    """Return the names of the arrays of data and labels; raises UserError if there are none."""
    labels = [name for name in arrays if name == label] if label else _named(arrays, _LABELS)
    numbers = {name: array for name, array in arrays.items() if array[1].kind not in "SU"}
    data = [name for name in _named(numbers, _DATA) if name not in labels]
    if not data and labels:
        count = arrays[labels[0]][0][:1]
        same = [name for name, (shape, _) in numbers.items() if shape[:1] == count]
        data = [name for name in same if name not in labels]
    if not data or not labels:
        missing = f"no array is named {label!r}" if label else "it is not clear which array is what"
        has = [f"{name} {list(shape)}" for name, (shape, _) in arrays.items()]
        expected = "an array `data` and an array `label`, with as many records"
        hint = "name the array of labels: --label NAME"
        problem = f"{path}: {missing}"
        raise UserError(Diagnostic(problem, None, expected, listed(has) or "no arrays", hint=hint))
    return {"data": data[0], "label": labels[0]}


def _test_arrays(arrays: Arrays, names: Mapping[str, str]) -> dict[str, str] | None:
    """Return the names of the arrays for evaluation; None if there are none."""
    data, labels = _named(arrays, _TEST_DATA), _named(arrays, _TEST_LABELS)
    if not data or not labels:
        return None
    found = {"data": data[0], "label": labels[0]}
    alike = all(arrays[found[key]][0][1:] == arrays[names[key]][0][1:] for key in names)
    return found if alike else None


def _named(arrays: Arrays, usual: tuple[str, ...]) -> list[str]:
    """Return the arrays with a usual name, the most usual first."""
    found = [name for name in arrays if folded(name) in usual]
    return sorted(found, key=lambda name: usual.index(folded(name)))


def _data_spec(shape: tuple[int, ...], where: str) -> TensorSpec:
    """Return the network's input for records of an array. Raises UserError for channels last."""
    record: Shape = shape[1:]
    if len(shape) < 2:
        got = f"an array of shape {list(shape)}"
        raise UserError(Diagnostic(f"{where}: no records", None, "[records, ...]", got))
    if len(record) == 3 and record[0] not in _CHANNELS and record[2] in _CHANNELS:
        problem = f"{where}: the channels of its images are the last axis"
        hint = "save numpy.moveaxis(images, -1, 1)"
        expected = "[records, channels, height, width]"
        raise UserError(Diagnostic(problem, None, expected, str(list(shape)), hint=hint))
    return TensorSpec((1, *record) if len(record) == 2 else record, "float32")


def _check_records(arrays: Arrays, names: Mapping[str, str], path: Path) -> None:
    """Raise UserError for arrays without records or elements."""
    for name in names.values():
        shape = arrays[name][0]
        if 0 in shape:
            problem = f"{path}: {name}.npy: the array is empty"
            raise UserError(Diagnostic(problem, None, "at least one record", str(list(shape))))


def _arrays_option(names: Mapping[str, str]) -> dict[str, object]:
    """Return the option `arrays`, unless the arrays have the names of the network's inputs."""
    others = {key: name for key, name in names.items() if key != name}
    return {"arrays": others} if others else {}


def _holds_classes(path: Path, name: str) -> bool:
    """Return whether labels are class numbers: whole, and few of them if their dtype is not."""
    arrays = read_npz(path, (name,))
    labels = arrays[name]
    whole = bool((labels == np.floor(labels)).all())
    most = _MAX_CLASSES if labels.dtype.kind in "iu" else _MAX_FLOAT_CLASSES
    return whole and bool(labels.min() >= 0) and bool(labels.max() < most)
