"""States that a run of a network leaves for the next: zero at first, saved, and of one phase."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import mxrun, refused, result, succeeded
from interrupted_runs import go_on, left
from killed_runs import Moment, chain
from memory_reports import memory_of, verified
from training import metrics, newest, run_training, run_with_notes

from mxrun import load, nd
from mxrun.commands.check import check
from mxrun.train.checkpoint import load_checkpoint

BATCH, STEPS = 4, 5
# The label of a record is the data one batch before. With these parameters the loss is exactly 0 if
# the state is what it shall be, and so are all gradients.
CONFIG = f"""\
name: killed
threads: 1
network:
  inputs: {{data: [2], label: [2]}}
  layers:
    - FullyConnected: {{name: fc, data: data, num_hidden: 2, no_bias: true}}
    - carry: {{name: before, data: data}}
    - elemwise_add: {{name: sum, lhs: before, rhs: fc}}
    - LinearRegressionOutput: {{name: out, label: label}}
  variables: {{fc_weight: {{init: {{constant: {{value: 0}}}}}}}}
data:
  batch_size: {BATCH}
  train: {{dataset: npz, path: train.npz}}
  eval: {{dataset: npz, path: test.npz}}
train:
  epochs: 3
  optimizer: {{sgd: {{lr: 0.1}}}}
  checkpoint: {{every: 2 steps, keep: 100}}
"""
# The same with another result of every step, if the state differs in a bit.
LEARNING = CONFIG.replace("rhs: fc}", "rhs: fc}\n    - FullyConnected: {name: fc2, num_hidden: 2}")


def write_streams(folder: Path) -> None:
    """Write records of which each continues the one a batch before."""
    random = np.random.default_rng(0)
    for name, count in (("train", BATCH * STEPS), ("test", 3 * BATCH)):
        data = random.normal(size=(count, 2)).astype("float32")
        label = np.zeros_like(data)
        label[BATCH:] = data[:-BATCH]
        np.savez(folder / f"{name}.npz", data=data, label=label)


@pytest.fixture
def streams(empty_folder: Path) -> Path:
    """The current folder, with the config and its records."""
    write_streams(empty_folder)
    (empty_folder / "net.yaml").write_text(CONFIG)
    return empty_folder


def test_an_epoch_and_an_evaluation_begin_with_zero_and_hold_the_last_batch(streams: Path) -> None:
    run_training()
    lines = [line for line in metrics("killed") if "epoch" in line]
    assert len(lines) == 3
    assert all(line["train"]["loss"] == 0 and line["eval"]["loss"] == 0 for line in lines)
    last = np.load("train.npz")["data"][-BATCH:]
    carried = newest("killed").carried
    assert [*carried] == ["before_state"]
    np.testing.assert_array_equal(carried["before_state"], last)
    first = load_checkpoint(streams / "runs/killed/checkpoint-2")
    np.testing.assert_array_equal(
        first.carried["before_state"], np.load("train.npz")["data"][BATCH : 2 * BATCH]
    )


def test_an_evaluation_in_the_middle_of_an_epoch_leaves_the_state_of_training(
    streams: Path,
) -> None:
    """The run that max_steps ends is evaluated there; it then goes on as if it had not been."""
    (streams / "net.yaml").write_text(LEARNING)
    run_training("name=whole")
    run_training("train.max_steps=3")
    np.testing.assert_array_equal(
        newest("killed").carried["before_state"],
        np.load("train.npz")["data"][2 * BATCH : 3 * BATCH],
    )
    run_training(resume=True)
    for name, array in newest("whole").parameters.items():
        np.testing.assert_array_equal(newest("killed").parameters[name], array)


def test_F5_a_run_killed_in_the_middle_of_epochs_resumes_with_its_states(tmp_path: Path) -> None:
    """Killed in the first epoch, and within the checkpoint of a step of the second."""
    whole, killed = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, killed):
        folder.mkdir()
        write_streams(folder)
    chain(killed, (Moment(3), Moment(8, operation=2)), config=LEARNING)
    go_on(whole, config=LEARNING)
    assert "checkpoint-4/carried.safetensors" in left(whole)
    assert left(killed) == left(whole)


def test_evaluate_and_infer_begin_with_zero(streams: Path) -> None:
    run_training()
    assert result("evaluate", "killed", cwd=streams)["loss"] == 0
    records = np.load("test.npz")
    model = load("runs/killed")
    for _ in range(2):
        predicted = model.predict(records["data"], outputs=["before"])
        np.testing.assert_array_equal(predicted.values, records["label"])


def test_gradient_accumulation_carries_from_batch_to_batch(streams: Path) -> None:
    run_training("train.accumulate=2")
    lines = [line for line in metrics("killed") if "epoch" in line]
    assert all(line["train"]["loss"] == 0 for line in lines)


def test_states_are_shown_and_verified(streams: Path) -> None:
    assert check("net.yaml").to_json()["carried"] == {"before_state": (BATCH, 2)}
    shown = succeeded(mxrun("check", "net.yaml", cwd=streams))
    assert "carried from batch to batch: before_state [4, 2]" in shown.stdout
    memory = memory_of("net.yaml").to_json()
    # One state of training and one of evaluation.
    assert memory["classes"]["carried"]["total_bytes"] == 2 * 64
    assert memory["planned_bytes"] == memory["lower_bound_bytes"]
    assert verified("net.yaml", steps=3)["passed"]


def test_batches_that_are_split_are_refused(streams: Path) -> None:
    split = ("memory.budget=50%", "memory.micro_batches=true")
    for settings, key in (
        (split, "memory.micro_batches"),
        (("context=[cpu:0, cpu:1]",), "context"),
    ):
        errors = refused("check", "net.yaml", *settings, cwd=streams)
        assert key in errors
        assert "carries a state of all samples to the next batch" in errors
        assert "carry 'before'" in errors


def test_onnx_refuses_what_is_carried(streams: Path) -> None:
    errors = refused("convert", "net.yaml", "-o", "net.onnx", cwd=streams)
    assert "carries states from batch to batch" in errors
    assert "before_state" in errors


def test_a_note_says_that_shuffled_records_do_not_continue(streams: Path) -> None:
    _, notes = run_with_notes("data.train.shuffle=true")
    (note,) = [note for note in notes if "before_state" in note]
    assert "leave out `shuffle`" in note
    _, notes = run_with_notes(overwrite=True)
    assert not [note for note in notes if "before_state" in note]


def test_a_run_resumed_with_another_batch_size_begins_with_zeros(streams: Path) -> None:
    run_training("train.max_steps=2")
    _, notes = run_with_notes("data.batch_size=2", resume=True, allow_changes=True)
    assert any("carries no states of these shapes" in note for note in notes)


RECURRENT = """\
name: rnn
threads: 1
network:
  inputs: {data: [3, 2], label: [3, 4]}
  layers:
    - RNN: {name: rnn, mode: lstm, state_size: 4, num_layers: 2, layout: NTC, initial_state: carry}
    - LinearRegressionOutput: {name: out, label: label}
