"""Networks that carry states from step to step, timed beside PyTorch's translation."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from layer_configs import config_file
from oracles.peer import PyTorch

from mxrun.graph.phases import TRAIN
from mxrun.inspection.benchmark_loop import Steps
from mxrun.inspection.equivalence import ReferenceOutputs
from mxrun.peers.baseline import BaselineProcess, find
from mxrun.preparation.planning import load, plan_for

CONFIG = """\
name: carrying
threads: 1
network:
  inputs: {data: [6], label: [6]}
  layers:
    - Embedding: {name: embed, data: data, input_dim: 20, output_dim: 8}
    - recurrent:
        name: rnn
        sequences: {x: embed}
        memories: {h: {layer: next, shape: [10], carry: true}}
        layers:
          - FullyConnected: {name: fx, data: x, num_hidden: 10, no_bias: true}
          - FullyConnected: {name: fh, data: h, num_hidden: 10}
          - elemwise_add: {name: both, lhs: fx, rhs: fh}
          - Activation: {name: next, act_type: tanh}
    - RNN: {name: lstm, mode: lstm, state_size: 9, num_layers: 2, layout: NTC, initial_state: carry}
    - carry: {name: before, data: lstm}
    - Concat: {name: two, inputs: [lstm, before], dim: 2}
    - FullyConnected: {name: head, num_hidden: 20, flatten: false}
    - softmax_cross_entropy: {name: loss, label: label}
data:
  batch_size: 4
  train: {dataset: text, path: none.txt, order: stream}
train: {epochs: 1, optimizer: {sgd: {lr: 0.5}}, initializer: {uniform: {scale: 0.5}}}
"""


def test_the_losses_of_the_first_steps_are_pytorchs(tmp_path: Path) -> None:
    """Those after the first step depend on the states that the steps before have left."""
    if reason := PyTorch.unavailable():
        pytest.skip(reason)
    path = config_file(tmp_path, CONFIG)
    work = work_of(path)
    (found,) = find(("torch",), {"torch": str(PyTorch.interpreter())})
    with closing(BaselineProcess(found, 1)) as baseline:
        baseline.open(work.checked, "eager", work.variables, work.batches)
        assert work.difference(baseline, "eager") < 1e-5
    path.write_text(CONFIG.replace("initial_state: carry", "initial_state: zeros"))
    zeros = work_of(path)
    assert zeros.losses[0] == work.losses[0]
    assert abs(zeros.losses[1] - work.losses[1]) > 1e-4 * abs(work.losses[1])


def work_of(path: Path) -> ReferenceOutputs:
    """Return the first steps of a config."""
    built = load(path)
    plan = plan_for(built, training=True, threads=1)
    return ReferenceOutputs.of(built, Steps(built, plan, TRAIN))
