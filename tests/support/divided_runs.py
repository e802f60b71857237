"""Runs of a small network whose batches may be divided, and what they have learned."""

from __future__ import annotations

from typing import Any

import numpy as np
from training import newest, run_training

from mxrun.train.checkpoint import Arrays, Checkpoint

NET = """\
name: net
threads: 1
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Convolution: {name: conv1, num_filter: 16, kernel: [3, 3], pad: [1, 1]}
    - Activation: {name: relu1, act_type: relu}
    - Convolution: {name: conv2, num_filter: 64, kernel: [3, 3], pad: [1, 1]}
    - Activation: {name: relu2, act_type: relu}
    - Pooling: {name: pool, pool_type: max, kernel: [2, 2], stride: [2, 2]}
    - FullyConnected: {name: fc1, num_hidden: 48}
    - Dropout: {name: drop, p: 0.3}
    - FullyConnected: {name: fc2, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 64
  train: {dataset: digits, split: {of: train, range: [0, 300]}, shuffle: true}
  eval: {dataset: digits, split: {of: test, range: [0, 100]}}
train:
  epochs: 2
  optimizer: {sgd: {lr: 0.05, momentum: 0.9, wd: 1e-3}}
  metrics: [accuracy, confusion_matrix]
"""


def trained(name: str, *words: str, **request: Any) -> Checkpoint:
    """Return the newest checkpoint of a run."""
    run_training(f"name={name}", *words, **request)
    return newest(name)


def learned(checkpoint: Checkpoint) -> Arrays:
    return {**checkpoint.parameters, **checkpoint.optimizer, **checkpoint.auxiliary}


def assert_same_bits(one: Checkpoint, other: Checkpoint) -> None:
    for name, array in learned(one).items():
        np.testing.assert_array_equal(array, learned(other)[name], err_msg=name)
