"""Networks with branches: several inputs and outputs, views, embeddings, custom losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from bundled_runs import executor_of
from layer_configs import classifier, config_file, config_text, problems
from oracles.peer import MXNet
from training import mean_loss, prepare

from mxrun.base.errors import UserError
from mxrun.base.tensor import PLAIN, Layout
from mxrun.executor.executor import Executor
from mxrun.frontend import ModelDefinition
from mxrun.graph.graph import Step
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import load_json
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.preparation.planning import load

DIGITS = "{dataset: digits, split: train, shuffle: true}"
# Layers on images; `{0}` is the tested part, between an input and two heads.
IMAGES = """\
    - Convolution: {name: conv, num_filter: 6, kernel: [3, 3], pad: [1, 1]}
    - Activation: {name: relu, act_type: relu}
    - Convolution: {name: other, inputs: [relu], num_filter: 6, kernel: [1, 1]}
"""
HEAD = classifier(10)
TRAINING = """\
train:
  epochs: 1
  optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
"""
Array = npt.NDArray[Any]


def written(folder: Path, layers: str, train: str = DIGITS, **network: str) -> Path:
    data = f"data:\n  batch_size: 32\n  train: {train}\n"
    return config_file(folder, config_text(layers, data=data, train=TRAINING, **network))


def loaded(path: Path, *overrides: str) -> ModelDefinition:
    return load(path, ["threads=2", *overrides])


def filled(executor: Executor, built: ModelDefinition) -> Executor:
    """Return the executor with synthetic records in its slots, all rows valid."""
    random = np.random.default_rng(5)
    for name in built.model.inputs:
        array = executor.tensor(name).mirror().array
        if array.dtype == np.int32:
            array[...] = random.integers(0, 10, array.shape)
        else:
            array[...] = random.random(array.shape)
    executor.tensor(SAMPLE_WEIGHT).write(1)
    return executor


def gradients(built: ModelDefinition, **options: Any) -> dict[str, Array]:
    """Return the gradients of all parameters on synthetic records."""
    executor = filled(executor_of(built, gradients=True, **options), built)
    executor.run(TRAIN)
    return {name: executor.result(TRAIN, f"{name}_grad").read() for name in built.model.parameters}


def steps(built: ModelDefinition, **options: Any) -> dict[str, Step]:
    phase = executor_of(built, gradients=True, **options).plan.phases[TRAIN]
    return {step.name: step for step in phase.steps}


def losses(built: ModelDefinition, count: int) -> list[float]:
    """The mean loss of each of `count` epochs' last batches."""
    run = prepare(built)
    (loss,) = built.model.losses
    return [mean_loss(run, epoch, loss.loss) for epoch in range(1, count + 1)]


def node_parameters(built: ModelDefinition, name: str) -> dict[str, str]:
    (node,) = (node for node in built.model.symbol.nodes if node.name == name)
    assert node.prop is not None
    return node.prop.parameters.to_strings()


CONCAT_IN_PLACE = {
    "Concat: {name: join, inputs: [relu, other, conv]}": {"num_args": "3"},
    "Concat: {name: join, inputs: [relu, other], dim: 2}": {"num_args": "2", "dim": "2"},
    "Concat: {name: join, num_args: 2, inputs: [relu, other], dim: -1}": {
        "num_args": "2",
        "dim": "-1",
    },
    "Concat: {name: join, arg0: relu, arg1: other}": {"num_args": "2"},
    "Concat: {name: join, arg1: relu}": {"num_args": "2"},
    "concat: {name: join, inputs: [relu], arg1: other}": {"num_args": "2"},
    "Concat: {name: join, num_args: 1}": {"num_args": "1"},
    "add_n: {name: join, inputs: [relu, other, conv, relu]}": {"num_args": "4"},
    "ElementWiseSum: {name: join, inputs: [other, other, other]}": {"num_args": "3"},
}


@pytest.mark.parametrize("layer", CONCAT_IN_PLACE)
def test_P19_num_args_follows_the_wired_inputs(layer: str, tmp_path: Path) -> None:
    built = loaded(written(tmp_path, f"{IMAGES}    - {layer}\n{HEAD}"))
    assert node_parameters(built, "join") == CONCAT_IN_PLACE[layer]
    (join,) = (node for node in built.model.symbol.nodes if node.name == "join")
    assert not any(entry.node.is_variable for entry in join.inputs)


