"""Configs that `init` writes: choices that follow from a survey of the data, as commented YAML."""

from __future__ import annotations

import math
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import Shape
from mxrun.config.dump import flow
from mxrun.io.dataset.registry import TABLE
from mxrun.report.printable import printable
from mxrun.survey.network_draft import describe_network, network_lines, uses_batch_norm
from mxrun.survey.survey import DataSurvey

_WIDTH = 98
# Images of one size up to this side are taken as they are.
_MAX_KEPT_SIDE = 96
# The smallest side of images that are moved at random: smaller ones would lose much.
_MIN_SHIFTED = 16
_SIDES = (32, 48, 64, 96, 128)
# Largest side by number of training images: time grows with its square.
_SIDE_LIMITS = ((1_000, 64), (10_000, 96))
# Batch sizes by number of training records: few records need many small steps.
_IMAGE_BATCHES = ((500, 8), (2_000, 16), (5_000, 32), (50_000, 64))
_TABLE_BATCHES = ((500, 16), (5_000, 32), (50_000, 128))
_LARGEST_BATCH = {True: 128, False: 256}
# Steps that a training should have, and the epochs of which the number is chosen.
_STEPS = {True: 1500, False: 3000}
_EPOCHS = (5, 10, 15, 20, 30, 40, 60, 100)
_MAX_IMAGE_EPOCHS = 40
# Classes that a mirrored image may not belong to any more.
_SIDED = re.compile(r"(?i)(?:^|[^a-z])(?:left|right|[a-z])(?:$|[^a-z])|^[^a-z]*$")


@dataclass(frozen=True)
class ConfigDraft:
    """Config as text, and its choices, one sentence each."""

    text: str
    choices: tuple[str, ...]


def draft_config(survey: DataSurvey, name: str, file: Path) -> ConfigDraft:
    """Return a config of this name for the surveyed data; file: where it will be."""
    shape, transforms = _input(survey)
    is_image = uses_batch_norm(shape)
    batch = batch_size(survey.train.records, is_image)
    epochs = epochs_of(survey.train.records, batch, is_image)
    lines = [
        *heading_lines(survey, file),
        f"name: {flow(name)}  # of the run: runs/{name}",
        "seed: 0  # of initial parameters, shuffling and augmentation",
        *network_lines(survey, shape),
        *data_lines(survey, transforms, batch),
        *_train_lines(survey, batch, epochs, is_image),
    ]
    choices = (
        describe_network(survey, shape),
        f"{survey.train.records:,} records for training, {survey.evaluation.records:,} for "
        "evaluation",
        f"{epochs} epochs in batches of {batch}",
    )
    return ConfigDraft("".join(f"{line}\n" for line in lines), choices)


def heading_lines(survey: DataSurvey, file: Path) -> Iterator[str]:
    """Yield the comments with which a config begins: what was seen in the data."""
    source = survey.options.get("path", survey.dataset)
    yield from comment_lines(f"Written by `mxrun init` for {source}:", "", "")
    for fact in survey.facts:
        yield from comment_lines(fact, "", "- ")
    for warning in (*survey.warnings, *survey.doubts):
        yield from comment_lines(warning, "", "! ")
    yield from comment_lines(f"Train with: mxrun train {shlex.quote(str(file))}", "", "")


def _input(survey: DataSurvey) -> tuple[Shape, list[str]]:
    """Return the shape of a record in a batch, and the transforms that bring records to it."""
    shape = survey.shape
    normalize = list(_normalize_lines(survey))
    if len(shape) != 3:
        return _known(shape), normalize
    flip = ["      - flip  # left and right; remove it if that matters"] * _may_flip(survey)
    if survey.sizes is None or (survey.sizes.is_one and max(survey.sizes.median) <= _MAX_KEPT_SIDE):
        kept = _known(shape)
        shift = f"      - pad_crop: {{pad: {max(kept[1:]) // 8}}}  # moves the image a little"
        return kept, [*([shift] if min(kept[1:]) >= _MIN_SHIFTED else ()), *flip, *normalize]
    side = _side(min(survey.sizes.median), survey.train.records)
    return (shape[0] or 1, side, side), [
        f"      - resize: {{size: {side + side // 8}}}  # the shorter side; the ratio stays",
        f"      - random_crop: {{size: {side}}}  # in evaluation the centre",
        *flip,
        *normalize,
    ]


