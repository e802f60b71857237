"""Batch normalisation with frozen moving statistics: settings and results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from commands import digests
from interrupted_runs import CONFIG as EVERYTHING
from layer_configs import config_text
from refusals import only_problem
from training import prepare, run_training

from mxrun.base.errors import UserError
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import TRAIN
from mxrun.graph.update_rule import SCHEDULE
from mxrun.preparation.planning import last_batch, load, plan_for
from mxrun.run.run import Run
from mxrun.train.checkpoint import Checkpoint, load_checkpoint

Array = npt.NDArray[Any]

CONFIG = config_text(
    """\
    - Convolution: {name: conv1, num_filter: 4, kernel: [3, 3], pad: [1, 1]}
    - BatchNorm: {name: bn1, fix_gamma: false}
    - Activation: {name: relu1, act_type: relu}
    - Convolution: {name: conv2, num_filter: 4, kernel: [3, 3], pad: [1, 1], no_bias: true}
    - BatchNorm: {name: bn2}
    - elemwise_add: {name: add, lhs: bn2, rhs: relu1}
    - Activation: {name: relu2, act_type: relu}
    - FullyConnected: {name: head, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
""",
    name="first",
    settings="threads: 1\n",
    train="train: {epochs: 1, optimizer: {sgd: {lr: 0.05, momentum: 0.9, wd: 1e-2}}}\n",
)


@pytest.fixture(autouse=True)
def _config(empty_folder: Path) -> None:
    Path("net.yaml").write_text(CONFIG)


def loaded(variables: str, *overrides: str) -> ModelDefinition:
    return load("net.yaml", (f"network.variables={variables}", *overrides))


def frozen_layers(built: ModelDefinition) -> set[str]:
    """The layers with statistics that no step of the plan updates."""
    plan = plan_for(built, training=True)
    updates = {step.name for step in plan.phases[TRAIN].steps if step.name.endswith(":update")}
    states = built.model.symbol.list_auxiliary_states()
    return {name.split("_")[0] for name in states if f"{name}:update" not in updates}


@pytest.mark.parametrize(
    ("variables", "frozen"),
    [
        ("{}", ""),
        ("{'*': {frozen: true}, 'head*': {}}", "bn1 bn2"),
        ("{'bn1_*': {frozen: true}}", "bn1"),
        # bn1 learns gamma and beta, bn2 beta alone.
        ("{'*_beta': {frozen: true}}", "bn2"),
        ("{'*_beta': {frozen: true}, '*_gamma': {frozen: true}}", "bn1 bn2"),
        ("{'bn1_moving_*': {frozen: true}}", "bn1"),
        ("{'bn2_moving_mean': {frozen: true}}", "bn2"),
        ("{'conv*': {frozen: true}}", ""),
        ("{'bn*': {frozen: true}, '*_moving_*': {frozen: false}}", ""),
        ("{'bn*': {frozen: true}, 'bn1_moving_*': {frozen: false}}", "bn2"),
        ("{'bn*_beta': {frozen: true}, 'bn*_moving_*': {lr_mult: 1}}", "bn2"),
        ("{'*_beta': {frozen: true}, 'bn2_moving_*': {frozen: false}}", ""),
    ],
)
def test_what_freezes_statistics(variables: str, frozen: str) -> None:
    assert frozen_layers(loaded(variables)) == set(frozen.split())


def test_global_statistics_that_a_layer_asks_for_stay() -> None:
    text = CONFIG.replace("name: bn2", "name: bn2, use_global_stats: true")
    Path("net.yaml").write_text(text)
    assert frozen_layers(loaded("{'bn*_moving_*': {frozen: false}}")) == {"bn2"}


FROZEN = "network.variables={'*': {frozen: true}, 'conv1*': {}, 'head*': {}}"
START = "train.start_from={run: runs/first}"


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("train.accumulate=2", "backward=reverse"),
        ("memory={budget: 60%, micro_batches: true}",),
        ("fuse=false", "train.average=0.9"),
    ],
    ids=["plain", "accumulated", "micro-batches", "averaged"],
)
def test_L3_frozen_statistics_keep_every_byte(settings: tuple[str, ...]) -> None:
    run_training()
    before = load_checkpoint(Path("runs/first/checkpoint-22"))
    summary = run_training("name=second", FROZEN, START, *settings)
    after = load_checkpoint(Path(f"runs/second/checkpoint-{summary['steps']}"))
    for name in ("bn1_moving_mean", "bn1_moving_var", "bn2_moving_mean", "bn2_moving_var"):
        assert after.auxiliary[name].tobytes() == before.auxiliary[name].tobytes()
        assert np.abs(before.auxiliary[name] - float("var" in name)).max() > 0.01
    for name in ("bn1_gamma", "bn1_beta", "conv2_weight", "bn2_beta"):
        assert after.parameters[name].tobytes() == before.parameters[name].tobytes()
    assert after.parameters["conv1_weight"].tobytes() != before.parameters["conv1_weight"].tobytes()
    assert summary["memory"]["touched_bytes"] == summary["memory"]["planned_bytes"]
    assert (summary["micro_batches"] > 1) == any("micro" in word for word in settings)


def test_rows_of_a_batch_are_independent_then() -> None:
    """Therefore training pads its last batch, and micro-batches are allowed."""
    micro = "memory={budget: 50%, micro_batches: true}"
    with pytest.raises(UserError, match="mixes the samples"):
        loaded("{}", micro)
    assert last_batch(loaded("{}"), "train") == "discard"
    assert last_batch(loaded("{'bn1_*': {frozen: true}}"), "train") == "discard"
    every = "{'bn*': {frozen: true}}"
    assert last_batch(loaded(every), "train") == "pad"
    loaded(every, micro)


def one_step(*overrides: str) -> Run:
    """Return a run with random statistics after one training step on its first batch."""
    run = prepare(load("net.yaml", overrides))
    random = np.random.default_rng(5)
    for name in run.built.model.learned:
        if "moving" in name or "gamma" in name:
            array = run.executor.tensor(name).mirror().array
            array[...] = random.uniform(0.5, 2, array.shape)
    run.read_batches()
    # The learning rate and the step's number.
    run.executor.tensor(SCHEDULE).mirror().array[:2] = 0.05, 1
    run.executor.run(TRAIN)
    return run


def test_it_computes_what_global_statistics_compute() -> None:
    """Bit for bit, whichever of the surrounding layers is trained."""
    frozen = one_step(FROZEN)
    text = CONFIG.replace("name: bn1", "name: bn1, use_global_stats: true")
    Path("net.yaml").write_text(text.replace("name: bn2", "name: bn2, use_global_stats: true"))
    chosen = one_step("network.variables={'*_gamma': {frozen: true}, 'bn*_beta': {frozen: true}}")
    for name in ("conv1_weight", "conv1_bias", "head_weight"):
        assert np.array_equal(
            frozen.executor.tensor(name).values(), chosen.executor.tensor(name).values()
        ), name
    frozen.close()
    chosen.close()


SMALL = """\
name: small
threads: 1
network:
  inputs: {data: [6], label: [3]}
  layers:
    - FullyConnected: {name: fc1, num_hidden: 5}
    - BatchNorm: {name: bn, fix_gamma: false, eps: 1e-2}
    - FullyConnected: {name: fc2, num_hidden: 3}
    - LinearRegressionOutput: {name: out, label: label}
  variables:
    "*": {frozen: true}
    fc1*: {}
data:
  batch_size: 8
  train: {dataset: synthetic, split: train, records: 8}
train: {epochs: 1, optimizer: {sgd: {lr: 1, rescale_grad: 1}}, metrics: []}
"""


def test_its_gradient_is_that_of_fixed_statistics() -> None:
    """Compared with the chain rule in float64: an affine map has no terms of batch statistics."""
    Path("net.yaml").write_text(SMALL)
    run = prepare(load("net.yaml"))
    random = np.random.default_rng(3)
    for name in [*run.built.model.learned, "data", "label"]:
        array = run.executor.tensor(name).mirror().array
        array[...] = random.uniform(0.5, 2, array.shape)
    held = {n: run.executor.tensor(n).values().astype(np.float64) for n in run.built.model.learned}
    data, label = (run.executor.tensor(n).values().astype(np.float64) for n in ("data", "label"))
    run.executor.tensor("sample_weight").write(1)
    run.executor.tensor(SCHEDULE).mirror().array[:2] = 1, 1
    run.executor.run(TRAIN)
    scale = held["bn_gamma"] / np.sqrt(held["bn_moving_var"] + 1e-2)
    hidden = data @ held["fc1_weight"].T + held["fc1_bias"]
    normalized = (hidden - held["bn_moving_mean"]) * scale + held["bn_beta"]
    output = normalized @ held["fc2_weight"].T + held["fc2_bias"]
    # Gradient of half the squared distance, divided by the outputs of a sample, as in MXNet.
    hidden_grad = ((output - label) / 3) @ held["fc2_weight"] * scale
    wanted = {"fc1_weight": hidden_grad.T @ data, "fc1_bias": hidden_grad.sum(0)}
    for name, gradient in wanted.items():
        change = held[name] - run.executor.tensor(name).values()
        np.testing.assert_allclose(change, gradient, rtol=2e-5, atol=1e-5)
    for name in held.keys() - wanted.keys():
        assert np.array_equal(run.executor.tensor(name).values(), held[name]), name
    run.close()


def test_F5_a_fine_tuning_run_goes_on_to_the_same_bytes() -> None:
    """Resumed in the middle of an epoch; the pretrained run is not read again."""
    Path("net.yaml").write_text(EVERYTHING)
    run_training("name=first", "train.epochs=1")
    words = (
        *("name=second", "train.epochs=1", "train.start_from={run: runs/first, skip: ['fc2*']}"),
        "network.variables={'*': {frozen: true}, 'fc2*': {}}",
        "train.checkpoint={every: 7 steps, keep: 9}",
    )
    summary = run_training(*words)
    last = Path(f"runs/second/checkpoint-{summary['steps']}")
    expected = digests(last)
    for folder in Path("runs/second").glob("checkpoint-*"):
        if folder.name != "checkpoint-14":
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    again = run_training(*words, resume=True)
    assert again["resumed_from"] == 14
    assert digests(last) == expected
    held: Checkpoint = load_checkpoint(last)
    assert held.auxiliary.keys() == {"bn1_moving_mean", "bn1_moving_var"}


def test_statistics_of_which_one_is_frozen_are_refused() -> None:
    text = "{'bn1_moving_mean': {frozen: true}, 'bn1_moving_var': {frozen: false}}"
    problem = only_problem(loaded, text)
    assert problem.problem == (
        "BatchNorm 'bn1': some of its moving statistics are frozen, others not"
    )
    assert str(problem.place).endswith("net.yaml:7:7")
    assert problem.got == "bn1_moving_mean: true, bn1_moving_var: false"


COUNTING = '''\
"""An operator that keeps a mean, and has no form in which it does not."""

from mxrun.operator.property import PartialInference, OperatorProperty, StateUpdate
from mxrun.base.params import Parameters
from mxrun.operator.register import register
from mxrun.operator.operator import Operator


class CentreParameters(Parameters):
    """None."""


@register("centre")
class CentreProperty(OperatorProperty):
    """output = data; moving_mean follows its first column's mean."""

    type_string = "centre"
    parameter_type = CentreParameters

    def list_outputs(self):
        return ("output", "mean")

    num_visible_outputs = 1

    def list_auxiliary_states(self):
        return ("moving_mean",)

    def list_state_updates(self):
        return (StateUpdate("moving_mean", "mean", 0.5),)

    def infer_shape(self, inputs, outputs):
        data = inputs[0] or outputs[0]
        return PartialInference([data], [data, (1,)], [(1,)])

    def create_operator(self):
        return Centre()


class Centre(Operator):
    def forward(self, call):
        data = call.inputs.data
        call.store(output=data, mean=data[:, :1].mean(axis=0))

    def backward(self, call):
        call.store(data=call.output_gradients.output)
'''


@pytest.mark.usefixtures("separate_registry")
def test_a_state_that_cannot_be_frozen_is_said() -> None:
    Path("centre.py").write_text(COUNTING)
    layers = "    - centre: {name: middle}\n    - FullyConnected: {name: head"
    text = CONFIG.replace("    - FullyConnected: {name: head", layers)
    Path("net.yaml").write_text(text + "plugins: [centre.py]\n")
    loaded("{'head*': {frozen: true}}")
    problem = only_problem(loaded, "{'*': {frozen: true}, 'head*': {}}")
    assert problem.problem.startswith("centre 'middle' cannot be frozen")
    assert problem.hint == "network.variables: {middle_moving_mean: {frozen: false}}"
    built = loaded("{'*': {frozen: true}, 'head*': {}, middle_moving_mean: {frozen: false}}")
    assert frozen_layers(built) == {"bn1", "bn2"}