@pytest.mark.parametrize("layer", CONCAT_IN_PLACE)
def test_P19_every_form_computes_what_the_readable_bodies_do(layer: str, tmp_path: Path) -> None:
    built = loaded(written(tmp_path, f"{IMAGES}    - {layer}\n{HEAD}"))
    close(gradients(built), gradients(built, implementation="numpy"))


def close(got: dict[str, Array], want: dict[str, Array]) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        largest = float(np.abs(value).max())
        assert largest > 0, name
        np.testing.assert_allclose(got[name], value, rtol=0, atol=2e-5 * largest, err_msg=name)


@pytest.mark.parametrize(
    ("layer", "column", "problem", "expected"),
    [
        (
            "Concat: {name: join, inputs: [relu, other], num_args: 3}",
            *(61, "has 2 inputs, but num_args differs", "num_args: 2"),
        ),
        (
            "add_n: {name: join, num_args: 2}",
            *(37, "has 1 input, but num_args differs", "num_args: 1"),
        ),
        ("Concat: {name: join}", 7, "Concat 'join' needs its inputs", ""),
        (
            "Concat: {name: join, arg0: relu, arg3: other}",
            *(7, "has an argument arg3, but no arg1, arg2", ""),
        ),
        ("add_n: {name: join, inputs: [relu], arg12345: other}", 43, "'arg12345'", "num_args"),
        (
            "Concat: {name: join, inputs: [relu, other], dim: 4}",
            *(7, "contradict each other at 'arg0'", "axis 4 inside"),
        ),
        (
            "Concat: {name: join, inputs: [other, data], dim: 2}",
            *(7, "contradict each other at 'arg1'", "all axes but 2 are equal"),
        ),
        (
            "Concat: {name: join, arg0: relu, arg1: other, dim: 1.5}",
            *(58, "parameter 'dim' cannot be 1.5", "integer"),
        ),
    ],
)
def test_P19_what_is_wired_wrongly_is_one_diagnostic(
    layer: str, column: int, problem: str, expected: str, tmp_path: Path
) -> None:
    (found,) = problems(written(tmp_path, f"{IMAGES}    - {layer}\n{HEAD}"))
    assert problem in found.problem
    assert expected in found.expected
    assert found.place is not None
    assert (found.place.line, found.place.column) == (8, column)


SPLIT = "    - SliceChannel: {name: split, num_outputs: 3}\n"


@pytest.mark.parametrize(
    ("reference", "problem", "expected"),
    [
        ("split[3]", "'split' has no output 3", "3 outputs: split[0], split[1], split[2]"),
        ("softmax[1]", "output 1 of 'softmax', 'loss', is hidden", "1 output: softmax[0]"),
        ("softmax[2]", "'softmax' has no output 2", "1 output: softmax[0]"),
    ],
)
def test_P11_a_hidden_output_cannot_be_wired(
    reference: str, problem: str, expected: str, tmp_path: Path
) -> None:
    tail = f"    - FullyConnected: {{name: last, num_hidden: 2, data: '{reference}'}}\n"
    path = written(tmp_path, f"{IMAGES}{SPLIT}{HEAD}{tail}")
    (found,) = problems(path)
    assert (found.problem, found.expected) == (problem, expected)
    assert found.place is not None
    assert (found.place.line, found.place.column) == (11, 57)


def test_P11_nor_be_an_output_of_the_network(tmp_path: Path) -> None:
    other_keys = "  outputs: [softmax, 'softmax[1]']\n"
    (found,) = problems(written(tmp_path, f"{IMAGES}{HEAD}", other_keys=other_keys))
    assert found.problem == "output 1 of 'softmax', 'loss', is hidden"
    assert found.place is not None
    assert (found.place.line, found.place.column) == (4, 22)


def test_P11_many_outputs_are_named_in_short(tmp_path: Path) -> None:
    many = "    - FullyConnected: {name: wide, num_hidden: 20}\n"
    split = "    - split: {name: parts, num_outputs: 20}\n"
    tail = "    - FullyConnected: {name: last, num_hidden: 2, data: 'parts[20]'}\n"
    (found,) = problems(written(tmp_path, many + split + tail + HEAD))
    assert found.expected == "20 outputs: parts[0], ..., parts[19]"


SPLIT_FEATURES = """\
    - FullyConnected: {name: features, num_hidden: 24}
    - SliceChannel: {name: split, num_outputs: 2}
    - FullyConnected: {name: fc, num_hidden: 10, data: 'split[1]'}
    - SoftmaxOutput: {name: softmax, label: label}
"""