def _known(shape: Sequence[int | None]) -> Shape:
    return tuple(size or 1 for size in shape)


def _side(shorter: int, records: int) -> int:
    """Return the side of a square that images are brought to."""
    limit = next((side for count, side in _SIDE_LIMITS if records < count), _SIDES[-1])
    fitting = [side for side in _SIDES if side <= min(shorter, limit)]
    return fitting[-1] if fitting else max(8, shorter // 8 * 8)


def _may_flip(survey: DataSurvey) -> bool:
    """Return whether classes stay the same if left and right are swapped, as far as names tell."""
    return bool(survey.classes) and not any(map(_SIDED.search, survey.classes))


def batch_size(records: int, is_image: bool) -> int:
    """Return the records of a batch."""
    table = _IMAGE_BATCHES if is_image else _TABLE_BATCHES
    batch = next((size for count, size in table if records < count), _LARGEST_BATCH[is_image])
    while batch > max(records, 1):
        batch //= 2
    return batch


def epochs_of(records: int, batch: int, is_image: bool) -> int:
    """Return the passes over the records."""
    wanted = math.ceil(_STEPS[is_image] / max(records // batch, 1))
    limit = _MAX_IMAGE_EPOCHS if is_image else _EPOCHS[-1]
    return min(next((count for count in _EPOCHS if count >= wanted), _EPOCHS[-1]), limit)


def data_lines(survey: DataSurvey, transforms: Sequence[str], batch: int) -> Iterator[str]:
    """Yield the section `data`, which ends with `eval`."""
    yield "data:"
    yield f"  batch_size: {batch}  # records per step; larger ones are faster per record"
    yield "  train:"
    yield f"    dataset: {survey.dataset}"
    for key, value in survey.options.items():
        if isinstance(value, Mapping) and survey.dataset == TABLE:
            yield from _columns(key, value, survey.comments)
        else:
            yield from option_lines(key, value, survey.comments.get(key, ""))
    yield from _split(survey)
    yield "    shuffle: true  # a new order in every epoch"
    if transforms:
        yield "    transforms:  # of every record, in this order"
        yield from transforms
    yield "  eval:  # inherits the other keys of `train`, and its transforms without random ones"
    yield f"    dataset: {survey.dataset}"
    for key, value in survey.evaluation.options.items():
        yield from option_lines(key, value, "")
    if survey.evaluation.split is not None:
        yield f"    split: {flow(survey.evaluation.split)}"


def _split(survey: DataSurvey) -> Iterator[str]:
    split = survey.train.split
    if split is None:
        return
    if isinstance(split, Mapping):
        each = " of each class" if survey.classes else ""
        yield f"    # Evaluation has no data of its own: 80 %{each} trains, the rest evaluates."
    yield f"    split: {flow(split)}"


def option_lines(key: str, value: object, comment: str) -> Iterator[str]:
    """Yield a key of the training section, with a comment if that is not empty."""
    text = f"    {key}: {flow(value)}"
    if comment and ("\n" in comment or len(text) + len(comment) + 4 > _WIDTH):
        for line in comment.splitlines():
            yield from comment_lines(line, "    ", "")
        comment = ""
    if isinstance(value, list) and len(text) > _WIDTH:
        yield from _listed(f"    {key}:", value, "      ")
    else:
        yield f"{text}  # {comment}" if comment else text


def _columns(key: str, columns: Mapping[str, object], comments: Mapping[str, str]) -> Iterator[str]:
    """Yield the treatment of each column of a table, with comments."""
    yield from comment_lines(comments[key], "    ", "")
    yield f"    {key}:"
    texts = {name: f"      {flow(name)}: {flow(form)}" for name, form in columns.items()}
    width = min(max(map(len, texts.values())), _WIDTH // 2)
    for name, text in texts.items():
        room = _WIDTH - max(len(text), width) - 4
        comment = printable(comments[f"{key}.{name}"])
        yield f"{text:{width}}  # {textwrap.shorten(comment, max(room, 20), placeholder='...')}"


def _normalize_lines(survey: DataSurvey) -> Iterator[str]:
    """Yield the transform that brings values to mean 0 and deviation 1."""
    values = {"mean": list(survey.mean), "std": list(survey.std)}
    if not survey.mean or (set(survey.mean), set(survey.std)) == ({0.0}, {1.0}):
        return
    yield "      # To mean 0 and deviation 1, as measured on the training part."
    if len(survey.mean) == 1:
        values_of_all = {key: listed[0] for key, listed in values.items()}
        yield f"      - normalize: {flow(values_of_all)}"
        return
    text = f"      - normalize: {flow(values)}"
    if len(text) <= _WIDTH:
        yield text
        return
    yield "      - normalize:"
    for key, listed in values.items():
        yield from _listed(f"          {key}:", listed, "            ")


def _listed(head: str, values: Sequence[object], indent: str) -> Iterator[str]:
    """Yield a key with a list in flow style, over several lines if it is long."""
    line = f"{head} ["
    for number, value in enumerate(values):
        text = flow(value) + ("]" if number == len(values) - 1 else ", ")
        if len(line) + len(text.rstrip()) > _WIDTH:
            yield line.rstrip()
            line = indent
        line += text
    yield line


def _train_lines(survey: DataSurvey, batch: int, epochs: int, is_image: bool) -> Iterator[str]:
    steps = max(survey.train.records // batch, 1) * epochs
    warmup = min(100, steps // 10)
    yield "train:"
    yield f"  epochs: {epochs}  # passes over the data: more while evaluation still improves"
    yield "  optimizer: {adam: {lr: 0.003}}  # a lower lr if the loss jumps"
    yield f"  schedule: {{cosine: {{warmup_steps: {warmup}}}}}  # lr rises, then falls to 0"
    if is_image:
        yield "  initializer: {msra: {slope: 0, factor_type: in}}  # suits ReLU"
    yield from measured_lines(survey)


def measured_lines(survey: DataSurvey) -> Iterator[str]:
    """Yield the keys of `train` for metrics and checkpoints."""
    metrics, best = _metrics(survey)
    yield f"  metrics: {flow(metrics)}"
    if survey.is_imbalanced:
        yield "  # Some classes have few records: balanced_accuracy counts all classes alike, and"
        yield "  # `class_weights: balanced` here would also train with them alike."
    yield f"  checkpoint: {{every: 1 epoch, keep: 2, best: {best}}}  # `best` is what infer uses"


def _metrics(survey: DataSurvey) -> tuple[list[str], str]:
    """Return the metrics, and the one by which the best checkpoint is selected."""
    if survey.target is not None:
        return ["rmse", "mae", "r2"], "rmse"
    if survey.label_shape and not survey.classes:
        return ["binary_accuracy"], "binary_accuracy"
    if survey.is_imbalanced:
        return ["accuracy", "balanced_accuracy", "cross_entropy"], "balanced_accuracy"
    return ["accuracy", "cross_entropy"], "accuracy"


def comment_lines(text: str, indent: str, mark: str) -> Iterator[str]:
    """Yield a text as comment lines; characters that YAML forbids are escaped."""
    text = printable(text)
    first, further = f"{indent}# {mark}", f"{indent}# {' ' * len(mark)}"
    yield from textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=further)
