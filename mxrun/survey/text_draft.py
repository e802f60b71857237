"""Configs that `init` writes for texts: bundled ones, with the sizes of the data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from mxrun.config.dump import flow
from mxrun.survey.config_draft import ConfigDraft, heading_lines, option_lines
from mxrun.survey.survey import DataSurvey
from mxrun.survey.texts import TEXT

# Steps of a training, batch sizes, and the most epochs.
_TEXT_STEPS, _TEXT_BATCH, _MAX_TEXT_EPOCHS = 2000, 16, 20
_LINE_STEPS, _LINE_BATCH, _MAX_LINE_EPOCHS = 300, 32, 20


def draft_text_config(survey: DataSurvey, name: str, file: Path) -> ConfigDraft:
    """Return a config of this name for surveyed texts; file: where it will be."""
    is_text = survey.dataset == TEXT
    base = "gpt_tiny" if is_text else "text_classifier"
    epochs = _epochs(survey, is_text)
    body = _text_lines(survey) if is_text else _classifier_lines(survey)
    lines = [
        *heading_lines(survey, file),
        f"extends: {base}  # its network and training: mxrun show {base}",
        f"name: {flow(name)}  # of the run: runs/{name}",
        *body,
        "train:",
        f"  epochs: {epochs}  # passes over the data: more while evaluation still improves",
    ]
    kind = (
        f"a transformer that predicts each of {survey.vocabulary:,} characters from those before"
        if is_text
        else f"the mean of the vectors of {survey.vocabulary:,} words, and a dense layer"
    )
    records = "windows of 64 characters" if is_text else "texts"
    batch = _TEXT_BATCH if is_text else _LINE_BATCH
    choices = (
        kind,
        f"{survey.train.records:,} {records} for training, {survey.evaluation.records:,} for "
        "evaluation",
        f"{epochs} epochs in batches of {batch}",
    )
    return ConfigDraft("".join(f"{line}\n" for line in lines), choices)


def _epochs(survey: DataSurvey, is_text: bool) -> int:
    steps, batch, most = (
        (_TEXT_STEPS, _TEXT_BATCH, _MAX_TEXT_EPOCHS)
        if is_text
        else (_LINE_STEPS, _LINE_BATCH, _MAX_LINE_EPOCHS)
    )
    return min(most, math.ceil(steps / max(1, survey.train.records // batch)))


def _text_lines(survey: DataSurvey) -> Iterator[str]:
    size = survey.vocabulary
    yield "network:"
    yield "  # For windows of 128: inputs: {data: [128], label: [128]} here, and below this change:"
    yield "  #   position: {max_length: 128}"
    yield "  layers:"
    yield "    change:  # one row and one output for each character"
    yield f"      embed: {{input_dim: {size}}}"
    yield f"      head: {{num_hidden: {size}}}"
    yield "data:"
    yield "  train:"
    yield "    dataset: text"
    for key, value in survey.options.items():
        yield from option_lines(key, value, survey.comments.get(key, ""))
    yield "  # The last 10 % of the text evaluates; `held_out` changes that."
    yield "  eval: {dataset: text, split: test}"


def _classifier_lines(survey: DataSurvey) -> Iterator[str]:
    (length,) = survey.shape
    yield "network:"
    yield "  # Longer texts are cut; shorter ones are padded, which the mean leaves out."
    yield f"  inputs: {{data: [{length}], mask: [{length}], lengths: [], label: []}}"
    yield "  layers:"
    yield "    change:"
    yield f"      embed: {{input_dim: {survey.vocabulary}}}"
    yield f"      fc: {{num_hidden: {len(survey.classes)}}}  # one for each class"
    yield "data:"
    yield f"  batch_size: {min(_LINE_BATCH, survey.train.records)}"
    yield "  train:"
    yield "    dataset: text_lines"
    for key, value in survey.options.items():
        yield from option_lines(key, value, survey.comments.get(key, ""))
    yield "    # Evaluation has no data of its own: 80 % of each class trains, the rest evaluates."
    yield f"    split: {flow(survey.train.split)}"
    yield "  eval: {dataset: text_lines, split: rest}"