@pytest.mark.parametrize("options", [{}, {"implementation": "numpy"}, {"backward": "reverse"}])
def test_L15_an_output_that_nothing_reads_has_no_gradient_and_no_zeros_are_planned(
    options: dict[str, str], tmp_path: Path
) -> None:
    built = loaded(written(tmp_path, SPLIT_FEATURES))
    backward = steps(built, **options)["split:backward"]
    assert backward.inputs[0] is None
    assert backward.inputs[1] is not None
    phase = executor_of(built, gradients=True, **options).plan.phases[TRAIN]
    assert not any(value.name.startswith("split_output0_grad") for value in phase.graph.values)
    found = gradients(built, **options)
    assert not found["features_weight"][:12].any()
    assert not found["features_bias"][:12].any()
    assert found["features_weight"][12:].all(axis=1).any()


def test_L15_the_other_head_has_the_gradient_of_a_network_without_the_first(
    tmp_path: Path,
) -> None:
    """Half of the features, with the weights of the second half, give the same gradients."""
    whole = loaded(written(tmp_path, SPLIT_FEATURES))
    half = loaded(
        written(
            tmp_path,
            "    - FullyConnected: {name: features, num_hidden: 12}\n" + HEAD,
        )
    )
    left = filled(executor_of(whole, gradients=True), whole)
    right = filled(executor_of(half, gradients=True), half)
    for name in ("features_weight", "features_bias"):
        right.tensor(name).write(left.tensor(name).values()[12:])
    for name in ("fc_weight", "fc_bias"):
        right.tensor(name).write(left.tensor(name).values())
    for executor in (left, right):
        executor.run(TRAIN)
    for name in ("features_weight", "features_bias"):
        np.testing.assert_allclose(
            left.result(TRAIN, f"{name}_grad").values()[12:],
            right.result(TRAIN, f"{name}_grad").values(),
            rtol=1e-4,
            atol=1e-5,
        )


# One value read in three shapes, between convolutions that are channels-last.
VIEWS = """\
    - Convolution: {name: conv, num_filter: 16, kernel: [3, 3], pad: [1, 1]}
    - Reshape: {name: wide, shape: [0, 4, 4, 8, 8]}
    - Reshape: {name: back, shape: [0, -3, -2]}
    - Activation: {name: tanh, act_type: tanh}
    - Convolution: {name: next, num_filter: 16, kernel: [3, 3], pad: [1, 1]}
    - Reshape: {name: rows, data: conv, shape: [0, 16, -1]}
    - Activation: {name: relu, act_type: relu}
    - Reshape: {name: images, shape: [0, 0, 8, 8]}
    - expand_dims: {name: one, data: wide, axis: 1}
    - Activation: {name: sigmoid, act_type: sigmoid}
    - squeeze: {name: none, axis: 1}
    - Reshape: {name: again, shape: [0, -3, 0, 0]}
    - BlockGrad: {name: blocked, data: next}
    - add_n: {name: sum, inputs: [next, images, again, conv, back, blocked]}
    - transpose: {name: last, axes: [0, 2, 3, 1]}
    - SwapAxis: {name: swapped, dim1: 1, dim2: 3}
    - SliceChannel: {name: split, axis: 3, num_outputs: 2}
    - Concat: {name: join, inputs: ['split[1]', 'split[0]', swapped], dim: 3}
"""


def layout(step: Step) -> Layout:
    """Return the layout of the step's first output."""
    assert step.kernel is not None
    assert step.kernel.outputs[0] is not None
    return step.kernel.outputs[0].layout


def test_views_with_several_readers_between_channels_last_layers(tmp_path: Path) -> None:
    built = loaded(written(tmp_path, VIEWS + HEAD))
    close(gradients(built), gradients(built, implementation="numpy"))
    taken = steps(built)
    assert layout(taken["conv"]) != PLAIN
    # A view of the same shape does not change the layout.
    assert layout(taken["blocked"]) == layout(taken["next"]) != PLAIN
    assert layout(taken["rows"]) == PLAIN
    views = {name for name, step in taken.items() if step.kernel and step.kernel.is_view}
    forward = {"wide", "back", "rows", "images", "one", "none", "again", "blocked"}
    assert views == forward | {f"{name}:backward" for name in forward - {"blocked"}}


