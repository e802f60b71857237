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


# Of each network: the fusions that its training and its inference have.
FUSED = {
    "digits_lenet": ({"maximum before rectifier"}, {"convolution and rectifier"}),
    "resnet20_cifar10": (
        {"batch norm and rectifier", "batch norm, sum and rectifier"},
        {
            "batch norm folded into a product",
            "convolution and rectifier",
            "convolution, sum and rectifier",
        },
    ),
    "digits_regularized": (
        {"batch norm and rectifier"},
        {"batch norm folded into a product", "convolution and rectifier"},
    ),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("config", FUSED)
def test_F4_networks_give_the_same_in_every_way(config: str, precision: str) -> None:
    words = [f"precision={precision}"]
    report = session.verify(find_config(config), words, steps=4, batch=8, threads=2)
    assert report["passed"], [way for way in report["ways"] if not way["passed"]]
    training, inference = FUSED[config]
    names = {f"without: {name}" for name in training}
    names |= {f"inference without: {name}" for name in inference}
    promised = {way["way"]: way["promised"] for way in report["ways"]}
    assert set(promised) == names | {way.name for way in verification.WAYS}
    assert sum(promise != "the same bits" for promise in promised.values()) == 2 + len(inference)
    assert all(way["tensors"] >= 4 for way in report["ways"])
    assert not any(way["tensor"] for way in report["ways"] if way["phase"] == "train")


@pytest.mark.parametrize(
    ("layer", "promise"), [("", "within 1e-05"), (", precision: bfloat16", "within 0.05")]
)
def test_F4_one_layer_in_bfloat16_is_promised_no_more_than_all(
    tmp_path: Path, layer: str, promise: str
) -> None:
    text = NET.replace("pad: [1, 1]", f"pad: [1, 1]{layer}")
    (tmp_path / "net.yaml").write_text(text)
    report = session.verify(tmp_path / "net.yaml", steps=3, threads=2)
    assert report["passed"], [way for way in report["ways"] if not way["passed"]]
    assert {way["promised"] for way in report["ways"]} == {"the same bits", promise}


MIXED = {
    "a chain in bfloat16 behind a product in float32": """
    - Convolution: {name: conv, num_filter: 16, kernel: [3, 3]}
    - BatchNorm: {name: bn, precision: bfloat16}
    - Activation: {name: relu, act_type: relu, precision: bfloat16}
""",
    "a normalization in float32 behind a product in bfloat16": """
    - Convolution: {name: conv, num_filter: 16, kernel: [3, 3], precision: bfloat16}
    - BatchNorm: {name: bn, precision: float32}
""",
    "a sum in bfloat16 that is read in float32": """
    - Convolution: {name: conv, num_filter: 8, kernel: [3, 3], precision: bfloat16}
    - Convolution: {name: next, num_filter: 8, kernel: [1, 1], no_bias: true, precision: bfloat16}
    - elemwise_add: {name: add, inputs: [conv, next], precision: bfloat16}
    - Pooling: {name: pool, kernel: [2, 2], stride: [2, 2], precision: float32}
""",
}


@pytest.mark.parametrize("layers", MIXED.values(), ids=MIXED)
def test_F4_types_may_change_between_layers(tmp_path: Path, layers: str) -> None:
    head, rest = NET.split("    - Convolution", 1)
    tail = rest.partition("    - FullyConnected")[2]
    text = head.rstrip() + layers + "    - FullyConnected" + tail
    (tmp_path / "net.yaml").write_text(text)
    report = session.verify(tmp_path / "net.yaml", steps=3, threads=2)
    assert report["passed"], [way for way in report["ways"] if not way["passed"]]


def test_F4_inference_begins_with_what_was_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By first statistics, deep networks give outputs that depend on nothing."""
    (tmp_path / "net.yaml").write_text(NET)
    results, found = verification._results, {}

    def noted(built: object, request: object, way: verification.Way, *rest: object) -> object:
        arrays, low = results(built, request, way, *rest)  # type: ignore[arg-type]
        found.setdefault(way.phase, (built, request, arrays))
        return arrays, low

    monkeypatch.setattr(verification, "_results", noted)
    assert session.verify(tmp_path / "net.yaml", steps=2)["passed"]
    built, request, outputs = found["evaluate"]
    fresh, _ = results(built, request, verification.Way("", "evaluate"), 2, {})
    trained = found["train"][2]
    again, _ = results(built, request, verification.Way("", "evaluate"), 2, trained)
    assert outputs.keys() == fresh.keys()
    for name, array in outputs.items():
        assert array.tobytes() == again[name].tobytes()
        assert array.tobytes() != fresh[name].tobytes()


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

    def moved(*arguments: object) -> tuple[verification.Arrays, bool]:
        arrays, low = results(*arguments)  # type: ignore[arg-type]
        calls.append(arguments)
        if len(calls) == 3:
            arrays["fc_bias"][1] += np.float32(change)
        return arrays, low

    monkeypatch.setattr(verification, "_results", moved)
    report = session.verify(tmp_path / "net.yaml", steps=2)
    (broken,) = [way for way in report["ways"] if not way["passed"]]
    assert broken["way"] == verification.WAYS[1].name
    assert broken["tensor"] == "fc_bias"
    assert not report["passed"]
