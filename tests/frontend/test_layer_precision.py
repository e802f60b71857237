"""A layer's `precision: bfloat16` is refused if it has no effect; views pass it on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from layer_configs import DENSE, SOFTMAX, problems, written

from mxrun import library
from mxrun.base.errors import Diagnostic
from mxrun.commands import ops
from mxrun.commands.check import check
from mxrun.graph.phases import TRAIN
from mxrun.operator.family import OperatorFamily
from mxrun.operator.property import Precision
from mxrun.operator.register import OPERATORS
from mxrun.preparation.planning import load, plan_for

SPEED_PAGE = Path(__file__).parents[2] / "mxrun" / "docs" / "speed.md"
CONVOLUTION = "Convolution: {name: conv, num_filter: 16, kernel: [3, 3], precision: bfloat16}"


def place(found: Diagnostic) -> tuple[int, int]:
    assert found.place is not None
    return found.place.line, found.place.column


@pytest.mark.parametrize(
    "layer",
    [
        "Dropout: {name: own, precision: bfloat16}",
        "LRN: {name: own, nsize: 3, precision: bfloat16}",
        "softmax: {name: own, precision: bfloat16}",
        "Dropout: {name: own, precision: bfloat16, implementation: numpy}",
    ],
)
def test_P3_a_layer_that_computes_in_float32_alone_refuses_bfloat16(
    layer: str, tmp_path: Path
) -> None:
    path = written(tmp_path, [CONVOLUTION, layer, DENSE, SOFTMAX])
    (found,) = problems(path)
    operator, _, _ = layer.partition(":")
    assert place(found) == (6, 7 + layer.index("precision"))
    assert found.problem == f"{operator} 'own' does not run in bfloat16"
    assert (found.expected, found.got) == ("float32", "bfloat16")
    assert "leave out its `precision`" in found.hint


def test_P3_numpy_kernels_refuse_bfloat16(tmp_path: Path) -> None:
    layer = "Activation: {name: own, act_type: relu, implementation: numpy, precision: bfloat16}"
    (found,) = problems(written(tmp_path, [CONVOLUTION, layer, DENSE, SOFTMAX]))
    assert place(found) == (6, 7 + layer.index("precision"))
    assert found.problem == (
        "Activation 'own' does not run in bfloat16 with `implementation: numpy`"
    )
    assert (found.expected, found.got) == ("float32", "bfloat16")
    assert found.hint == "leave out its `precision` or its `implementation`"


def test_P3_both_refusals_come_with_all_other_mistakes(tmp_path: Path) -> None:
    layers = [
        CONVOLUTION,
        "Dropout: {name: drop, p: 3, precision: bfloat16}",
        "Activation: {act_type: relu, implementation: numpy, precision: bfloat16}",
        "FullyConnected: {name: fc, num_hidden: ten}",
        "SoftmaxOutput: {name: softmax, label: label, precision: bfloat16}",
    ]
    found = problems(written(tmp_path, layers), ["train.metrics=[acuracy]"])
    assert [place(problem)[0] for problem in found] == [6, 6, 7, 8, 9, 1]


def test_P3_a_precision_given_on_the_command_line_is_refused_there(tmp_path: Path) -> None:
    path = written(tmp_path, [CONVOLUTION, "Dropout: {name: drop}", DENSE, SOFTMAX])
    (found,) = problems(path, ["network.layers[1].Dropout.precision=bfloat16"])
    assert found.place is not None
    assert found.place.file == "<command line>"


def test_a_view_may_ask_for_bfloat16_and_converts_nothing(tmp_path: Path) -> None:
    dense = "FullyConnected: {name: fc, num_hidden: 10, precision: bfloat16}"
    for view in ("Flatten: {name: view", "Reshape: {name: view, shape: [0, -1]"):
        for asked in ("}", ", precision: bfloat16}"):
            path = written(tmp_path, [CONVOLUTION, view + asked, dense, SOFTMAX])
            assert check(path).rows
            graph = plan_for(load(path), training=True).phases[TRAIN].graph
            types = {value.name: value.spec.dtype for value in graph.values}
            assert types["conv_output"] == types["view_output"] == types["fc_output"] == "bfloat16"


def test_the_precision_of_a_whole_network_never_complains(tmp_path: Path) -> None:
    layers = [
        "Convolution: {name: conv, num_filter: 16, kernel: [3, 3], implementation: numpy}",
        "Activation: {act_type: relu, precision: float32, implementation: numpy}",
        "LRN: {nsize: 3}",
        "Flatten: {implementation: numpy, precision: bfloat16}",
        "Dropout: {precision: float32}",
        DENSE,
        SOFTMAX,
    ]
    path = written(tmp_path, layers)
    for overrides in (["precision=bfloat16"], ["precision=bfloat16", "implementation=numpy"]):
        assert check(path, overrides).rows
        assert plan_for(load(path, overrides), training=True).phases


def test_the_documentation_names_all_that_computes_in_float32_alone() -> None:
    library.load()
    full = set()
    for name in OPERATORS:
        known = OPERATORS.get(name)
        if known.precision is Precision.FLOAT32 and not (known.is_internal or known.is_view):
            full.add(name)
    sentence = re.search(r"is refused: the losses, (.*?)\. ", SPEED_PAGE.read_text())
    assert sentence is not None
    named = set(re.findall(r"`(\w+)`", sentence[1]))
    wrong = sorted(named - full)
    assert not wrong, f"edit docs/speed.md, which names what does not need float32: {wrong}"
    lacking = sorted(
        name
        for name in full - named
        if not ops.operator(name)["overwrites"]
        and OPERATORS.get(name).family is not OperatorFamily.LOSS
    )
    assert not lacking, f"edit docs/speed.md, which does not name {lacking}"
