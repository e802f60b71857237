"""Networks whose output layer uses the weight of their Embedding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from bundled_runs import executor_of

from mxrun.graph.phases import TRAIN
from mxrun.session.planning import load
from mxrun.session.training import prepare

Array = npt.NDArray[np.float32]

WORDS, VECTOR, CONTEXT, BATCH = 10, 6, 3, 16

CONFIG = f"""\
name: tied
network:
  inputs: {{data: [{CONTEXT}], label: []}}
  layers:
    - Embedding: {{name: table, input_dim: {WORDS}, output_dim: {VECTOR}}}
    - mean: {{name: context, axis: 1}}
    - FullyConnected:
        {{name: scores, num_hidden: {WORDS}, weight: table_weight, no_bias: true}}
    - SoftmaxOutput: {{name: softmax, label: label}}
data:
  batch_size: {BATCH}
  train: {{dataset: synthetic, split: train, records: {BATCH}}}
train:
  epochs: 1
  optimizer: {{sgd: {{lr: 0.5}}}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tied.yaml"
    path.write_text(CONFIG)
    return path


def gradient_of(weight: Array, ids: npt.NDArray[np.int32], label: npt.NDArray[np.int32]) -> Array:
    """Return the sum of the gradients of both uses of the weight, in float64."""
    context = weight[ids].mean(axis=1, dtype=np.float64)
    scores = context @ weight.T
    error = np.exp(scores - scores.max(axis=1, keepdims=True))
    error /= error.sum(axis=1, keepdims=True)
    error[np.arange(len(label)), label] -= 1
    gradient = error.T @ context
    np.add.at(gradient, ids, (error @ weight / CONTEXT)[:, None, :])
    return gradient


@pytest.mark.parametrize("implementation", ["auto", "numpy"])
def test_the_gradient_of_a_tied_weight_is_the_sum_of_both(
    config: Path, implementation: str
) -> None:
    executor = executor_of(load(config), gradients=True, implementation=implementation)
    random = np.random.default_rng(6)
    values = {
        "table_weight": random.standard_normal((WORDS, VECTOR)).astype("float32"),
        "data": random.integers(0, WORDS, (BATCH, CONTEXT)).astype("int32"),
        "label": random.integers(0, WORDS, BATCH).astype("int32"),
        "sample_weight": np.ones(BATCH, "float32"),
    }
    for block in executor.plan.pinned:
        executor.tensor(block.name).write(values[block.name])
    executor.run(TRAIN)
    found = executor.result(TRAIN, "table_weight_grad").values()
    expected = gradient_of(values["table_weight"], values["data"], values["label"])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_step_updates_a_tied_weight_once(config: Path) -> None:
    run = prepare(load(config, ["threads=2"]))
    assert list(run.built.model.parameters) == ["table_weight"]
    updates = [step.name for step in run.plan.phases[TRAIN].steps if "update" in step.name]
    assert updates == ["table_weight:update"]
