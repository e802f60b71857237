"""Maps of two inputs and where, for values that random rows do not cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from operator_harness import BackwardData, all_implementations, backward, forward

from mxrun.operator.property import GradientKind
from mxrun.operator.register import OPERATORS, create, implementations

Array = npt.NDArray[Any]
NAN, INF = np.nan, np.inf

# Pairs of numbers, and results of MXNet 1.9.1: output, gradients of lhs and rhs.
LHS = [0, 0, 0, 1, 1, 2, -2, -2, NAN, 1, 5, -5, 5, -5, 5.5, -8, 7]
RHS = [0, 1, -1, 1, 2, 1, 2, 3, 1, NAN, INF, INF, -3, 3, -2, -0.5, 0]
LOG_4, LOG_5, LOG_5_5, LOG_7 = np.log([4, 5, 5.5, 7]) * [1, 0.008, 5.5**-2, 1]
CORNERS: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
    "maximum": (
        [0, 1, 0, 1, 2, 2, 2, 3, NAN, NAN, INF, INF, 5, 3, 5.5, -0.5, 7],
        [1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1],
        [0, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0],
    ),
    "minimum": (
        [0, 0, -1, 1, 1, 1, -2, -2, NAN, NAN, 5, -5, -3, -5, -2, -8, 0],
        [1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0],
        [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1],
    ),
    # At the base 0 the gradients are PyTorch's.
    "power": (
        [1, 0, INF, 1, 1, 2, 4, -8, NAN, 1, INF, INF, 0.008, -125, 5.5**-2, NAN, 1],
        [0, 1, -INF, 1, 2, 1, -4, 12, 1, NAN, INF, INF, -0.0048, 75, -2 * 5.5**-3, NAN, 0],
        [0, 0, -INF, 0, 0, LOG_4, NAN, NAN, NAN, 0, INF, NAN, LOG_5, NAN, LOG_5_5, NAN, LOG_7],
    ),
    "mod": (
        [0, 0, 0, 0, 1, 0, 0, 1, NAN, NAN, 5, INF, -1, 1, -0.5, 0, 0],
        [1] * 17,
        [NAN, 0, 0, -1, 0, -2, 1, 1, NAN, NAN, 0, 0, 2, 2, 3, -16, -INF],
    ),
    "logical_xor": ([0, 1, 1] + [0] * 13 + [1], [], []),
    "equal": ([1, 0, 0, 1] + [0] * 13, [], []),
    "not_equal": ([0, 1, 1, 0] + [1] * 13, [], []),
    "greater_equal": ([1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1], [], []),
}


def compute(
    operator: str, parameters: Mapping[str, object], inputs: Sequence[Any]
) -> list[tuple[Array, list[Array]]]:
    """Output and gradients, under an out_grad of ones, by every implementation."""
    prop = create(operator, parameters)
    arrays = [np.array(value, "float32") for value in inputs]
    shape = arrays[-1].shape
    results = []
    for implementation in all_implementations(prop):
        run = forward(implementation, prop, arrays, [np.full(shape, NAN, "float32")])
        assert run is not None
        slopes: list[Array] = []
        if GradientKind.COMPUTES in prop.list_gradients():
            data = BackwardData([np.ones(shape, "float32")], arrays, run.outputs)
            blank = [np.full_like(array, NAN) for array in arrays]
            slopes = backward(implementation, prop, data, blank, run)
        results.append((run.outputs[0], slopes))
    assert len(results) == 2
    return results


@pytest.mark.parametrize("prefix", ["_", "broadcast_"])
@pytest.mark.parametrize("name", CORNERS)
def test_O1_corners_of_two_sides_are_mxnets(name: str, prefix: str) -> None:
    output, *slopes = CORNERS[name]
    for got, gradients in compute(f"{prefix}{name}", {}, [LHS, RHS]):
        np.testing.assert_allclose(got, output, rtol=1e-6)
        for gradient, expected in zip(gradients, slopes, strict=False):
            np.testing.assert_allclose(gradient, expected, rtol=1e-6)
        assert bool(gradients) is bool(slopes[0])


@pytest.mark.parametrize(
    ("name", "scalar", "data", "output", "gradient"),
    [
        ("_mod_scalar", 0.0, [0, 1, NAN], [0, 0, 0], [1, 1, 1]),
        ("_rmod_scalar", 0.0, [0, 1, NAN], [0, 0, NAN], [NAN, 0, NAN]),
        ("_rmod_scalar", 2.0, [0, 1, -2, INF, -INF], [0, 0, 0, 2, -INF], [-INF, -2, 1, 0, 0]),
        # PyTorch's gradient.
        ("_rpower_scalar", 0.0, [0, 1, -2], [1, 0, INF], [0, 0, -INF]),
        ("_rpower_scalar", -3.0, [1, 2, 0.5], [-3, 9, NAN], [NAN, NAN, NAN]),
        ("_hypot_scalar", 0.0, [0, 3, -1e30], [0, 3, 1e30], [NAN, 1, -1]),
        ("_maximum_scalar", 2.0, [1, 2, 3, NAN], [2, 2, 3, NAN], [0, 1, 1, 0]),
        ("_minimum_scalar", 2.0, [1, 2, 3, NAN], [1, 2, 2, NAN], [1, 1, 0, 0]),
    ],
)
def test_O1_corners_with_a_number_are_mxnets(
    name: str, scalar: float, data: list[Any], output: list[Any], gradient: list[Any]
) -> None:
    for got, (slope,) in compute(name, {"scalar": scalar}, [data]):
        np.testing.assert_allclose(got, output, rtol=1e-6)
        np.testing.assert_allclose(slope, gradient, rtol=1e-6)


def test_O1_hypot_with_an_infinite_side_is_infinite() -> None:
    for got, (left, right) in compute("_hypot", {}, [[NAN, 1, -INF], [INF, INF, NAN]]):
        np.testing.assert_array_equal(got, [INF, INF, INF])
        np.testing.assert_array_equal(left, [NAN, 0, NAN])
        np.testing.assert_array_equal(right, [NAN, NAN, NAN])


def test_O1_remainders_are_exact_at_any_quotient() -> None:
    """Includes the largest by the smallest float32, where the quotient has no exact digit."""
    random = np.random.default_rng(0)
    sign = random.choice([-1, 1], (2, 20000))
    x, y = (sign * 2.0 ** random.uniform(-140, 127, sign.shape)).astype("float32")
    for got, _ in compute("_mod", {}, [x, y]):
        np.testing.assert_array_equal(got, np.mod(x.astype(float), y.astype(float)).astype("f"))


def test_where_takes_nan_for_true() -> None:
    """For a condition per element and per row."""
    for got, (_, x, y) in compute("where", {}, [[0, 1, -1, NAN], [1, 2, 3, 4], [5, 6, 7, 8]]):
        np.testing.assert_array_equal(got, [5, 2, 3, 4])
        np.testing.assert_array_equal([x, y], [[0, 1, 1, 1], [1, 0, 0, 0]])
    for got, (_, x, y) in compute("where", {}, [[0, NAN], np.ones((2, 3)), np.zeros((2, 3))]):
        np.testing.assert_array_equal(got, [[0, 0, 0], [1, 1, 1]])
        np.testing.assert_array_equal([x, y], [got, 1 - got])


def test_conditions_have_a_type_of_their_own() -> None:
    types = create("where", {}).infer_type(["int32", None, "float64"], [None])
    assert types == (["int32", "float64", "float64"], ["float64"])
    condition, x, y = np.array([2, 0]), np.ones((2, 3), "float32"), np.zeros((2, 3), "float32")
    for implementation in all_implementations(create("where", {})):
        inputs = [condition.astype("int32"), x, y]
        run = forward(implementation, create("where", {}), inputs, [np.zeros((2, 3), "float32")])
        assert (run is None) is (implementation.name == "jit")
        if run is not None:
            np.testing.assert_array_equal(run.outputs[0], [[1, 1, 1], [0, 0, 0]])


def test_a_map_in_runs_has_the_same_bits_on_one_thread_and_three() -> None:
    """With runs that end within vectors, and threads that begin within runs."""
    random = np.random.default_rng(0)
    x, y = (random.uniform(0.5, 2, shape).astype("float32") for shape in ((41, 1, 97), (1, 53, 1)))
    results = []
    for threads in (1, 3):
        run = forward(
            implementations("broadcast_power")["jit"],
            create("broadcast_power", {}),
            [x, y],
            [np.zeros((41, 53, 97), "float32")],
            threads=threads,
        )
        assert run is not None
        results.append(run.outputs[0])
    np.testing.assert_allclose(results[0], x**y, rtol=1e-6)
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("_maximum", {"g", "a", "b"}),
        ("_mod_scalar", {"g"}),
        ("_rmod_scalar", {"g", "a"}),
        ("broadcast_greater", set()),
        ("_equal_scalar", set()),
        ("where", {"g", "a"}),
    ],
)
def test_P5_maps_of_two_sides_declare_what_backward_reads(
    operator: str, expected: set[str]
) -> None:
    prop = create(operator, {})
    names = "abc"[: len(prop.list_arguments())]
    assert set(prop.declare_backward_dependency("g", names, "y")) == expected


@pytest.mark.parametrize(
    "operator",
    ["_equal", "broadcast_lesser_equal", "_logical_and_scalar", "_greater_scalar"],
)
def test_T12_truth_has_a_gradient_of_zero(operator: str) -> None:
    assert set(create(operator, {}).list_gradients()) == {GradientKind.ZERO}


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("_Maximum", "_maximum"),
        ("_Power", "_power"),
        ("_Mod", "_mod"),
        ("_Hypot", "_hypot"),
        ("_Greater_Equal", "_greater_equal"),
        ("_Not_Equal", "_not_equal"),
        ("_Logical_And", "_logical_and"),
        ("_MaximumScalar", "_maximum_scalar"),
        ("_RPowerScalar", "_rpower_scalar"),
        ("_RModScalar", "_rmod_scalar"),
        ("_LesserEqualScalar", "_lesser_equal_scalar"),
        ("_LogicalXorScalar", "_logical_xor_scalar"),
        ("_sparse_where", "where"),
    ],
)
def test_mxnets_names_of_two_sided_maps_are_known(alias: str, name: str) -> None:
    assert OPERATORS.get(alias) is OPERATORS.get(name)
