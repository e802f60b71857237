"""Settings of operators, variables and backward in a config, and their effect on the run."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from bundled_runs import BUNDLED, bundled, executor_of
from layer_configs import config_file
from networks import same_bits
from training import prepare, take_steps

from mxrun.commands.check import check
from mxrun.device.cpu.call import NativeCall
from mxrun.device.cpu.tape import Tape
from mxrun.graph.graph import Step, StepKind
from mxrun.graph.phases import TRAIN
from mxrun.operator.kernel import OpReqType
from mxrun.preparation.planning import load
from mxrun.run.run import Run

CONFIG = """\
name: net
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Convolution: {name: conv1, num_filter: 8, kernel: [3, 3], pad: [1, 1]}
    - Activation: {name: relu1, act_type: relu}
    - Convolution: {name: conv2, num_filter: 8, kernel: [3, 3], pad: [1, 1]}
    - Activation: {name: relu2, act_type: relu}
    - Pooling: {name: pool, pool_type: max, kernel: [2, 2], stride: [2, 2]}
    - FullyConnected: {name: fc1, num_hidden: 24}
    - Activation: {name: tanh, act_type: tanh}
    - FullyConnected: {name: fc2, num_hidden: 24}
    - FullyConnected: {name: fc3, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 32
  train: {dataset: digits, split: train, shuffle: true}
train:
  epochs: 1
  optimizer: {sgd: {lr: 0.05, momentum: 0.9, wd: 1e-2}}
"""
Arrays = dict[str, npt.NDArray[np.float32]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return config_file(tmp_path, CONFIG)


def prepared(path: Path, *overrides: str) -> Run:
    built = load(path, ["threads=2", *overrides])
    return prepare(built)


def pinned(run: Run) -> Arrays:
    names = [b.name for b in run.plan.pinned if b.name not in run.built.model.inputs]
    return {name: run.executor.tensor(name).read() for name in names}


def trained(run: Run, steps: int) -> Arrays:
    """Parameters and states after some steps on the run's own batches."""
    take_steps(run, steps)
    return pinned(run)


def steps_of(run: Run) -> dict[str, Step]:
    return {step.name: step for step in run.plan.phases[TRAIN].steps}


@pytest.mark.parametrize("name", BUNDLED)
def test_L5_the_first_layers_data_gradient_is_not_computed(name: str) -> None:
    """It has neither a step nor a value, and the backward call has no output for it."""
    built = bundled(name)
    executor = executor_of(built)
    phase = executor.plan.phases[TRAIN]
    first = next(
        step
        for step in phase.steps
        if step.kind is StepKind.FORWARD and step.prop and not step.prop.is_view
    )
    backward = next(step for step in phase.steps if step.forward == first.name)
    assert backward.requests[0] is OpReqType.NULL
    assert backward.outputs[0] is None
    assert not any(value.name.startswith("data_grad") for value in phase.graph.values)
    later = [
        step
        for step in phase.steps
        if step.forward not in (None, first.name) and step.prop is not None
    ]
    assert later
    # All other layers compute it, some in a separate step.
    computed = {step.forward for step in later if step.outputs[0] is not None}
    assert computed == {step.forward for step in later}


def test_L5_a_first_layer_has_fewer_calls_than_the_same_layer_later(config: Path) -> None:
    """If requested, the data gradient is a separate call, which the first layer does not have."""
    run = prepared(config)
    # Calls that can fail are primitives; the others add sums around them.
    program = run.executor.programs[TRAIN]
    assert isinstance(program, Tape)
    calls = [
        entry.name
        for entry in program.entries
        if isinstance(entry.call, NativeCall) and (entry.call.checked or entry.call.failed)
    ]
    later = [call for call in calls if call.startswith("conv2:backward:")]
    assert calls.count("conv1:backward") == len(later) - 1 >= 1


ONEDNN = {"Convolution"}


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the oneDNN package is there on x86-64 Linux only",
)
def test_P12_onednn_is_chosen_where_it_is(config: Path) -> None:
    run = prepared(config)
    chosen = run.plan.phases[TRAIN].implementations()
    for step in run.plan.phases[TRAIN].steps:
        if step.prop is not None and step.prop.type_string in ONEDNN and step.name in chosen:
            assert chosen[step.name].startswith("onednn"), step.name
            # These allocate outside the plan.
            assert "gemm" not in chosen[step.name]


