"""Networks with arithmetic between layers, between parameters and layers, and as a loss."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from bundled_runs import executor_of
from layer_configs import classifier, config_file, network_text
from refusals import only_problem
from training import mean_loss, prepare

from mxrun.base.errors import UserError
from mxrun.executor.executor import Executor
from mxrun.graph.phases import TRAIN
from mxrun.preparation.planning import load
from mxrun.run.run import Run

TAIL = """\
data:
  batch_size: 32
  train: {dataset: digits, split: train, shuffle: true}
train:
  epochs: 1
  optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
  initializer: {xavier: {}}
"""
FLAT = "    - Flatten: {name: flat}\n"
SCALE = "  variables: {gain: {shape: [1, 64], init: {constant: {value: 1}}}}\n"
CLASSES = classifier(10, "classes")
# One operator with inputs data and parameter, parameter and data, data and data.
NETWORKS: Mapping[str, tuple[str, str]] = {
    "data x parameter": (SCALE, "    - broadcast_mul: {name: scale, lhs: flat, rhs: gain}\n"),
    "parameter x data": (SCALE, "    - broadcast_mul: {name: scale, lhs: gain, rhs: flat}\n"),
    "data x data": (
        "",
        """\
    - FullyConnected: {name: left, data: flat, num_hidden: 48}
    - FullyConnected: {name: right, data: flat, num_hidden: 48}
    - Activation: {name: gate, act_type: sigmoid}
    - broadcast_mul: {name: gated, lhs: left, rhs: gate}
""",
    ),
}


def prepared(folder: Path, variables: str, layers: str, *overrides: str) -> Run:
    path = config_file(folder, network_text(FLAT + layers, other_keys=variables) + TAIL)
    return prepare(load(path, ["threads=2", *overrides]))


def mean_losses(run: Run, epochs: int, loss: str = "softmax_loss") -> list[float]:
    """The mean loss of each epoch."""
    return [mean_loss(run, epoch, loss) for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize("sides", NETWORKS)
def test_L6_one_multiplication_serves_whatever_its_sides_are(tmp_path: Path, sides: str) -> None:
    variables, layers = NETWORKS[sides]
    run = prepared(tmp_path, variables, layers + CLASSES)
    losses = mean_losses(run, 6)
    assert losses[0] > 0.4
    assert losses[-1] < 0.2
    if variables:
        gain = run.executor.tensor("gain").mirror().array
        assert gain.shape == (1, 64)
        assert np.abs(gain - 1).max() > 0.05


def test_L6_the_sides_of_a_product_may_change_places(tmp_path: Path) -> None:
    """The parameter is trained to the same bits as either operand."""
    gains = []
    for sides in ("data x parameter", "parameter x data"):
        variables, layers = NETWORKS[sides]
        run = prepared(tmp_path, variables, layers + CLASSES)
        mean_losses(run, 1)
        gains.append(run.executor.tensor("gain").values().tobytes())
    assert gains[0] == gains[1]


@pytest.mark.parametrize(
    "layer",
    [
        "    - elemwise_mul: {name: scale}\n",
        "    - elemwise_mul: {name: scale, lhs: flat}\n",
        "    - elemwise_mul: {name: scale, inputs: [flat]}\n",
        "    - _mul: {name: scale}\n",
        "    - broadcast_mul: {name: scale}\n",
    ],
)
def test_L6_an_unwired_side_is_an_error_unless_it_is_declared(tmp_path: Path, layer: str) -> None:
    problem = only_problem(prepared, tmp_path, "", layer + CLASSES)
    assert problem.problem.endswith("mul 'scale': no tensor for 'rhs'")
    assert problem.place is not None
    assert "rhs: NAME" in problem.hint
    assert "declare network.variables.scale_rhs" in problem.hint
    declared = "  variables: {scale_rhs: {shape: [32, 64]}}\n"
    run = prepared(tmp_path, declared, layer + CLASSES)
    assert run.built.model.parameters["scale_rhs"].shape == (32, 64)


def test_a_selection_needs_all_its_tensors(tmp_path: Path) -> None:
    problem = only_problem(
        prepared, tmp_path, "", "    - where: {name: pick, condition: flat, x: flat}\n" + CLASSES
    )
    assert problem.problem == "where 'pick': no tensor for 'y'"


def test_first_states_of_rnn_are_no_parameters(tmp_path: Path) -> None:
    layers = "    - Reshape: {shape: [0, 8, 8]}\n    - RNN: {name: rnn, mode: gru, state_size: 4, "
    layers += "num_layers: 1, layout: NTC}\n"
    problem = only_problem(prepared, tmp_path, "", layers + CLASSES)
    assert problem.problem == "RNN 'rnn': no tensor for 'state'"
    assert "initial_state: zeros" in problem.hint
    prepared(tmp_path, "", layers.replace("NTC", "NTC, initial_state: zeros") + CLASSES)


def test_L6_a_declared_side_that_broadcasts_needs_its_shape(tmp_path: Path) -> None:
    declared = "  variables: {scale_rhs: {lr_mult: 2}}\n"
    with pytest.raises(UserError) as caught:
        prepared(tmp_path, declared, "    - broadcast_mul: {name: scale}\n" + CLASSES)
    hints = {diagnostic.problem: diagnostic.hint for diagnostic in caught.value.diagnostics}
    hint = hints["not enough is known: need shape of 'scale_rhs'"]
    assert "scale_rhs: {shape: [...]}" in hint


def test_arithmetic_makes_a_loss_that_trains(tmp_path: Path) -> None:
    """Standardised data, scaled activations and the cross-entropy as a function like others."""
    layers = """\
    - mean: {name: center, axis: 1, keepdims: true}
    - broadcast_sub: {name: centered, lhs: flat, rhs: center}
    - FullyConnected: {name: hidden, num_hidden: 32}
    - clip: {name: clipped, a_min: 0, a_max: 6}
    - _div_scalar: {name: halved, scalar: 2}
    - FullyConnected: {name: classes, num_hidden: 10}
    - softmax_cross_entropy: {name: entropy, label: label}
