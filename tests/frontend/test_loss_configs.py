"""Losses in configs: label smoothing, regression, padded batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training import metrics, run_training

import mxrun
from mxrun import library
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.request import open_datasets, request_dataset

pytestmark = pytest.mark.usefixtures("empty_folder")

CONFIG = """\
name: net
network:
  inputs: {data: [64], label: LABEL}
  layers:
    - FullyConnected: {name: fc, num_hidden: OUTPUTS}
    - LOSS
data:
  batch_size: BATCH
  train: {dataset: synthetic, split: train, records: 96, classes: 4, shuffle: true}
  eval: {dataset: synthetic, split: test, records: 10, classes: 4}
train: {epochs: EPOCHS, optimizer: {sgd: {lr: RATE}}, metrics: METRICS}
"""


def epochs(name: str = "net", **values: str) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl of a run of CONFIG with `values` for its placeholders."""
    text = CONFIG
    for place, value in values.items():
        text = text.replace(place, value)
    Path("net.yaml").write_text(text)
    run_training(f"name={name}")
    return metrics(name)


def test_the_printed_loss_of_smoothed_labels_includes_the_smoothing() -> None:
    """For well-separated classes, plain cross-entropy falls below the least smoothed loss."""
    last = epochs(
        LABEL="[]",
        OUTPUTS="4",
        LOSS="SoftmaxOutput: {name: softmax, label: label, smooth_alpha: 0.2}",
        BATCH="32",
        EPOCHS="60",
        RATE="0.2",
        METRICS="[cross_entropy]",
    )[-1]
    entropy = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2 / 3))
    assert last["eval"]["cross_entropy"] < entropy <= last["eval"]["loss"]


@pytest.mark.parametrize(
    "operator", ["LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"]
)
def test_a_regression_learns_and_padding_has_no_part_in_its_loss(operator: str) -> None:
    """Ten records in batches of 4, the last of them padded, have the loss of batches of 5."""
    values = {
        "LABEL": "[3]",
        "OUTPUTS": "3",
        "LOSS": f"{operator}: {{name: loss, label: label}}",
        "METRICS": "[]",
    }
    losses = []
    for batch, rate, count in (("4", "0.0", "1"), ("5", "0.0", "1"), ("4", "0.2", "10")):
        name = f"{batch}-{rate}"
        lines = epochs(name, **values, BATCH=batch, EPOCHS=count, RATE=rate)
        losses.append(lines[-1]["eval"]["loss"])
    padded, whole, trained = losses
    assert padded == pytest.approx(whole, rel=1e-5)
    assert trained < 0.98 * padded


PICKED = """\
name: picked
network:
  inputs: {data: [1, 8, 8], label: []}
  outputs: [cls, loss]
  layers:
    - FullyConnected: {name: fc, num_hidden: 10}
    - SoftmaxOutput: {name: cls, label: label}
    - pick: {name: right, index: label}
    - negative
    - MakeLoss: {name: loss}
data:
  batch_size: 100
  train: {dataset: digits, split: train}
  eval: {dataset: digits, split: test}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}, metrics: []}
"""


@pytest.fixture
def held_out() -> Mapping[str, Field]:
    """Fields of the test split of digits, pixels from 0 to 16."""
    library.load()
    inputs = {"data": TensorSpec((1, 8, 8)), "label": TensorSpec((), "int32")}
    return open_datasets({"eval": request_dataset("digits", {}, "test")}, inputs)["eval"].fields


def test_a_label_is_read_as_an_index_beside_a_loss_that_has_it_as_label(
    held_out: Mapping[str, Field],
) -> None:
    """Of both losses, the mean over the records that NumPy finds with the trained weights."""
    Path("net.yaml").write_text(PICKED)
    run_training()
    measured = metrics("picked")[-1]["eval"]["loss"]
    parameters = mxrun.load("runs/picked").parameters
    weight, bias = (parameters[f"fc_{name}"].astype(np.float64) for name in ("weight", "bias"))
    images, labels = (held_out[name].records for name in ("data", "label"))
    scores = images.reshape(len(images), -1) / 16 @ weight.T + bias
    powers = np.exp(scores - scores.max(1, keepdims=True))
    chances = powers / powers.sum(1, keepdims=True)
    right = chances[np.arange(len(labels)), labels]
    assert measured == pytest.approx(-np.log(right).mean() - right.mean(), rel=1e-5)
