"""`check` reports networks that cannot be trained, before data are opened, at the layer in
question.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from layer_configs import DENSE, SOFTMAX, config_file, problems, written
from memory_reports import memory_of
from recurrent_networks import CELL, TARGETS, config

from mxrun.base.errors import UserError
from mxrun.commands.check import check
from mxrun.preparation.planning import load

OPAQUE = """
from mxrun.operator.simple import simple_operator

@simple_operator("opaque_in_training")
def opaque(x):
    "output = 2 * data, without a gradient."
    return x * 2
"""
HEADS = [
    "FullyConnected: {name: body, num_hidden: 8}",
    "FullyConnected: {name: unused, num_hidden: 3}",
    "FullyConnected: {name: fc, num_hidden: 10, data: body}",
    SOFTMAX,
]


def test_a_head_that_no_loss_depends_on_is_refused_at_its_layer(tmp_path: Path) -> None:
    path = written(tmp_path, HEADS)
    (found,) = problems(path, ["network.outputs=[softmax, unused]"])
    assert found.problem == (
        "FullyConnected 'unused': no loss depends on 'unused_weight', 'unused_bias', "
        "so they cannot be trained"
    )
    assert found.place is not None
    assert (found.place.file, found.place.line, found.place.column) == (str(path), 6, 7)
    assert "unused_weight: {frozen: true}" in found.hint
    frozen = "network.variables={'unused_*': {frozen: true}}"
    assert check(path, ["network.outputs=[softmax, unused]", frozen]).rows


@pytest.mark.usefixtures("separate_registry")
def test_an_operator_without_a_gradient_is_refused_at_its_layer(tmp_path: Path) -> None:
    (tmp_path / "opaque.py").write_text(OPAQUE)
    layers = [
        "FullyConnected: {name: body, num_hidden: 8}",
        "opaque_in_training: {name: first}",
        "opaque_in_training: {name: second}",
        DENSE,
        SOFTMAX,
    ]
    path = written(tmp_path, layers)
    path.write_text("plugins: [opaque.py]\n" + path.read_text())
    found = problems(path)
    assert [(each.place.line, each.place.column) for each in found if each.place] == [
        (7, 7),
        (8, 7),
    ]
    assert "opaque_in_training 'first' has no gradient for 'data'" in found[0].problem
    assert found[0].chain == ("the loss depends on it: first -> second -> fc -> softmax",)
    assert check(path, ["network.variables={'body_*': {frozen: true}}"]).rows


@pytest.mark.parametrize("backward", ["explicit_graph", "reverse"])
def test_every_command_that_trains_refuses_it_alike(backward: str, tmp_path: Path) -> None:
    path = written(tmp_path, HEADS)
    overrides = ["network.outputs=[softmax, unused]", f"backward={backward}"]
    (expected,) = problems(path, overrides)
    for command in (load, memory_of):
        with pytest.raises(UserError) as refused:
            command(path, overrides)
        assert refused.value.diagnostics == (expected,)


def test_a_loss_behind_a_zero_gradient_trains_nothing_before_it(tmp_path: Path) -> None:
    path = written(tmp_path, ["Convolution: {name: c, num_filter: 2, kernel: [1, 1]}", "round: {}"])
    path.write_text(path.read_text().replace("data: {batch", f"    - {DENSE}\ndata: {{batch"))
    path.write_text(path.read_text().replace("data: {batch", f"    - {SOFTMAX}\ndata: {{batch"))
    (found,) = problems(path)
    assert "Convolution 'c': no loss depends on 'c_weight', 'c_bias'" in found.problem


# Two outputs, of which the first does not depend on the layer `side`.
SIDE = CELL.replace(
    "        outputs: [next]\n",
    "          - FullyConnected: {name: side, num_hidden: 5}\n        outputs: [next, side]\n",
)
OPAQUE_CELL = CELL.replace("Activation", "opaque_in_training").replace(", act_type: tanh", "")
DENSE_OUTPUT = "    - FullyConnected: {name: out, num_hidden: 5, flatten: false}\n"
OUTER = """\
    - recurrent:
        name: outer
        sequences: {part: data}
        layers:
"""


@pytest.mark.parametrize("unroll", ["true", "false"])
def test_a_layer_of_a_recurrence_that_no_loss_depends_on_is_refused(
    tmp_path: Path, unroll: str
) -> None:
    text = SIDE.replace("name: rnn", f"name: rnn\n        unroll: {unroll}")
    text = config("{data: [7, 3], target: [7, 5]}", text + TARGETS)
    path = config_file(tmp_path, text.replace("label: target", "label: target, data: 'rnn[0]'"))
    (found,) = problems(path)
    assert "no loss depends on 'rnn/side_weight', 'rnn/side_bias'" in found.problem
    path.write_text(text.replace("label: target", "label: target, data: 'rnn[1]'"))
    assert check(path).rows


@pytest.mark.usefixtures("separate_registry")
@pytest.mark.parametrize("unroll", ["true", "false"])
@pytest.mark.parametrize("is_nested", [True, False])
def test_an_operator_without_a_gradient_is_refused_within_a_recurrence(
    tmp_path: Path, unroll: str, is_nested: bool
) -> None:
    (tmp_path / "opaque.py").write_text(OPAQUE)
    path, inputs = tmp_path / "net.yaml", "{data: [7, 3], target: [7, 5]}"
    text = OPAQUE_CELL.replace("name: rnn", f"name: rnn\n        unroll: {unroll}")
    if is_nested:
        inputs = "{data: [2, 7, 3], target: [2, 7, 5]}"
        text = OUTER + textwrap.indent(text.replace("x: data", "x: part"), 6 * " ")
    path.write_text("plugins: [opaque.py]\n" + config(inputs, text + DENSE_OUTPUT + TARGETS))
    (found,) = problems(path)
    name = "outer/rnn/next" if is_nested else "rnn/next"
    assert found.problem.startswith(f"opaque_in_training '{name}' has no gradient for 'data'")
    assert found.place is not None
    assert found.place.line == (18 if is_nested else 14)
    assert check(path, ["network.variables={'*/fc_*': {frozen: true}}"]).rows
