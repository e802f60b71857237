"""Configs of a few layers, and their diagnostics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mxrun.base.errors import Diagnostic, UserError
from mxrun.commands.check import check

DENSE = "FullyConnected: {name: fc, num_hidden: 10}"
SOFTMAX = "SoftmaxOutput: {name: softmax, label: label}"

# Sections of configs.
DIGITS = """\
data:
  batch_size: 64
  train: {dataset: digits, split: train, shuffle: true}
  eval: {dataset: digits, split: test}
"""
TRAINING_DIGITS = "data: {batch_size: 4, train: {dataset: digits, split: train}}\n"
SYNTHETIC = """\
data:
  batch_size: 4
  train: {dataset: synthetic, split: train, records: 8, classes: 3}
"""
ONE_EPOCH = "train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}\n"


def listed(*layers: str) -> str:
    """Return layers as lines of a network section."""
    return "".join(f"    - {layer}\n" for layer in layers)


def classifier(classes: int, name: str = "fc") -> str:
    """Return a dense layer and the softmax of its outputs."""
    return listed(f"FullyConnected: {{name: {name}, num_hidden: {classes}}}", SOFTMAX)


def network_text(
    layers: str,
    *,
    name: str = "net",
    settings: str = "",
    inputs: str = "{data: [1, 8, 8], label: []}",
    other_keys: str = "",
) -> str:
    """Return a config without data and training.

    `settings` are lines after the name, `other_keys` lines before the layers in the network
    section. Without them the first layer is in line 5.
    """
    return f"name: {name}\n{settings}network:\n  inputs: {inputs}\n{other_keys}  layers:\n{layers}"


def config_text(layers: str, *, data: str = DIGITS, train: str = ONE_EPOCH, **network: str) -> str:
    """Return a config; `network` are parameters of `network_text`."""
    return network_text(layers, **network) + data + train


def config_file(folder: Path, text: str, name: str = "net.yaml") -> Path:
    """Write a config in a folder; return its path."""
    path = folder / name
    path.write_text(text)
    return path


def written(folder: Path, layers: Sequence[str], **parts: str) -> Path:
    """A config with these layers, the first of them in line 5; `parts` are of `config_text`."""
    return config_file(folder, config_text(listed(*layers), **{"data": TRAINING_DIGITS} | parts))


def problems(path: Path, overrides: Sequence[str] = ()) -> tuple[Diagnostic, ...]:
    with pytest.raises(UserError) as raised:
        check(path, overrides)
    assert raised.value.exit_code == 2
    return raised.value.diagnostics
