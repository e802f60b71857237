"""Losses as a config asks for them: label smoothing, regression, padded batches."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from commands import result

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


def epochs(folder: Path, **values: str) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl of a run of CONFIG with `values` in the capitals' places."""
    text = CONFIG
    for name, value in values.items():
        text = text.replace(name, value)
    (folder / "net.yaml").write_text(text)
    summary = result("train", "net.yaml", cwd=folder)
    lines = (folder / summary["run_dir"] / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_printed_loss_of_smoothed_labels_includes_the_smoothing(tmp_path: Path) -> None:
    """Well-separated classes: the cross-entropy falls below what smoothed targets allow."""
    last = epochs(
        tmp_path,
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
def test_a_regression_learns_and_padding_has_no_part_in_its_loss(
    operator: str, tmp_path: Path
) -> None:
    """Ten records in batches of 4, the last of them padded, have the loss of batches of 5."""
    values = {
        "LABEL": "[3]",
        "OUTPUTS": "3",
        "LOSS": f"{operator}: {{name: loss, label: label}}",
        "METRICS": "[]",
    }
    losses = []
    for batch, rate in (("4", "0.0"), ("5", "0.0"), ("4", "0.2")):
        folder = tmp_path / f"{batch}-{rate}"
        folder.mkdir()
        lines = epochs(folder, **values, BATCH=batch, EPOCHS="10", RATE=rate)
        losses.append(lines[-1]["eval"]["loss"])
    padded, whole, trained = losses
    assert padded == pytest.approx(whole, rel=1e-5)
    assert trained < 0.98 * padded
