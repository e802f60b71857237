"""Configs that `init` writes for series: a network that adds to the naive forecast."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from mxrun.config.dump import flow
from mxrun.survey.config_draft import (
    ConfigDraft,
    batch_size,
    data_lines,
    epochs_of,
    heading_lines,
)
from mxrun.survey.network_draft import hidden_layers
from mxrun.survey.survey import DataSurvey

# Windows from which the layers are wider.
_MIN_WIDE = 1000


def draft_series_config(survey: DataSurvey, name: str, file: Path) -> ConfigDraft:
    """Return a config of this name for a surveyed series; file: where it will be."""
    records = survey.train.records
    batch = batch_size(records, is_image=False)
    epochs = epochs_of(records, batch, is_image=False)
    steps = max(records // batch, 1) * epochs
    lines = [
        *heading_lines(survey, file),
        f"name: {flow(name)}  # of the run: runs/{name}",
        "seed: 0  # of initial parameters and shuffling",
        *_network_lines(survey),
        *data_lines(survey, [], batch),
        "train:",
        f"  epochs: {epochs}  # passes over the windows: more while evaluation still improves",
        "  optimizer: {adam: {lr: 0.002}}  # a lower lr if the loss jumps",
        f"  schedule: {{cosine: {{warmup_steps: {min(100, steps // 10)}}}}}",
        "  # In deviations of the training part; `mxrun evaluate` shows the column's own units.",
        "  metrics: [mae, rmse]",
        "  checkpoint: {every: 1 epoch, keep: 2, best: mae}  # `best` is what infer uses",
    ]
    window, horizon = survey.shape[0], survey.label_shape[0]
    choices = (
        f"a network that reads {window} steps, predicts {horizon}, and adds to the naive forecast",
        f"{records:,} windows for training, {survey.evaluation.records:,} for evaluation, from the "
        "beginning and the end of the time",
        f"{epochs} epochs in batches of {batch}",
    )
    return ConfigDraft("".join(f"{line}\n" for line in lines), choices)


def _network_lines(survey: DataSurvey) -> Iterator[str]:
    inputs = {"data": survey.shape, "last": (1, survey.shape[1])}
    inputs |= {"future": survey.future_shape} if survey.future_shape else {}
    inputs |= {"naive": survey.naive_shape, "label": survey.label_shape}
    sizes = ", ".join(f"{name}: {[*shape]}" for name, shape in inputs.items())
    is_season = survey.naive_shape == survey.label_shape
    width = 128 if survey.train.records >= _MIN_WIDE else 64
    yield "network:"
    yield "  # Of one window: steps x numbers of a step, its last step, what is known of the future"
    yield "  # (if anything is), the naive forecast, and the steps to predict."
    yield f"  inputs: {{{sizes}}}"
    yield "  layers:"
    yield "    # Differences from the last step, so that only changes matter, not the level."
    yield "    - broadcast_sub: {name: change, lhs: data, rhs: last}"
    yield "    - Flatten: {name: past}"
    if survey.future_shape:
        yield "    - Flatten: {name: ahead, data: future}"
        yield "    - Concat: {name: known, inputs: [past, ahead]}"
    yield from hidden_layers(width)
    outputs = math.prod(survey.label_shape)
    yield f"    - FullyConnected: {{name: correction, num_hidden: {outputs}}}"
    if len(survey.label_shape) > 1:
        yield f"    - Reshape: {{name: steps, shape: {[0, *survey.label_shape]}}}"
    naive = "the last season" if is_season else "the last value"
    yield f"    # The naive forecast is {naive}: the layers learn what is to be added to it."
    added = "elemwise_add" if is_season else "broadcast_add"
    last = "steps" if len(survey.label_shape) > 1 else "correction"
    yield f"    - {added}: {{name: forecast, lhs: {last}, rhs: naive}}"
    yield "    - LinearRegressionOutput: {name: regression, label: label}"
