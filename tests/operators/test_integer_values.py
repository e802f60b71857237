"""Integers: every implementation gives the results of MXNet 1.9.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from operator_harness import all_implementations, forward

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.graph.infer import infer
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.symbol import Symbol, apply, variable
from mxrun.operator.register import create
from mxrun.operator.shape import require_complete

Array = npt.NDArray[Any]
SMALL, BIG = [2, 0, 200, 255], 2**53 + 1
SIGNED = [-3, 0, 5, 7]


def computed(
    operator: str, parameters: Mapping[str, object], inputs: Sequence[Any], dtype: str
) -> dict[str, list[Any]]:
    """The first output by each implementation that serves the type, all of which agree."""
    prop = create(operator, parameters)
    arrays = [np.array(value, dtype) for value in inputs]
    shapes = prop.infer_shape([array.shape for array in arrays], [None]).outputs
    _, types = prop.infer_type([dtype] * len(arrays), [None])
    outputs = [np.zeros(require_complete(s), t) for s, t in zip(shapes, types, strict=True)]
    found = {}
    for implementation in all_implementations(prop):
        run = forward(implementation, prop, arrays, outputs)
        if run is not None:
            found[implementation.name] = run.outputs[0].tolist()
    assert "numpy" in found
    return found


# Results of a number and uint8. They are MXNet's, except if a bound or the other side of a
# comparison is outside uint8, which MXNet truncates to its last byte.
OF_BYTES: list[tuple[str, dict[str, object], list[int]]] = [
    ("clip", {"a_min": 0, "a_max": 256}, SMALL),
    ("clip", {"a_min": -1, "a_max": 300}, SMALL),
    ("clip", {"a_min": -1e30, "a_max": 1e30}, SMALL),
    ("clip", {"a_min": 3.7, "a_max": 100.5}, [3, 3, 100, 100]),
    ("clip", {"a_min": 10, "a_max": 5}, [10, 10, 5, 5]),
    ("clip", {"a_min": 300, "a_max": 400}, [255, 255, 255, 255]),
    ("_plus_scalar", {"scalar": -1}, [1, 255, 199, 254]),
    ("_plus_scalar", {"scalar": 300}, [46, 44, 244, 43]),
    ("_plus_scalar", {"scalar": 1.5}, [3, 1, 201, 0]),
    ("_mul_scalar", {"scalar": -1}, [254, 0, 56, 1]),
    ("_rminus_scalar", {"scalar": 3}, [1, 3, 59, 4]),
    ("_div_scalar", {"scalar": 2}, [1, 0, 100, 127]),
    ("_mod_scalar", {"scalar": 3}, [2, 0, 2, 0]),
    ("_power_scalar", {"scalar": -1}, [0, 0, 0, 0]),
    ("_power_scalar", {"scalar": 2}, [4, 0, 64, 1]),
    ("_power_scalar", {"scalar": 0.5}, [1, 1, 1, 1]),
    ("_lesser_scalar", {"scalar": 2.5}, [0, 1, 0, 0]),
    ("_lesser_scalar", {"scalar": 300}, [1, 1, 1, 1]),
    ("_lesser_scalar", {"scalar": -1}, [0, 0, 0, 0]),
    ("_greater_scalar", {"scalar": -1}, [1, 1, 1, 1]),
    ("_equal_scalar", {"scalar": 256}, [0, 0, 0, 0]),
    ("_not_equal_scalar", {"scalar": -1}, [1, 1, 1, 1]),
    ("_maximum_scalar", {"scalar": 300}, [255, 255, 255, 255]),
    ("_minimum_scalar", {"scalar": -1}, [0, 0, 0, 0]),
    ("_minimum_scalar", {"scalar": 300}, SMALL),
]

# MXNet's results for int32 and int64.
OF_SIGNED: list[tuple[str, dict[str, object], list[int]]] = [
    ("clip", {"a_min": -1, "a_max": 256}, [-1, 0, 5, 7]),
    ("clip", {"a_min": -1e30, "a_max": 1e30}, SIGNED),
    ("_plus_scalar", {"scalar": -1}, [-4, -1, 4, 6]),
    ("_mul_scalar", {"scalar": 1.5}, SIGNED),
    ("_div_scalar", {"scalar": 2}, [-1, 0, 2, 3]),
    ("_mod_scalar", {"scalar": -3}, [0, 0, -1, -2]),
    ("_rpower_scalar", {"scalar": 2}, [0, 1, 32, 128]),
    ("_hypot_scalar", {"scalar": 3}, [4, 3, 5, 7]),
    ("_lesser_scalar", {"scalar": 2.5}, [1, 1, 0, 0]),
    ("sum", {}, [9]),
    ("max", {}, [7]),
    ("min", {}, [-3]),
    ("prod", {}, [0]),
    ("mean", {}, [2]),
    ("argmax", {"axis": 0}, [3]),
    ("cumsum", {"axis": 0}, [-3, -3, 2, 9]),
    ("relu", {}, [0, 0, 5, 7]),
    ("Cast", {"dtype": "int32"}, SIGNED),
]

# MXNet's results for two tensors of int32 and int64.
SIDES = [[-5, 7, 2, 3], [2, -2, 7, 3]]
OF_TWO: list[tuple[str, list[int]]] = [
    ("elemwise_add", [-3, 5, 9, 6]),
    ("elemwise_sub", [-7, 9, -5, 0]),
    ("elemwise_mul", [-10, -14, 14, 9]),
    ("elemwise_div", [-2, -3, 0, 1]),
    ("_mod", [1, -1, 2, 0]),
    ("_power", [25, 0, 128, 27]),
    ("_maximum", [2, 7, 7, 3]),
    ("_minimum", [-5, -2, 2, 3]),
    ("_hypot", [5, 7, 7, 4]),
    ("_equal", [0, 0, 0, 1]),
    ("_lesser_equal", [1, 0, 1, 1]),
    ("_logical_and", [1, 1, 1, 1]),
    ("broadcast_add", [-3, 5, 9, 6]),
    ("broadcast_div", [-2, -3, 0, 1]),
]

# Numbers beyond float64's precision, which must be exact in int64.
OF_BIG: list[tuple[str, dict[str, object], list[Any], list[int]]] = [
    ("cumsum", {}, [[BIG, 1]], [BIG, BIG + 1]),
    ("elemwise_div", {}, [[3 * BIG, -BIG], [3, 1]], [BIG, -BIG]),
    ("_mod", {}, [[BIG, BIG], [BIG - 1, 0]], [1, 0]),
    ("relu", {}, [[BIG, -BIG]], [BIG, 0]),
    ("Activation", {"act_type": "relu"}, [[BIG, -BIG]], [BIG, 0]),
    ("clip", {"a_min": 0, "a_max": 1e30}, [[BIG, -BIG]], [BIG, 0]),
    ("where", {}, [[1, 0], [BIG, 0], [0, BIG]], [BIG, BIG]),
    ("mean", {}, [[BIG, BIG]], [BIG]),
]


@pytest.mark.parametrize(("operator", "parameters", "expected"), OF_BYTES)
def test_O1_numbers_beside_bytes(
    operator: str, parameters: dict[str, object], expected: list[int]
) -> None:
    for result in computed(operator, parameters, [SMALL], "uint8").values():
        assert result == expected


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("operator", "parameters", "expected"), OF_SIGNED)
def test_O1_integers_are_mxnets(
    operator: str, parameters: dict[str, object], expected: list[int], dtype: str
) -> None:
    for result in computed(operator, parameters, [SIGNED], dtype).values():
        assert result == expected


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("operator", "expected"), OF_TWO)
def test_O1_two_tensors_of_integers_are_mxnets(
    operator: str, expected: list[int], dtype: str
) -> None:
    for result in computed(operator, {}, SIDES, dtype).values():
        assert result == expected


@pytest.mark.parametrize(("operator", "parameters", "inputs", "expected"), OF_BIG)
def test_O1_no_bit_of_an_int64_is_lost(
    operator: str, parameters: dict[str, object], inputs: list[Any], expected: list[int]
) -> None:
    for result in computed(operator, parameters, inputs, "int64").values():
        assert result == expected


def test_O1_bounds_beyond_a_type_are_its_own() -> None:
    """A minimum above the maximum, and both beyond int32."""
    found = computed("clip", {"a_min": 0, "a_max": -3e9}, [SIGNED], "int32")
    assert found == {"numpy": [-(2**31)] * 4, "jit": [-(2**31)] * 4}


def test_O1_what_divides_by_zero_is_zero() -> None:
    """MXNet 1.9.1 crashes on these."""
    assert computed("elemwise_div", {}, [[5, -5], [0, 0]], "int32")["numpy"] == [0, 0]
    assert computed("_power", {}, [[2, 0, 1, -1, -1], [-1] * 4 + [-2]], "int32")["numpy"] == (
        [0, 0, 1, -1, 1]
    )


@pytest.mark.parametrize("operator", ["softmax", "log_softmax", "SoftmaxOutput", "MakeLoss"])
def test_P13_whole_numbers_are_refused_where_they_have_no_meaning(operator: str) -> None:
    prop = create(operator, {})
    inputs: list[str | None] = [None] * len(prop.list_arguments())
    inputs[0] = "int32"
    with pytest.raises(UserError, match=r"of integers\n +expected: float32 or float64"):
        prop.infer_type(inputs, [None] * len(prop.list_outputs()))


def test_P13_the_refusal_names_the_layer() -> None:
    whole = apply("Cast", {"data": variable("data")}, {"dtype": "int32"}, "whole")
    place = SourceLocation("net.yaml", 7, 3)
    made = Node("chances", create("softmax", {}), tuple(whole.heads), place=place)
    inference = infer([NodeEntry(made)], {"data": (2, 3)})
    (refused,) = inference.mistyped
    assert "softmax 'chances': softmax of integers" in refused.problem
    assert refused.place == place
    with pytest.raises(UserError, match="of integers"):
        compile_plan(Symbol([NodeEntry(made)]), CompileRequest({"data": TensorSpec((2, 3))}))