@pytest.mark.parametrize("implementation", ["auto", "numpy"])
def test_no_sharing_of_memory_and_no_second_backward_changes_a_bit(
    implementation: str, tmp_path: Path
) -> None:
    built = loaded(written(tmp_path, VIEWS + HEAD))
    expected = gradients(built, implementation=implementation)
    for options in ({"in_place": False}, {"reuse": False}, {"backward": "reverse"}):
        found = gradients(built, implementation=implementation, **options)
        for name, value in expected.items():
            assert found[name].tobytes() == value.tobytes(), (name, options)


def test_a_weight_may_be_a_view_of_a_parameter(tmp_path: Path) -> None:
    """Updates overwrite the parameter, and thereby the view, after all of its readers."""
    viewed = (
        "    - Reshape: {name: weight, data: base, shape: [16, -1]}\n"
        "    - FullyConnected: {name: fc0, data: data, weight: weight, num_hidden: 16}\n"
        "    - FullyConnected: {name: fc1, weight: square, num_hidden: 16}\n"
        "    - Reshape: {name: again, data: square, shape: [-1]}\n"
        "    - Reshape: {name: back, shape: [16, 16]}\n"
        "    - FullyConnected: {name: fc2, data: fc1, weight: back, num_hidden: 16}\n"
    )
    plain = (
        "    - FullyConnected: {name: fc0, weight: base, num_hidden: 16}\n"
        "    - FullyConnected: {name: fc1, weight: square, num_hidden: 16}\n"
        "    - FullyConnected: {name: fc2, weight: square, num_hidden: 16}\n"
    )
    shape, trained = "[16, 8, 8]", []
    for layers in (viewed, plain):
        other_keys = (
            f"  variables: {{base: {{shape: {shape}, init: {{uniform: {{scale: 0.1}}}}}}, "
            "square: {shape: [16, 16], init: {uniform: {scale: 0.1}}}}\n"
        )
        shape = "[16, 64]"
        run = prepare(loaded(written(tmp_path, layers + HEAD, other_keys=other_keys)))
        (loss,) = run.built.model.losses
        mean_loss(run, 1, loss.loss)
        trained.append(
            {name: run.executor.tensor(name).read() for name in run.built.model.parameters}
        )
    assert {"base", "square"} <= trained[0].keys()
    for name, value in trained[1].items():
        assert trained[0][name].tobytes() == value.tobytes(), name


BLOCKED = """\
    - FullyConnected: {name: fc0, num_hidden: 12}
    - BlockGrad: {name: blocked}
    - FullyConnected: {name: fc1, num_hidden: 12}
    - add_n: {name: sum, inputs: [fc0, fc1]}
"""


@pytest.mark.parametrize("backward", ["explicit_graph", "reverse"])
def test_nothing_is_computed_for_a_gradient_that_is_blocked(backward: str, tmp_path: Path) -> None:
    built = loaded(written(tmp_path, BLOCKED + HEAD))
    found = steps(built, backward=backward)
    assert "blocked:backward" not in found
    if backward == "explicit_graph":
        assert found["fc1:backward"].outputs[0] is None
    plain = gradients(built, backward=backward)
    open_path = loaded(
        written(tmp_path, BLOCKED.replace("BlockGrad: {name", "Flatten: {name") + HEAD)
    )
    passed = gradients(open_path, backward=backward)
    np.testing.assert_array_equal(plain["fc1_weight"], passed["fc1_weight"])
    assert np.abs(plain["fc0_weight"] - passed["fc0_weight"]).max() > 1e-3


def test_what_only_a_blocked_path_reaches_cannot_be_trained(tmp_path: Path) -> None:
    layers = BLOCKED.replace("inputs: [fc0, fc1]", "inputs: [fc1]")
    with pytest.raises(UserError, match="no loss depends on 'fc0_weight'"):
        prepare(loaded(written(tmp_path, layers + HEAD)))
    frozen = "network.variables={'fc0_*': {frozen: true}}"
    prepare(loaded(written(tmp_path, layers + HEAD), frozen))


def test_a_branched_network_learns_digits(tmp_path: Path) -> None:
    values = losses(loaded(written(tmp_path, VIEWS + HEAD), "train.optimizer.sgd.lr=0.01"), 3)
    assert values[0] < 2.3
    assert values[2] < 0.5 * values[0]