data:
  batch_size: 4
  train: {dataset: npz, path: parts.npz}
train:
  epochs: 2
  optimizer: {sgd: {lr: 0.1}}
"""


def test_a_recurrent_layer_goes_on_where_the_last_batch_ended(empty_folder: Path) -> None:
    """Two batches of three steps give what one of six steps gives, if states are carried."""
    whole = np.random.default_rng(0).normal(size=(4, 6, 2)).astype("float32")
    parts = np.concatenate([whole[:, :3], whole[:, 3:]])
    label = np.zeros((8, 3, 4), "float32")
    np.savez(empty_folder / "parts.npz", data=parts, label=label)
    (empty_folder / "net.yaml").write_text(RECURRENT)
    run_training()
    carried = newest("rnn").carried
    assert [*carried] == ["rnn_carried_state", "rnn_carried_state_cell"]
    assert carried["rnn_carried_state"].shape == (2, 4, 4)
    outputs = load("runs/rnn").predict(parts, outputs=["rnn"]).values
    parameters = newest("rnn").parameters["rnn_parameters"]
    settings = {"mode": "lstm", "state_size": 4, "num_layers": 2, "layout": "NTC"}
    expected = nd.RNN(
        nd.array(whole), nd.array(parameters), initial_state="zeros", **settings
    ).asnumpy()
    np.testing.assert_allclose(outputs[:4], expected[:, :3], 1e-5, 1e-6)
    np.testing.assert_allclose(outputs[4:], expected[:, 3:], 1e-5, 1e-6)