def test_P12_implementations_of_a_config_agree(config: Path) -> None:
    """With each layer in turn as `numpy`, the others on oneDNN, and with all of them as `numpy`."""
    expected = trained(prepared(config), 3)
    layers = {0: "Convolution", 2: "Convolution", 4: "Pooling", 5: "FullyConnected"}
    numpy = [f"network.layers[{i}].{kind}.implementation=numpy" for i, kind in layers.items()]
    for overrides in (*([one] for one in numpy), numpy):
        run = prepared(config, *overrides)
        chosen = run.plan.phases[TRAIN].implementations()
        asked = [("conv1", "conv2", "pool", "fc1")[numpy.index(one)] for one in overrides]
        for name in asked:
            assert chosen[name] == "numpy"
            backward = [chosen[step] for step in chosen if step.startswith(f"{name}:backward")]
            assert set(backward) == {"numpy"}
        found = trained(run, 3)
        for parameter, value in expected.items():
            largest = float(np.abs(value).max())
            np.testing.assert_allclose(
                found[parameter], value, rtol=0, atol=2e-5 * largest, err_msg=parameter
            )


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the oneDNN package is there on x86-64 Linux only",
)
def test_P12_onednn_asked_for_is_what_auto_takes(config: Path) -> None:
    override = "network.layers[0].Convolution.implementation=onednn"
    run, plain = prepared(config, override), prepared(config)
    assert run.plan.phases[TRAIN].implementations() == plain.plan.phases[TRAIN].implementations()
    assert same_bits(trained(run, 2), trained(plain, 2))


def test_L3_frozen_variables_keep_every_byte(config: Path) -> None:
    """By pattern, with weight decay and momentum, and without any step of their backward."""
    run = prepared(config, "network.variables={'conv*': {frozen: true}}")
    before = pinned(run)
    after = trained(run, 5)
    frozen = {"conv1_weight", "conv1_bias", "conv2_weight", "conv2_bias"}
    for name in run.built.model.parameters:
        assert (after[name].tobytes() == before[name].tobytes()) == (name in frozen), name
    assert not {f"{name}:mom" for name in frozen} & set(after)
    steps = steps_of(run)
    below = {f"{name}:backward" for name in ("conv1", "relu1", "conv2", "relu2", "pool")}
    assert not below & set(steps)
    assert "fc1:backward" in steps
    assert run.plan.planned_bytes < prepared(config).plan.planned_bytes


def test_lr_mult_and_wd_mult_act_on_their_variables(config: Path) -> None:
    """With plain sgd a step is lr * lr_mult * (gradient / batch + wd * wd_mult * weight)."""
    sgd = "train.optimizer={sgd: {lr: 0.05, wd: 1e-2}}"
    plain = prepared(config, sgd)
    start, one = pinned(plain), trained(plain, 1)
    fast = trained(prepared(config, sgd, "network.variables={'fc1_*': {lr_mult: 3}}"), 1)
    none = trained(prepared(config, sgd, "network.variables={fc1_weight: {wd_mult: 0}}"), 1)
    bias = trained(
        prepared(
            config, sgd, "network.variables={fc1_bias: {init: {constant: {value: 2}}, wd_mult: 1}}"
        ),
        0,
    )
    assert (bias["fc1_bias"] == 2).all()
    step = {name: one[name] - start[name] for name in plain.built.model.parameters}
    for name, moved in step.items():
        factor = 3 if name.startswith("fc1_") else 1
        np.testing.assert_allclose(
            fast[name] - start[name], factor * moved, rtol=1e-3, atol=2e-7, err_msg=name
        )
    decay = 0.05 * 1e-2 * start["fc1_weight"]
    np.testing.assert_allclose(
        none["fc1_weight"] - start["fc1_weight"],
        step["fc1_weight"] + decay,
        rtol=1e-3,
        atol=2e-7,
    )
    assert float(np.abs(decay).max()) > 1e-5
    assert (one["fc1_bias"] != start["fc1_bias"]).any()


