"""Recurrent layers whose states are carried from batch to batch of a stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from commands import refused, result
from interrupted_runs import go_on, left
from killed_runs import Moment, chain
from training import run_with_notes

from mxrun.executor.executor import Executor
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.preparation.planning import load, plan_for
from mxrun.preparation.prepared import Prepared

BATCH, STEPS, TOKENS = 4, 6, 62
CONFIG = f"""\
name: killed
threads: 1
network:
  inputs: {{data: [{STEPS}], label: [{STEPS}]}}
  layers:
    - Embedding: {{name: embed, data: data, input_dim: {TOKENS}, output_dim: 8}}
    - recurrent:
        name: rnn
        sequences: {{x: embed}}
        memories:
          h: {{layer: next, shape: [10], carry: true}}
          older: {{layer: fx, shape: [10], carry: true, offset: 2}}
        layers:
          - FullyConnected: {{name: fx, data: x, num_hidden: 10, no_bias: true}}
          - FullyConnected: {{name: fh, data: h, num_hidden: 10}}
          - add_n: {{name: both, inputs: [fx, fh, older]}}
          - Activation: {{name: next, act_type: tanh}}
    - RNN:
        name: lstm
        mode: lstm
        state_size: 9
        num_layers: 2
        layout: NTC
        initial_state: carry
    - FullyConnected: {{name: head, num_hidden: {TOKENS}, flatten: false}}
    - softmax_cross_entropy: {{name: loss, label: label}}
data:
  batch_size: {BATCH}
  train: {{dataset: shakespeare, split: train, order: stream, held_out: 0.9}}
train:
  max_steps: 30
  epochs: 1
  optimizer: {{adam: {{lr: 0.01}}}}
  checkpoint: {{every: 4 steps, keep: 100}}
"""
ALONE = (
    CONFIG.replace(", carry: true", "")
    .replace("initial_state: carry", "initial_state: zeros")
    .replace(f"[{STEPS}]", f"[{2 * STEPS}]")
)
STATES = [
    "rnn_carried_h",
    "rnn_carried_older",
    "lstm_carried_state",
    "lstm_carried_state_cell",
]
Array = npt.NDArray[np.float32]


def executor_of(text: str) -> Executor:
    """Return an executor of a config with initial parameters."""
    Path("net.yaml").write_text(text)
    built = load(Path("net.yaml"), ("data.eval={dataset: shakespeare, split: test}",))
    plan = plan_for(built, training=True)
    prepared = Prepared.of(built, plan)
    prepared.begin()
    return prepared.executor


def loss_of(executor: Executor, ids: npt.NDArray[np.int32]) -> float:
    """Return the loss of a batch in evaluation, whose labels are the ids."""
    executor.tensor("data").write(ids)
    executor.tensor("label").write(ids)
    executor.tensor("sample_weight").write(1)
    executor.run(EVALUATE)
    return float(executor.result(EVALUATE, "loss_output").read()[0])


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_two_batches_give_what_one_of_twice_the_steps_gives() -> None:
    ids = np.random.default_rng(0).integers(0, TOKENS, (BATCH, 2 * STEPS)).astype("i4")
    carrying, whole = executor_of(CONFIG), executor_of(ALONE)
    assert [*carrying.carried(EVALUATE)] == STATES
    halves = [loss_of(carrying, ids[:, :STEPS]), loss_of(carrying, ids[:, STEPS:])]
    expected = loss_of(whole, ids)
    assert sum(halves) == pytest.approx(expected, rel=1e-6)
    # From zeros the second half is another.
    carrying.clear_carried(EVALUATE)
    assert loss_of(carrying, ids[:, STEPS:]) != pytest.approx(halves[1], rel=1e-6)
    # One state alone may be cleared.
    carrying.clear_carried(EVALUATE, ["lstm_carried_state"])
    states = {name: tensor.read() for name, tensor in carrying.carried(EVALUATE).items()}
    assert [name for name in STATES if not states[name].any()] == ["lstm_carried_state"]
    assert not any(tensor.read().any() for tensor in carrying.carried(TRAIN).values())


def test_the_unrolled_form_carries_the_same_bits() -> None:
    ids = np.random.default_rng(1).integers(0, TOKENS, (BATCH, STEPS)).astype("i4")
    found = []
    for text in (CONFIG, CONFIG.replace("name: rnn\n", "name: rnn\n        unroll: true\n")):
        executor = executor_of(text)
        for _ in range(2):
            executor.tensor("data").write(ids)
            executor.tensor("label").write(ids)
            executor.tensor("sample_weight").write(1)
            executor.run(TRAIN)
        found.append({name: tensor.read() for name, tensor in executor.carried(TRAIN).items()})
    assert [*found[0]] == [*found[1]] == STATES
    for name, array in found[0].items():
        assert array.any()
        np.testing.assert_array_equal(found[1][name], array)


def test_F5_a_run_on_a_stream_killed_in_mid_epoch_resumes_to_the_same_bytes(
    tmp_path: Path,
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "parts"
    chain(killed, (Moment(6), Moment(16, operation=2)), config=CONFIG)
    go_on(whole, config=CONFIG)
    assert "checkpoint-8/carried.safetensors" in left(whole)
    assert left(killed) == left(whole)


def test_a_run_plans_what_it_touches_and_generates_text() -> None:
    Path("net.yaml").write_text(CONFIG)
    summary, notes = run_with_notes()
    memory = summary["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"] == memory["lower_bound_bytes"]
    assert not [note for note in notes if "carries" in note]
    made = result("infer", "killed", "--prompt", "ROMEO:", "--length", "5", cwd=Path.cwd())
    assert made
    _, notes = run_with_notes("data.train.order=windows", overwrite=True)
    assert [note for note in notes if "write `order: stream`" in note]


def test_memories_that_cannot_be_carried_are_refused() -> None:
    for key, changed in (
        ("reverse", CONFIG.replace("name: rnn\n", "name: rnn\n        reverse: true\n")),
        ("initial", CONFIG.replace("h: {layer: next,", "h: {layer: next, initial: embed,")),
    ):
        Path("net.yaml").write_text(changed)
        errors = refused("check", "net.yaml", cwd=Path.cwd())
        assert f"a memory that is carried cannot be used with {key}" in errors
