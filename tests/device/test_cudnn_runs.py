"""Commands on a card whose products are cuDNN's: the library plans, NumPy computes its plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from commands import digests, mxrun, result, succeeded
from cudnn import environment, needs_cudnn
from interrupted_runs import CONFIG, INTERVAL, SAVES, Started
from killed_runs import Moment, assert_little_is_redone, chain
from safetensors.numpy import load_file

import mxrun as mxrun_api

pytestmark = [pytest.mark.commands, needs_cudnn]

ON_CARD = f"context: gpu:0\n{CONFIG.replace('epochs: 3', 'epochs: 1')}"
# Steps whose products have another implementation would be named.
UNSERVED = "no kernel for cards"


def parameters(run: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Return the parameters of the only checkpoint of a run."""
    (file,) = run.glob("checkpoint-*/parameters.safetensors")
    return load_file(file)


def train(folder: Path, context: str, *words: str) -> dict[str, Any]:
    """Train a network in a run named like the context, and return the summary."""
    given = environment() if context == "gpu" else {}
    command = ("train", *words, f"context={context}", f"name={context}", "--json")
    done = succeeded(mxrun(*command, cwd=folder, environment=given))
    assert UNSERVED not in done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        ("digits_lenet", "train.max_steps=5"),
        ("resnet20_cifar10", "train.max_steps=1", "data.batch_size=2"),
        ("gpt_tiny", "train.max_steps=2", "data.batch_size=4", "precision=bfloat16"),
    ],
    ids=" ".join,
)
def test_training_is_close_to_that_on_the_cpu(words: tuple[str, ...], tmp_path: Path) -> None:
    losses = [train(tmp_path, context, *words)["eval"]["loss"] for context in ("gpu", "cpu")]
    is_low = "precision=bfloat16" in words
    assert losses[0] == pytest.approx(losses[1], rel=1e-4 if is_low else 1e-6)
    on_card, on_cpu = (parameters(tmp_path / "runs" / name) for name in ("gpu", "cpu"))
    assert on_card.keys() == on_cpu.keys()
    for name, value in on_cpu.items():
        # The gradient of a key's bias is rounding errors, by whose size AdamW divides it.
        tolerance = 0.2 if name.endswith("qkv_bias") else 5e-3 if is_low else 2e-5
        error = np.abs(on_card[name] - value).max()
        assert error <= tolerance * (np.abs(value).max() + 1e-3), (name, error)


@pytest.mark.full
def test_a_killed_run_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    code, _, errors = Started(tmp_path / "whole", config=ON_CARD).end()
    assert code == 0, errors
    found = chain(tmp_path / "killed", [Moment(2 * INTERVAL + 3, operation=1)], config=ON_CARD)
    assert_little_is_redone(found)
    assert found[-1].resumed in SAVES
    assert digests(tmp_path / "whole/runs/killed") == digests(tmp_path / "killed/runs/killed")


@pytest.mark.full
def test_a_trained_network_runs_on_card_and_cpu(tmp_path: Path) -> None:
    words = ("digits_lenet", "train.max_steps=4")
    verify = ("verify", *words, "context=gpu", "--steps", "2", "--batch", "8")
    assert result(*verify, cwd=tmp_path, environment=environment())["passed"]
    train(tmp_path, "gpu", *words)
    evaluated = result("evaluate", "runs/gpu", cwd=tmp_path, environment=environment())
    on_cpu = mxrun_api.load(tmp_path / "runs/gpu", {"context": "cpu"}).evaluate()
    assert evaluated["loss"] == pytest.approx(on_cpu.loss, rel=1e-5)
    infer = ("infer", "runs/gpu", "--split", "eval")
    inferred = result(*infer, cwd=tmp_path, environment=environment())
    assert inferred["metrics"]["accuracy"] == evaluated["metrics"]["accuracy"]
    # The checkpoint goes on on the CPU, where the user permits it, and back.
    again = ("train", "digits_lenet", "name=gpu", "--resume", "--allow-changes")
    result(*again, "context=cpu", "train.max_steps=6", cwd=tmp_path)
    moved = (*again, "context=gpu", "train.max_steps=8")
    assert result(*moved, cwd=tmp_path, environment=environment())["steps"] == 8


@pytest.mark.full
def test_text_is_generated_on_a_card(tmp_path: Path) -> None:
    train(tmp_path, "gpu", "gpt_tiny", "train.max_steps=2", "data.batch_size=4", "data.eval=null")
    infer = ("infer", "runs/gpu", "--prompt", "ROMEO:", "--length", "8", "--temperature", "0")
    (made,) = result(*infer, cwd=tmp_path, environment=environment())["results"]
    on_cpu = mxrun_api.load(tmp_path / "runs/gpu", {"context": "cpu"})
    assert made["text"] == on_cpu.generate("ROMEO:", 8, temperature=0).text


# Rows of the states take 396 bytes, so that most begin at no multiple of 16.
ODD_ROWS = """\
name: rows
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Reshape: {name: rows, shape: [0, 8, 8]}
    - recurrent:
        name: rnn
        sequences: {x: rows}
        memories: {h: {layer: next, shape: [33]}}
        layers:
          - FullyConnected: {name: wx, data: x, num_hidden: 33}
          - FullyConnected: {name: wh, data: h, num_hidden: 33}
          - elemwise_add: {name: sum, lhs: wx, rhs: wh}
          - Activation: {name: next, act_type: tanh}
        final: [h]
    - FullyConnected: {name: out, data: "rnn[h]", num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 3
  train: {dataset: digits, split: train}
train:
  max_steps: 3
  optimizer: {sgd: {lr: 0.1}}
"""


def test_products_in_a_loop_take_rows_at_any_address(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(ODD_ROWS)
    trained = []
    for context, given in (("gpu", environment()), ("cpu", {})):
        train = ("train", "net.yaml", f"context={context}", f"name={context}")
        succeeded(mxrun(*train, cwd=tmp_path, environment=given))
        trained.append(parameters(tmp_path / "runs" / context))
    on_card, on_cpu = trained
    for name, value in on_cpu.items():
        np.testing.assert_allclose(on_card[name], value, atol=1e-6, err_msg=name)


@pytest.mark.full
def test_what_fails_in_a_plan_is_named(tmp_path: Path) -> None:
    words = ("train", "digits_lenet", "context=gpu", "train.max_steps=3", "data.eval=null")
    done = mxrun(*words, cwd=tmp_path, environment=environment(fails=["cudnn"]))
    assert done.returncode != 0
    assert "conv1 failed on gpu:0: cudaErrorIllegalAddress" in done.stderr
    call = "cudnnBackendExecute"
    done = mxrun(*words, cwd=tmp_path, environment=environment(fails=[call]))
    assert f"conv1 failed on gpu:0: {call} returned CUDNN_STATUS_EXECUTION_FAILED" in done.stderr
    for call in ("cudnnBackendExecute", "cudnnCreate"):
        given = environment(uncapturable=[call])
        done = succeeded(mxrun(*words, f"name={call}", cwd=tmp_path, environment=given))
        assert f"launches cannot be captured as a graph: {call} returned CUDNN" in done.stderr
