"""Weights shared by an Embedding and the layer that predicts its tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from layer_configs import config_file

from mxrun.graph.phases import TRAIN
from mxrun.inspection.benchmark_loop import Steps
from mxrun.preparation.planning import load, plan_for

NETWORK = """name: tied
network:
  inputs: {{data: [6], label: [6]}}
  layers:
    - Embedding: {{name: embed, input_dim: 11, output_dim: 8}}
    - position_embedding: {{name: position, max_length: 6}}
    - gelu
    - FullyConnected: {{name: head, num_hidden: 11, flatten: false{tied}}}
    - softmax_cross_entropy: {{name: loss, label: label}}
data: {{batch_size: 4, train: {{dataset: synthetic, records: 8}}}}
train:
  epochs: 1
  optimizer: {{sgd: {{lr: 1.0}}}}
  initializer: {{normal: {{sigma: 0.5}}}}
"""


def moved(path: Path, tied: str, *overrides: str, table: object = None) -> dict[str, object]:
    """Return the changes of all parameters by one step; table: first value of both weights."""
    path.write_text(NETWORK.format(tied=tied))
    built = load(path, ["threads=2", *overrides])
    steps = Steps(built, plan_for(built, training=True), TRAIN)
    if table is not None:
        for name in ("embed_weight", "head_weight"):
            steps.executor.tensor(name).write(table)
        steps.executor.prepare()
    before = {name: steps.executor.tensor(name).read() for name in built.model.parameters}
    steps.losses(1)
    return {name: steps.executor.tensor(name).read() - array for name, array in before.items()}


@pytest.mark.parametrize("context", ["cpu", "reference"])
def test_the_gradient_of_a_tied_weight_is_the_sum_of_both(context: str, tmp_path: Path) -> None:
    file = config_file(tmp_path, NETWORK.format(tied=", weight: embed_weight"))
    built = load(file, ["threads=2"])
    steps = Steps(built, plan_for(built, training=True), TRAIN)
    table = steps.executor.tensor("embed_weight").read()
    given = f"context={context}"
    shared = moved(file, ", weight: embed_weight", given)
    alone = moved(file, "", given, table=table)
    assert "head_weight" not in shared
    parts = [np.asarray(alone[name]) for name in ("embed_weight", "head_weight")]
    assert all(np.abs(part).max() > 0.01 for part in parts)
    np.testing.assert_allclose(np.asarray(shared["embed_weight"]), sum(parts), 1e-4, 1e-6)
