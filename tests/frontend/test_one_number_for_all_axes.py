"""`kernel: 3` in a config means one number for each spatial axis of the layer's first tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
from layer_configs import config_file

from mxrun.base.errors import Diagnostic, UserError
from mxrun.frontend import ModelDefinition
from mxrun.operator.register import create_from_strings
from mxrun.preparation.planning import load

TAIL = """
    - FullyConnected: {num_hidden: 10}
    - SoftmaxOutput: {label: label}
data: {batch_size: 4, train: {dataset: digits}}
train: {epochs: 1, optimizer: sgd}
"""


def write(folder: Path, layers: str, shape: str) -> Path:
    head = f"network:\n  inputs: {{data: {shape}, label: []}}\n  layers:\n"
    return config_file(folder, head + layers + TAIL, "run.yaml")


def parameters(built: ModelDefinition, name: str) -> dict[str, object]:
    (node,) = [each for each in built.model.symbol.nodes if each.name == name]
    assert node.prop is not None
    return dict(node.prop.parameters)


def problems(path: Path) -> list[Diagnostic]:
    with pytest.raises(UserError) as caught:
        load(path)
    return list(caught.value.diagnostics)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_number_of_axes_is_that_of_the_tensor(tmp_path: Path, axes: int) -> None:
    layers = """
    - Convolution: {name: conv, num_filter: 4, kernel: 3, stride: 2, pad: 1, dilate: 1}
    - BatchNorm
    - Deconvolution: {name: up, num_filter: 4, kernel: 2, stride: 2, adj: 1}
    - Pooling: {name: named, data: conv, kernel: 2, stride: 2}
    - Pooling: {name: listed, inputs: [up], kernel: 2, pool_type: avg, global_pool: true}
    - Flatten
"""
    path = write(tmp_path, layers, str([3, *[8] * axes]))
    built = load(path, ["network.outputs=[softmaxoutput0, named]"])
    all_axes = {"kernel": 3, "stride": 2, "pad": 1, "dilate": 1}
    conv, up = parameters(built, "conv"), parameters(built, "up")
    assert {key: conv[key] for key in all_axes} == {
        key: (number,) * axes for key, number in all_axes.items()
    }
    assert (up["kernel"], up["adj"]) == ((2,) * axes, (1,) * axes)
    assert parameters(built, "named")["kernel"] == (2,) * axes
    assert parameters(built, "listed")["kernel"] == (2,) * axes


def test_a_list_beside_it_gives_the_number_of_axes_and_the_config_is_read_back(
    tmp_path: Path,
) -> None:
    layers = "    - Convolution: {name: conv, num_filter: 4, kernel: [5, 3], pad: 1}\n"
    built = load(write(tmp_path, layers, "[3, 8, 8]"))
    assert parameters(built, "conv")["pad"] == (1, 1)
    saved = config_file(tmp_path, built.options.resolved(), "saved.yaml")
    assert parameters(load(saved), "conv") == parameters(built, "conv")


def test_a_tensor_without_spatial_axes_and_other_mistakes_are_reported_once(tmp_path: Path) -> None:
    layers = "    - Convolution: {num_filter: 4, kernel: 3}\n"
    (problem,) = problems(write(tmp_path, layers, "[3]"))
    assert (problem.got, "contradict each other" in problem.problem) == ("data [4, 3]", True)
    layers = "    - Convolution: {num_filter: x, kernel: 3}\n    - Pooling: {kernel: 2}\n"
    (problem,) = problems(write(tmp_path, layers, "[3, 8, 8]"))
    assert "'num_filter'" in problem.problem
    layers = "    - Convolution: {num_filter: 4, kernel: 0}\n"
    (problem,) = problems(write(tmp_path, layers, "[3, 8, 8]"))
    assert "cannot be" in problem.problem
    layers = "    - Convolution: {data: nothing, num_filter: 4, kernel: 3}\n"
    (problem,) = problems(write(tmp_path, layers, "[3, 8, 8]"))
    assert problem.problem == "nothing is named 'nothing'"


def test_a_number_in_strings_of_mxnet_still_means_one_axis() -> None:
    prop = create_from_strings("Convolution", {"kernel": "3", "num_filter": "1"})
    assert prop.parameters.kernel == (3,)


def test_a_contradiction_of_shapes_is_reported_and_not_the_numbers_below_it(tmp_path: Path) -> None:
    layers = """
    - Convolution: {name: first, num_filter: 4, kernel: 3}
    - elemwise_add: {name: sum, lhs: first, rhs: data}
    - Convolution: {name: second, num_filter: 4, kernel: 3}
"""
    found = problems(write(tmp_path, layers, "[1, 8, 8]"))
    assert ["'sum' contradict" in each.problem for each in found] == [True]
