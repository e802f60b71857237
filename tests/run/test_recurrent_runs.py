"""Runs of recurrent networks: killed and resumed, within a budget, verified."""

from __future__ import annotations

from pathlib import Path

from interrupted_runs import CONFIG, Gone, go_on, left
from killed_runs import Moment, chain
from layer_configs import config_file
from memory_reports import verified

BODY = """\
    - Reshape: {name: rows, shape: [0, 8, 8]}
    - recurrent:
        name: rnn
        sequences: {x: rows}
        memories: {h: {layer: next, shape: [16]}}
        layers:
          - Concat: {name: both, inputs: [x, h]}
          - Dropout: {name: drop, p: 0.2}
          - FullyConnected: {name: fc, num_hidden: 16}
          - Activation: {name: next, act_type: tanh}
        outputs: [next]
        bidirectional: true
"""
LAYERS = CONFIG[
    CONFIG.index("    - Convolution") : CONFIG.index("    - FullyConnected: {name: fc2")
]
RECURRENT = CONFIG.replace(LAYERS, BODY)


def chain_end(folder: Path, overrides: tuple[str, ...]) -> Gone:
    """Return the end of a run of one epoch."""
    return go_on(folder, *overrides, "train.epochs=1", config=RECURRENT)


def test_F5_a_killed_recurrent_run_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    chain(whole, [], config=RECURRENT)
    chain(killed, [Moment(9, 0.001), Moment(40, 0.001)], config=RECURRENT)
    assert left(killed) == left(whole)
    budget = tmp_path / "budget"
    chain(budget, [], "memory.budget=90%", config=RECURRENT)
    metrics = [folder / "runs/killed/metrics.jsonl" for folder in (whole, budget)]
    assert metrics[0].read_bytes() == metrics[1].read_bytes()


def test_a_recurrent_network_is_verified(tmp_path: Path) -> None:
    path = config_file(tmp_path, RECURRENT)
    report = verified(path, ["threads=2"], steps=3)
    assert report["passed"], report["variants"]


def test_F1_planned_bytes_of_a_recurrence_are_touched(tmp_path: Path) -> None:
    for folder, overrides in (("plain", ()), ("budget", ("memory.budget=90%",))):
        memory = (chain_end(tmp_path / folder, overrides)).summary["memory"]
        assert memory["planned_bytes"] == memory["touched_bytes"] == memory["lower_bound_bytes"]