OWN_LOSS = """\
    - Reshape: {name: pixels, shape: [0, -1]}
    - FullyConnected: {name: code, num_hidden: 16}
    - Activation: {name: tanh, act_type: tanh}
    - FullyConnected: {name: decoded, num_hidden: 64}
    - elemwise_sub: {name: error, lhs: decoded, rhs: pixels}
    - elemwise_mul: {name: square, lhs: error, rhs: error}
    - MakeLoss: {name: loss, grad_scale: 0.5}
"""


def test_a_loss_of_ones_own_is_trained_down_and_padded_rows_weigh_nothing(tmp_path: Path) -> None:
    inputs = "{data: [1, 8, 8]}"
    built = loaded(written(tmp_path, OWN_LOSS, inputs=inputs), "train.metrics=[]")
    values = losses(built, 4)
    assert values[3] < 0.5 * values[0]
    executor = filled(executor_of(built, gradients=True), built)
    executor.tensor("data").mirror().array[20:] = 0
    executor.tensor(SAMPLE_WEIGHT).mirror().array[20:] = 0
    executor.run(TRAIN)
    first = executor.result(TRAIN, "decoded_weight_grad").read()
    total = float(executor.result(TRAIN, "loss_loss").values()[0])
    squares = executor.result(TRAIN, "loss_output").values()[:20]
    assert total == pytest.approx(float(squares.sum()), rel=1e-5)
    executor.tensor("data").mirror().array[20:] = 1e6
    executor.run(TRAIN)
    assert executor.result(TRAIN, "decoded_weight_grad").values().tobytes() == first.tobytes()
    assert float(executor.result(TRAIN, "loss_loss").values()[0]) == total


def test_a_loss_of_ones_own_has_no_metric(tmp_path: Path) -> None:
    path = written(tmp_path, OWN_LOSS, inputs="{data: [1, 8, 8]}")
    path.write_text(path.read_text() + "  metrics: [accuracy]\n")
    (found,) = problems(path)
    assert found.problem == "the metric 'accuracy' fits no loss of the network"


EMBEDDED = """\
    - Embedding: {name: table, input_dim: 10, output_dim: 48}
    - Reshape: {name: rows, shape: [0, -1]}
"""


def test_an_embedding_trains_with_the_same_bits_on_any_threads(tmp_path: Path) -> None:
    data = "{dataset: synthetic, split: train, records: 320}"
    inputs = "{data: [7], label: []}"
    built = loaded(written(tmp_path, EMBEDDED + HEAD, train=data, inputs=inputs))
    assert built.model.inputs["data"].dtype == "int32"
    close(gradients(built), gradients(built, implementation="numpy"))
    executor = filled(executor_of(built, gradients=True), built)
    ids = executor.tensor("data").mirror().array
    ids[ids == 3] = 4
    executor.run(TRAIN)
    gradient = executor.result(TRAIN, "table_weight_grad").values()
    assert not gradient[3].any()
    assert gradient[4].any()


def test_X3_the_graph_comes_back_from_its_json(tmp_path: Path) -> None:
    built = loaded(written(tmp_path, VIEWS + HEAD))
    text = built.model.symbol.tojson()
    again = load_json(text)
    assert again.graph_hash() == built.model.symbol.graph_hash()
    assert again.tojson() == text
    assert '"num_args": "6"' in text
    assert '"num_args": "3"' in text


@pytest.mark.skipif(MXNet.unavailable() is not None, reason=str(MXNet.unavailable()))
def test_X3_mxnet_reads_the_graph_and_computes_the_same(tmp_path: Path) -> None:
    """Except the loss, which has an argument that MXNet does not have."""
    built = loaded(written(tmp_path, VIEWS + HEAD))
    symbol = built.model.symbol
    internal = symbol.get_internals()["fc_output"]
    executor = filled(executor_of(built, gradients=True), built)
    random = np.random.default_rng(1)
    arrays = {}
    for name in internal.list_arguments():
        array = executor.tensor(name).mirror().array
        array[...] = random.standard_normal(array.shape) * 0.1
        arrays[name] = array.copy()
    executor.run(TRAIN)
    with MXNet() as peer:
        theirs = peer.run_symbol(internal.tojson(), arrays, is_train=False, gradients=False)
    scores = theirs.outputs[0] - theirs.outputs[0].max(axis=1, keepdims=True)
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        executor.result(TRAIN, "softmax_output").values(), expected, atol=2e-5
    )
