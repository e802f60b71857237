"""Losses in configs: label smoothing, regression, padded batches."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from training import metrics, run_training

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