def test_weight_decay_leaves_biases_alone(config: Path) -> None:
    """All gradients are rescaled to zero, so that only weight decay changes parameters."""
    override = "train.optimizer={sgd: {lr: 0.5, wd: 0.5, rescale_grad: 1e-30}}"
    run = prepared(
        config,
        override,
        "train.initializer={constant: {value: 1}}",
        "network.variables={'*_bias': {init: {constant: {value: 1}}}, "
        "fc3_bias: {init: {constant: {value: 1}}, wd_mult: 1}}",
    )
    after = trained(run, 1)
    np.testing.assert_allclose(after["fc1_weight"], 0.75)
    np.testing.assert_allclose(after["fc1_bias"], 1)
    np.testing.assert_allclose(after["fc3_bias"], 0.75)


def test_L2_a_weight_shared_by_name_is_one_array_and_one_update(config: Path) -> None:
    run = prepared(config, "network.layers[7].FullyConnected={name: fc2, num_hidden: 24}")
    assert "fc2_weight" in run.built.model.parameters
    text = CONFIG.replace(
        "    - FullyConnected: {name: fc3, num_hidden: 10}\n",
        "    - FullyConnected: {name: again, num_hidden: 24, weight: fc2_weight, bias: fc2_bias}\n"
        "    - FullyConnected: {name: fc3, num_hidden: 10}\n",
    )
    config.write_text(text)
    shared = prepared(config)
    assert list(shared.built.model.parameters) == list(run.built.model.parameters)
    assert sum(block.name == "fc2_weight" for block in shared.plan.pinned) == 1
    steps = [step.name for step in shared.plan.phases[TRAIN].steps]
    assert steps.count("fc2_weight:update") == 1
    report = check(config)
    assert {row.name: row.parameters for row in report.rows}["again"] == 0
    config.write_text(text.replace("weight: fc2_weight, bias: fc2_bias", "flatten: true"))
    # Against two layers with equal weights of their own the gradient is the sum.
    apart = executor_of(load(config), gradients=True)
    config.write_text(text)
    together = executor_of(load(config), gradients=True)
    for name in ("weight", "bias"):
        apart.tensor(f"again_{name}").write(apart.tensor(f"fc2_{name}").values())
    for block in together.plan.pinned:
        random = np.random.default_rng(5)
        array = together.tensor(block.name).mirror().array
        if block.name == "data":
            array[...] = random.random(array.shape)
        elif block.name == "label":
            array[...] = random.integers(0, 10, array.shape)
        elif block.name == "sample_weight":
            array[...] = 1
        apart.tensor(block.name).write(array)
    for name in ("weight", "bias"):
        apart.tensor(f"again_{name}").write(apart.tensor(f"fc2_{name}").values())
    apart.run(TRAIN)
    together.run(TRAIN)
    for name in ("weight", "bias"):
        parts = [apart.result(TRAIN, f"{layer}_{name}_grad").values() for layer in ("fc2", "again")]
        total = together.result(TRAIN, f"fc2_{name}_grad").values()
        np.testing.assert_allclose(total, parts[0] + parts[1], rtol=1e-5, atol=1e-7)
        assert float(np.abs(total).max()) > 1e-4


@pytest.mark.parametrize("name", BUNDLED)
def test_L12_reverse_backward_from_a_config_gives_the_same_bits(name: str) -> None:
    explicit, reverse = (
        prepare(built) for built in (bundled(name), bundled(name, "backward=reverse"))
    )
    assert reverse.built.options.backward == "reverse"
    first = pinned(explicit)
    left, right = trained(explicit, 4), trained(reverse, 4)
    assert same_bits(left, right)
    assert not same_bits(left, first)


def test_L12_reverse_backward_sums_shared_weights_and_skips_alike(config: Path) -> None:
    config.write_text(
        CONFIG.replace(
            "    - FullyConnected: {name: fc3, num_hidden: 10}\n",
            "    - FullyConnected: {name: again, num_hidden: 24, weight: fc2_weight}\n"
            "    - elemwise_add: {name: sum, lhs: again, rhs: tanh}\n"
            "    - FullyConnected: {name: fc3, num_hidden: 10}\n",
        )
    )
    frozen = "network.variables={'conv1_*': {frozen: true}}"
    left, right = (
        trained(prepared(config, frozen, f"backward={style}"), 4)
        for style in ("explicit_graph", "reverse")
    )
    assert same_bits(left, right)