"""
    losses = mean_losses(prepared(tmp_path, "", layers, "train.metrics=[]"), 4, "entropy_output")
    assert losses[-1] < 0.3 < losses[0]


MIXED = """\
    - FullyConnected: {name: left, data: flat, num_hidden: 24}
    - FullyConnected: {name: right, data: flat, num_hidden: 24}
    - max: {name: largest, data: left, axis: 1, keepdims: true}
    - broadcast_sub: {name: below, lhs: left, rhs: largest}
    - clip: {name: clipped, a_min: -8, a_max: 0}
    - softmax: {name: gate, data: right, temperature: 2}
    - elemwise_mul: {name: gated, lhs: clipped, rhs: gate}
    - _rminus_scalar: {name: turned, scalar: 1}
    - dot: {name: products, lhs: turned, rhs: mixing}
    - elemwise_sub: {name: again, lhs: products, rhs: gated}
    - broadcast_div: {name: scaled, lhs: again, rhs: divisor}
    - log_softmax: {name: logarithms}
"""
MIXING = """\
  variables:
    mixing: {shape: [24, 24]}
    divisor: {shape: [1, 24], init: {constant: {value: 2}}}
"""


def feed(executor: Executor) -> None:
    random = np.random.default_rng(0)
    executor.tensor("data").write(random.random(executor.tensor("data").values().shape))
    executor.tensor("label").write(random.integers(0, 10, 32))
    executor.tensor("sample_weight").write(1)


def test_S4_P9_arithmetic_shares_memory_without_changing_a_bit(tmp_path: Path) -> None:
    """With and without in-place and reuse, and with all free memory poisoned."""
    built = prepared(tmp_path, MIXING, MIXED + CLASSES).built
    gradients = []
    for options in ({}, {"in_place": False}, {"in_place": False, "reuse": False}):
        executor = executor_of(built, gradients=True, **options)
        feed(executor)
        for run in (executor.run, executor.run_poisoned):
            run(TRAIN)
            names = built.model.parameters
            gradients.append(
                [executor.result(TRAIN, f"{name}_grad").values().tobytes() for name in names]
            )
    assert all(found == gradients[0] for found in gradients)
    taken = [
        hint for hint in executor_of(built, gradients=True).plan.phases[TRAIN].hints if hint.taken
    ]
    assert {"gated:backward", "turned", "scaled:backward"} & {hint.step for hint in taken}


def test_P12_compiled_arithmetic_trains_like_the_readable_one(tmp_path: Path) -> None:
    runs = [prepared(tmp_path, MIXING, MIXED + CLASSES) for _ in range(2)]
    compiled = runs[0].plan.phases[TRAIN].implementations()
    assert "numpy" not in compiled.values()
    readable = executor_of(runs[1].built, gradients=True, implementation="numpy")
    ours = executor_of(runs[0].built, gradients=True)
    for executor in (ours, readable):
        feed(executor)
        executor.run(TRAIN)
    for name in runs[0].built.model.parameters:
        one, other = (e.result(TRAIN, f"{name}_grad").values() for e in (ours, readable))
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())
