"""Frozen weights, and warm starts from another run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layer_configs import config_text
from refusals import only_problem
from training import newest, prepare, run_training

from mxrun.base.errors import UserError
from mxrun.commands.check import check
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import TRAIN
from mxrun.graph.update_rule import averaged
from mxrun.preparation.planning import load, plan_for
from mxrun.run.warm_start import WarmStartSource
from mxrun.train.checkpoint import load_checkpoint
from mxrun.train.replay import NullObserver

CONFIG = config_text(
    """\
    - Convolution: {name: conv1, num_filter: 4, kernel: [3, 3]}
    - BatchNorm: {name: bn1, fix_gamma: false}
    - Activation: {act_type: relu}
    - FullyConnected: {name: fc1, num_hidden: 12}
    - Activation: {act_type: relu}
    - FullyConnected: {name: HEAD, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
""",
    name="first",
    settings="threads: 1\n",
    train="train: {epochs: 2, optimizer: {sgd: {lr: 0.05, momentum: 0.9, wd: 1e-2}}}\n",
)


@pytest.fixture
def _first(empty_folder: Path) -> None:
    """A run to start from, in an empty folder."""
    Path("net.yaml").write_text(CONFIG.replace("HEAD", "fc2"))
    Path("new.yaml").write_text(CONFIG.replace("HEAD", "head").replace("first", "second"))
    run_training()


def train_new(*overrides: str) -> dict[str, Any]:
    """Train the second config, whose last layer has another name."""
    return run_training(*overrides, config="new.yaml")


def read(model: ModelDefinition) -> WarmStartSource:
    return WarmStartSource.read(model, Path("runs"))


def refusal(*overrides: str) -> UserError:
    with pytest.raises(UserError) as caught:
        train_new(*overrides)
    assert not Path("runs/second").exists()
    return caught.value


@pytest.mark.usefixtures("_first")
def test_a_run_begins_with_what_evaluations_used(tmp_path: Path) -> None:
    """By default from the best checkpoint and the moving averages, as in `infer`."""
    run_training(
        *("name=other", "train.average=0.5", "train.epochs=3", "train.optimizer.sgd.lr=0"),
        "train.checkpoint.best=loss",
    )
    # At a rate of 0 no later evaluation is better than the first.
    first, last = (Path(f"runs/other/checkpoint-{22 * epoch}") for epoch in (1, 3))
    assert read(built("{run: runs/other}")).source == first
    assert read(built("{run: runs/other, checkpoint: newest}")).source == last
    assert read(built("{run: runs/other, checkpoint: 66}")).source == last
    # A bare name is that of a run in the folder of runs.
    assert read(built("{run: other}")).source == first
    assert read(built("{run: other/checkpoint-66}")).source == last
    run_training("name=moved", "train.average=0.5")
    held = newest("moved")
    means = read(built("{run: runs/moved}")).arrays
    raw = read(built("{run: runs/moved, averaged: false}")).arrays
    for name, weights in held.parameters.items():
        assert np.array_equal(means[name], held.optimizer[averaged(name)])
        assert np.array_equal(raw[name], weights)
    assert not np.array_equal(means["fc1_weight"], raw["fc1_weight"])
    for section, words in {
        "{run: runs/other, checkpoint: 5}": "there is no checkpoint '5' in runs/other",
        "{run: runs/first, checkpoint: best}": "has no best checkpoint",
        "{run: runs/other/checkpoint-66, checkpoint: best}": "is one checkpoint already",
        "{run: runs/other, checkpoint: last}": "train.start_from.checkpoint cannot be",
    }.items():
        with pytest.raises(UserError, match=words) as caught:
            read(built(section))
        assert caught.value.diagnostics[0].place is not None


def built(section: str) -> ModelDefinition:
    return load("net.yaml", (f"train.start_from={section}",))


NEW_HEAD = "train.start_from={run: runs/first, load: ['conv1_*', 'bn1_*', 'fc1_*']}"


@pytest.mark.usefixtures("_first")
def test_L3_frozen_weights_stay_byte_for_byte() -> None:
    """With weight decay and momentum; so do the statistics of batch normalisation."""
    frozen = "network.variables={'conv1_*': {frozen: true}, 'bn1_*': {frozen: true}}"
    train_new(NEW_HEAD, frozen)
    before, after = newest("first"), newest("second")
    for name in ("conv1_weight", "conv1_bias", "bn1_gamma", "bn1_beta"):
        assert after.parameters[name].tobytes() == before.parameters[name].tobytes()
    for name in ("bn1_moving_mean", "bn1_moving_var"):
        assert after.auxiliary[name].tobytes() == before.auxiliary[name].tobytes()
    for name in ("fc1_weight", "fc1_bias"):
        assert after.parameters[name].tobytes() != before.parameters[name].tobytes()
    momenta = {f"{name}:mom" for name in ("fc1_weight", "fc1_bias", "head_weight", "head_bias")}
    assert set(after.optimizer) == momenta


@pytest.mark.usefixtures("_first")
def test_L3_nothing_is_planned_for_frozen_weights() -> None:
    """No gradient, no momentum, and no backward steps below them."""
    frozen = "network.variables={'conv1_*': {frozen: true}, 'bn1_*': {frozen: true}}"
    plan = plan_for(load("new.yaml", [frozen]), training=True)
    phase = plan.phases[TRAIN]
    names = {step.name for step in phase.steps}
    assert {"fc1:backward", "head:backward:data", "fc1_weight:update"} <= names
    assert not [n for n in names if n.startswith(("conv1", "bn1")) and ("backward" in n)]
    assert not [n for n in names if n.startswith(("conv1", "bn1_g", "bn1_b")) and "update" in n]
    held = {value.name for value in phase.graph.values} | set(plan.specs)
    assert not [n for n in held if n.startswith(("conv1", "bn1")) and n.endswith(("_grad", ":mom"))]
    # The input of fc1 needs no gradient either.
    assert "bn1_output_grad" not in held
    whole = plan_for(load("new.yaml"), training=True)
    assert plan.planned_bytes < whole.planned_bytes


@pytest.mark.usefixtures("_first")
def test_L16_parameters_are_loaded_by_pattern() -> None:
    summary = train_new(NEW_HEAD, "train.optimizer.sgd.lr=0")
    started = summary["started_from"]
    states = ["bn1_moving_mean", "bn1_moving_var"]
    loaded = ["bn1_beta", "bn1_gamma", *states, "conv1_bias", "conv1_weight", "fc1_bias"]
    assert sorted(started["loaded"]) == [*loaded, "fc1_weight"]
    assert Path(started["run"]) == Path("runs/first/checkpoint-44")
    assert sorted(started["unexpected"]) == ["fc2_bias", "fc2_weight"]
    assert (started["missing"], started["misshapen"]) == ([], [])
    before, after = newest("first"), newest("second")
    # At a rate of 0 nothing else changes them.
    for name in (*loaded, "fc1_weight"):
        if name not in states:
            assert after.parameters[name].tobytes() == before.parameters[name].tobytes()
    assert json.loads(Path("runs/second/summary.json").read_text())["started_from"] == started


@pytest.mark.usefixtures("_first")
def test_the_summary_says_what_is_loaded_and_what_is_trained() -> None:
    """Each variable is loaded or initialised, and frozen, trained or a moving statistic."""
    whole = run_training("name=whole")["variables"]
    assert whole.keys() == {"trainable", "statistics"}
    assert whole["trainable"] == {
        "tensors": 8,
        "elements": 40 + 8 + 1728 + 12 + 130,
        "bytes": 4 * 1918,
        "names": ["conv1_weight", "conv1_bias", "bn1_gamma", "bn1_beta", "fc*_weight", "fc*_bias"],
    }
    assert whole["statistics"]["names"] == ["bn1_moving_mean", "bn1_moving_var"]
    groups = train_new(
        "train.start_from={run: runs/first, load: ['conv1_*', 'bn1_*', 'fc1_weight']}",
        "network.variables={'*': {frozen: true}, 'head_*': {}}",
    )["variables"]
    assert {kind: group["tensors"] for kind, group in groups.items()} == {
        "loaded": 7,
        "initialised": 3,
        "left_out": 3,
        "frozen": 8,
        "frozen_unloaded": 1,
        "trainable": 2,
    }
    assert groups["frozen_unloaded"]["names"] == ["fc1_bias"]
    assert groups["left_out"]["names"] == ["fc*_bias", "fc2_weight"]
    assert groups["trainable"]["elements"] == 130
    assert groups["trainable"]["names"] == ["head_weight", "head_bias"]
    total = sum(groups[kind]["bytes"] for kind in ("frozen", "trainable"))
    assert total == sum(groups[kind]["bytes"] for kind in ("loaded", "initialised"))


@pytest.mark.usefixtures("_first")
def test_L16_what_is_missing_misshapen_and_unexpected_is_told_at_once() -> None:
    error = refusal(
        "train.start_from={run: runs/first}",
        "network.layers[3].FullyConnected.num_hidden=16",
    )
    (diagnostic,) = error.diagnostics
    assert diagnostic.place is not None
    assert diagnostic.got == (
        "missing: head_weight, head_bias; misshapen: fc1_weight [12, 144] there, [16, 144] here, "
        "fc1_bias [12] there, [16] here; unexpected: fc2_bias, fc2_weight"
    )
    assert "strict: false" in diagnostic.hint
    summary = train_new(
        "train.start_from={run: runs/first, strict: false, skip: ['bn1_*']}",
        "network.layers[3].FullyConnected.num_hidden=16",
    )
    started = summary["started_from"]
    assert sorted(started["loaded"]) == ["conv1_bias", "conv1_weight"]
    assert started["missing"] == ["head_weight", "head_bias"]
    assert started["misshapen"] == [
        "fc1_weight [12, 144] there, [16, 144] here",
        "fc1_bias [12] there, [16] here",
    ]
    assert {"bn1_beta", "bn1_moving_var", "fc2_weight"} <= set(started["unexpected"])


@pytest.mark.usefixtures("_first")
@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("{run: runs/other}", "train.start_from: runs/other is not a run"),
        ("{run: net.yaml}", "train.start_from: net.yaml is not a run"),
        ("{run: runs/first, load: ['convv*']}", "no parameter of this network matches 'convv*'"),
        ("{run: runs/first, skip: ['fc9*']}", "no parameter of this network matches 'fc9*'"),
    ],
)
def test_L16_what_cannot_be_loaded_has_its_place(section: str, problem: str) -> None:
    overrides = (f"train.start_from={section}", "network.layers[5].FullyConnected.name=fc2")
    (diagnostic,) = refusal(*overrides).diagnostics
    assert problem in diagnostic.problem
    assert diagnostic.place is not None


@pytest.mark.usefixtures("_first")
def test_a_path_in_a_config_is_looked_for_beside_it_first() -> None:
    text = "extends: ../net.yaml\ntrain: {start_from: {run: trained/it}}\n"
    Path("project").mkdir()
    Path("project/tuned.yaml").write_text(text)
    definition = load("project/tuned.yaml")
    problem = only_problem(read, definition)
    for folder in ("project/trained/it", "trained/it", "runs/trained/it"):
        assert os.path.abspath(folder) in problem.hint
    for folder in ("runs/trained", "trained", "project/trained"):
        shutil.copytree("runs/first", f"{folder}/it")
        source = read(definition).source
        assert source is not None
        assert source.resolve().is_relative_to(Path(folder).resolve())
    # From the command line, paths are relative to the working folder.
    assert read(built("{run: trained/it}")).source == Path("trained/it/checkpoint-44")


@pytest.mark.usefixtures("_first")
def test_L16_one_checkpoint_of_a_run() -> None:
    shutil.copytree("runs/first/checkpoint-22", "elsewhere")
    section = "train.start_from={run: elsewhere, load: ['conv1_*', 'fc1_*']}"
    summary = train_new(section, "train.optimizer.sgd.lr=0")
    held = load_checkpoint(Path("elsewhere")).parameters
    after = newest("second").parameters
    assert summary["started_from"]["run"] == "elsewhere"
    assert np.array_equal(after["conv1_weight"], held["conv1_weight"])
    assert not np.array_equal(after["conv1_weight"], newest("first").parameters["conv1_weight"])


@pytest.mark.usefixtures("_first")
def test_O9_statistics_are_states_of_their_own() -> None:
    """Saved and restored; not in the optimizer, not counted as parameters, not decayed."""
    statistics = {"bn1_moving_mean", "bn1_moving_var"}
    checkpoint = newest("first")
    assert set(checkpoint.auxiliary) == statistics
    assert not [n for n in (*checkpoint.parameters, *checkpoint.optimizer) if "moving" in n]
    built = load("net.yaml")
    assert not statistics & set(built.model.parameters)
    assert not statistics & set(built.training.rules)
    report = check("net.yaml").to_json()
    counted = sum(array.size for array in checkpoint.parameters.values())
    assert counted in report.values()
    run_of = prepare(built)
    try:
        loop = run_of.loop(NullObserver())
        run_of.restore(checkpoint, loop)
        for name, array in checkpoint.auxiliary.items():
            assert np.array_equal(run_of.executor.tensor(name).values(), array)
            assert np.abs(array).max() > 0.01
    finally:
        run_of.close()
