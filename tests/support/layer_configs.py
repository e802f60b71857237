"""Configs of a few layers, and their diagnostics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mxrun.base.errors import Diagnostic, UserError
from mxrun.commands.check import check

HEAD = """\
name: net
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
"""
TAIL = """\
data: {batch_size: 4, train: {dataset: digits, split: train}}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""
DENSE = "FullyConnected: {name: fc, num_hidden: 10}"
SOFTMAX = "SoftmaxOutput: {name: softmax, label: label}"


def written(folder: Path, layers: Sequence[str]) -> Path:
    """A config with these layers, the first of them in line 5."""
    path = folder / "net.yaml"
    path.write_text(HEAD + "".join(f"    - {layer}\n" for layer in layers) + TAIL)
    return path


def problems(path: Path, overrides: Sequence[str] = ()) -> tuple[Diagnostic, ...]:
    with pytest.raises(UserError) as raised:
        check(path, overrides)
    assert raised.value.exit_code == 2
    return raised.value.diagnostics
