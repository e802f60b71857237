"""`mxrun verify`: one network planned in many ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import mxrun, refused, result

from mxrun import session
from mxrun.config.bundled import find_config
from mxrun.session import verification

NET = """\
network:
  inputs: {data: [2, 6, 6], label: []}
  layers:
    - Convolution: {name: conv, num_filter: 4, kernel: [3, 3], pad: [1, 1]}
    - BatchNorm: {name: bn, fix_gamma: false}
    - elemwise_add: {name: add, lhs: bn, rhs: conv}
    - Activation: {name: relu, act_type: relu}
    - Dropout: {name: drop, p: 0.3}
    - FullyConnected: {name: fc, num_hidden: 3}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 4
  train: {dataset: synthetic, split: train, records: 8, classes: 3}
train: {epochs: 1, optimizer: {adamw: {lr: 0.01, wd: 0.1}}}
"""


@pytest.mark.parametrize("config", ["digits_lenet", "resnet20_cifar10", "digits_regularized"])
def test_F4_networks_give_the_same_in_every_way(config: str) -> None:
    report = session.verify(find_config(config), steps=4, batch=8, threads=2)
    assert report["passed"]
    promised = {way["way"]: way["promised"] for way in report["ways"]}
    assert len(promised) == len(verification.WAYS)
    assert sum(promise != "the same bits" for promise in promised.values()) == 2
    assert all(way["tensors"] >= 4 for way in report["ways"])
    assert [way["tensor"] for way in report["ways"] if way["phase"] == "train"] == [""] * 5


def test_F4_the_command_says_what_was_promised_and_found(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(NET)
    report = result("verify", "net.yaml", "--steps", "3", cwd=tmp_path)
    assert report["passed"]
    assert report["steps"] == 3
    done = mxrun("verify", "net.yaml", "--steps", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "none fused" in done.stdout
    assert "gives the same in every way" in done.stdout
    assert "--steps" in refused("verify", "net.yaml", "--steps", "0", cwd=tmp_path)


@pytest.mark.parametrize("change", [1e-4, float("nan")])
def test_F4_a_broken_promise_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: float
) -> None:
    """One number of one tensor moved behind the back of one way."""
    (tmp_path / "net.yaml").write_text(NET)
    results, calls = verification._results, []

    def moved(*arguments: object) -> verification.Arrays:
        arrays = results(*arguments)  # type: ignore[arg-type]
        calls.append(arguments)
        if len(calls) == 3:
            arrays["fc_bias"][1] += np.float32(change)
        return arrays

    monkeypatch.setattr(verification, "_results", moved)
    report = session.verify(tmp_path / "net.yaml", steps=2)
    (broken,) = [way for way in report["ways"] if not way["passed"]]
    assert broken["way"] == verification.WAYS[1].name
    assert broken["tensor"] == "fc_bias"
    assert not report["passed"]
