"""Arithmetic, reductions, products and softmax for values that random rows do not cover."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from executors import cpu
from inference import contradiction
from operator_harness import (
    BackwardData,
    Memory,
    all_implementations,
    backward,
    execute,
    forward,
    spec_of,
)

from mxrun.base.errors import UserError
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Layout, PartialShape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, OpReqType
from mxrun.operator.property import PartialShapes
from mxrun.operator.register import OPERATORS, create, implementations

Array = npt.NDArray[Any]
NAN, INF = np.nan, np.inf
WRITE = OpReqType.WRITE


def compute(
    operator: str, parameters: Mapping[str, object], inputs: Sequence[Any], shape: Sequence[int]
) -> list[tuple[Array, list[Array]]]:
    """Output and gradients, under an out_grad of ones, by every implementation."""
    prop = create(operator, parameters)
    arrays = [np.array(value, "float32") for value in inputs]
    results = []
    for implementation in all_implementations(prop):
        run = forward(implementation, prop, arrays, [np.full(shape, NAN, "float32")])
        assert run is not None
        data = BackwardData([np.ones(shape, "float32")], arrays, run.outputs)
        blank = [np.full_like(array, NAN) for array in arrays]
        results.append((run.outputs[0], backward(implementation, prop, data, blank, run)))
    assert len(results) == 2
    return results


# Results of MXNet 1.9.1: operator, parameters, inputs, output, gradients.
CORNERS: list[tuple[str, dict[str, object], list[Any], list[Any], list[Any]]] = [
    (
        "elemwise_div",
        {},
        [[1, 0, -1], [0, 0, 0]],
        [INF, NAN, -INF],
        [[INF, INF, INF], [-INF, NAN, INF]],
    ),
    ("_rdiv_scalar", {"scalar": 2.0}, [[0, 1]], [INF, 2], [[-INF, -2]]),
    ("_div_scalar", {"scalar": 0.0}, [[1, 0, -1]], [INF, NAN, -INF], [[INF, INF, INF]]),
    (
        "_power_scalar",
        {"scalar": 0.5},
        [[0, 1, 4, -1]],
        [0, 1, 2, NAN],
        [[INF, 0.5, 0.25, NAN]],
    ),
    ("_power_scalar", {"scalar": 0.5}, [[-INF, -0.0, INF]], [INF, 0, INF], [[0, INF, 0]]),
    ("_power_scalar", {"scalar": 2.0}, [[0, 1, -3]], [0, 1, 9], [[0, 2, -6]]),
    (
        "clip",
        {"a_min": -1.0, "a_max": 1.0},
        [[-2, -1, 0, 1, 2, NAN]],
        [-1, -1, 0, 1, 1, NAN],
        [[0, 1, 1, 1, 0, 1]],
    ),
    ("clip", {"a_min": 1.0, "a_max": -1.0}, [[-2, 0, 2]], [1, -1, -1], [[0, 0, 0]]),
    (
        "max",
        {"axis": (1,)},
        [[[1, NAN, 2], [3, 3, 1], [NAN, 1, 2]]],
        [NAN, 3, NAN],
        [[[0, 0, 0], [1, 1, 0], [0, 0, 0]]],
    ),
    (
        "max",
        {"axis": (0,)},
        [[[1, 3, NAN], [NAN, 3, 1], [2, 1, 2]]],
        [NAN, 3, NAN],
        [[[0, 1, 0], [0, 1, 0], [0, 0, 0]]],
    ),
]


@pytest.mark.parametrize(("operator", "parameters", "inputs", "output", "gradients"), CORNERS)
def test_O1_corners_are_mxnets(
    operator: str,
    parameters: dict[str, object],
    inputs: list[Any],
    output: list[Any],
    gradients: list[Any],
) -> None:
    for got, slopes in compute(operator, parameters, inputs, np.shape(output)):
        np.testing.assert_allclose(got, output, rtol=1e-6)
        for slope, expected in zip(slopes, gradients, strict=True):
            np.testing.assert_allclose(slope, expected, rtol=1e-6)


# Results of PyTorch 2.13, where MXNet multiplies 0 by infinity.
LIMITS: list[tuple[str, dict[str, object], list[Any], list[Any], list[Any]]] = [
    ("_power_scalar", {"scalar": 0.0}, [[0, -0.0, 1, NAN]], [1, 1, 1, 1], [[0, 0, 0, 0]]),
    ("_power_scalar", {"scalar": -1.0}, [[0, 2]], [INF, 0.5], [[-INF, -0.25]]),
    ("_rpower_scalar", {"scalar": 0.0}, [[0, 1, -1]], [1, 0, INF], [[0, 0, -INF]]),
    (
        "_power",
        {},
        [[0, 0, 0, -1], [0, 3, -1, 0]],
        [1, 0, INF, 1],
        [[0, 0, -INF, 0], [0, 0, -INF, NAN]],
    ),
    (
        "elemwise_div",
        {},
        [[1e-30, 0, INF, 1], [1e-30, 1e-30, 1e30, 0]],
        [1, 0, INF, INF],
        [[1e30, 1e30, 1e-30, INF], [-1e30, 0, -INF, -INF]],
    ),
    ("norm", {"axis": (1,)}, [[[0, 0], [3, -4]]], [0, 5], [[[0, 0], [0.6, -0.8]]]),
    ("norm", {"axis": (0,)}, [[[0, 3], [-0.0, -4]]], [0, 5], [[[0, 0.6], [0, -0.8]]]),
    ("prod", {"axis": (1,)}, [[[4, 0], [0, -0.0], [2, 3]]], [0, 0, 6], [[[0, 4], [0, 0], [3, 2]]]),
    ("prod", {"axis": (0,)}, [[[4, 0, 2], [0, 0, 3]]], [0, 0, 6], [[[0, 0, 3], [4, 0, 2]]]),
    ("nanprod", {}, [[[4, NAN], [0, 2]]], [0], [[[0, 0], [8, 0]]]),
    ("nanprod", {"axis": (0,)}, [[[4, NAN], [NAN, 2]]], [4, 2], [[[1, 0], [0, 1]]]),
]


@pytest.mark.parametrize(("operator", "parameters", "inputs", "output", "gradients"), LIMITS)
def test_O1_gradients_at_0_are_the_limits_of_pytorch(
    operator: str,
    parameters: dict[str, object],
    inputs: list[Any],
    output: list[Any],
    gradients: list[Any],
) -> None:
    for got, slopes in compute(operator, parameters, inputs, np.shape(output)):
        np.testing.assert_allclose(got, output, rtol=1e-6)
        for slope, expected in zip(slopes, gradients, strict=True):
            np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_O1_a_long_sum_loses_no_digits() -> None:
    """Ten million times 0.1 in float32, where sequential addition is 8 % off."""
    values = np.full(10_000_000, 0.1, "float32")
    for parameters in ({}, {"axis": (0,), "keepdims": True}):
        prop = create("sum", parameters)
        run = forward(implementations("sum")["jit"], prop, [values], [np.zeros(1, "float32")])
        assert run is not None
        np.testing.assert_allclose(run.outputs[0], [np.float32(0.1) * 1e7], rtol=1e-6)


@pytest.mark.parametrize("mean", [0.0, 1e3, 1e4, 1e5, 1e6])
@pytest.mark.parametrize(
    ("shape", "axes"), [((4000, 50), (0,)), ((50, 4000), (1,)), ((40, 50, 10), (0, 2))]
)
def test_O1_a_large_mean_leaves_the_variance_its_digits(
    shape: tuple[int, ...], axes: tuple[int, ...], mean: float
) -> None:
    """float32 rounds the mean by up to a thirtieth of the deviation."""
    values = (np.random.default_rng(0).standard_normal(shape) + mean).astype("float32")
    prop = create("moments", {"axes": axes})
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    for implementation in all_implementations(prop):
        run = forward(implementation, prop, [values], [np.zeros(kept, "float32")] * 2)
        assert run is not None
        np.testing.assert_allclose(run.outputs[0], values.mean(axes, np.float64), 1e-6, 1e-7)
        np.testing.assert_allclose(run.outputs[1], values.astype(float).var(axes), rtol=2e-6)


@pytest.mark.parametrize("operator", ["sum", "mean", "max"])
def test_sums_have_the_same_bits_on_one_thread_and_two(operator: str) -> None:
    values = np.random.default_rng(0).standard_normal((70, 40, 50)).astype("float32")
    for axes in ((0,), (1,), (2,), (0, 2), (1, 2), (0, 1), (0, 1, 2)):
        prop = create(operator, {"axis": axes})
        shape = tuple(n for axis, n in enumerate(values.shape) if axis not in axes) or (1,)
        one, two = (
            forward(
                implementations(operator)["jit"],
                prop,
                [values],
                [np.zeros(shape, "float32")],
                threads=threads,
            )
            for threads in (1, 2)
        )
        assert one is not None
        assert two is not None
        assert one.outputs[0].tobytes() == two.outputs[0].tobytes()


def laid_out(array: Array, layout: Layout) -> Memory:
    return Memory(TensorSpec(array.shape, "float32", layout), array)


BESIDE = [(2, 3, 4, 5), (1, 3, 1, 1), (2, 3, 1, 1), (1, 1, 4, 5), (2, 1, 1, 5), (3, 4, 1), (5,)]


@pytest.mark.parametrize("shape", BESIDE, ids=str)
@pytest.mark.parametrize("operator", ["broadcast_mul", "broadcast_sub", "broadcast_div"])
def test_broadcasting_knows_channels_last(operator: str, shape: tuple[int, ...]) -> None:
    """Either side of a tensor with channels last: values and both gradients."""
    random = np.random.default_rng(1)
    full = random.uniform(1, 2, (2, 3, 4, 5)).astype("float32")
    other = random.uniform(1, 2, shape).astype("float32")
    head = random.standard_normal(full.shape).astype("float32")
    for inputs in ([full, other], [other, full]):
        prop = create(operator, {})
        plain = [given_forward(operator, inputs, layout) for layout in (PLAIN, CHANNELS_LAST)]
        np.testing.assert_array_equal(*plain)
        slopes = [
            given_backward(operator, inputs, head, layout) for layout in (PLAIN, CHANNELS_LAST)
        ]
        for one, two in zip(*slopes, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6)
        assert prop.type_string == operator


def specs_of(inputs: Sequence[Array], layout: Layout) -> tuple[TensorSpec, ...]:
    """Tensors of rank 4 in the layout, others plain."""
    return tuple(
        spec_of(array).with_layout(layout if array.ndim == 4 else PLAIN) for array in inputs
    )


def given_forward(operator: str, inputs: Sequence[Array], layout: Layout) -> Array:
    output = TensorSpec(np.broadcast_shapes(*(array.shape for array in inputs)))
    request = ForwardRequest(specs_of(inputs, layout), (output,), (WRITE,), True, cpu(2))
    kernel = implementations(operator)["jit"].prepare_forward(create(operator, {}), request)
    assert kernel is not None
    memories = [laid_out(a, s.layout) for a, s in zip(inputs, kernel.inputs, strict=True) if s]
    assert kernel.outputs[0] is not None
    result = Memory(kernel.outputs[0])
    execute(kernel, memories, [result])
    return result.load()


def given_backward(
    operator: str, inputs: Sequence[Array], head: Array, layout: Layout
) -> list[Array]:
    prop = create(operator, {})
    implementation = implementations(operator)["jit"]
    (out_grad,) = specs_of([head], layout)
    specs = specs_of(inputs, layout)
    before = ForwardRequest(specs, (spec_of(head),), (WRITE,), True, cpu(2))
    kernel_before = implementation.prepare_forward(prop, before)
    assert kernel_before is not None
    plain = tuple(map(spec_of, inputs))
    request = BackwardRequest(
        (out_grad,), specs, (None,), plain, (WRITE,) * 2, kernel_before, cpu(2)
    )
    kernel = implementation.prepare_backward(prop, request)
    assert kernel is not None
    arrays = [head, *inputs, None]
    memories = [
        None if spec is None or array is None else laid_out(array, spec.layout)
        for array, spec in zip(arrays, kernel.inputs, strict=True)
    ]
    results = [Memory(spec) for spec in kernel.outputs if spec is not None]
    execute(kernel, memories, results)
    return [result.load() for result in results]


BACKWARD: list[tuple[str, dict[str, object], PartialShapes, PartialShape, PartialShapes]] = [
    ("broadcast_mul", {}, [(2, None), (1, None)], (None, 1), [(2, 1), (1, 1)]),
    ("broadcast_mul", {}, [(None, 3), (1, 1)], (4, 3), [(4, 3), (1, 1)]),
    ("broadcast_mul", {}, [(None,), (None, 1)], (2, 5), [(5,), (2, 1)]),
    ("broadcast_mul", {}, [(None, 3), (None, 3)], (4, 3), [(None, 3), (None, 3)]),
    ("_mul_scalar", {}, [None], (4, 3), [(4, 3)]),
    ("sum", {"axis": (1,)}, [(None, 5, None)], (2, 4), [(2, 5, 4)]),
    ("sum", {"axis": (1,), "keepdims": True}, [(None, None)], (2, 1), [(2, None)]),
    ("dot", {}, [(None, None), (4, None)], (3, 5), [(3, 4), (4, 5)]),
    ("dot", {"transpose_a": True}, [(4, None), (None, 5)], (3, None), [(4, 3), (4, 5)]),
    (
        "batch_dot",
        {"transpose_b": True},
        [None, (2, 5, 4)],
        (None, 3, None),
        [(2, 3, 4), (2, 5, 4)],
    ),
    ("softmax", {}, [(None, 3)], (2, None), [(2, 3)]),
    ("softmax_cross_entropy", {}, [(None, 3), (4,)], None, [(4, 3), (4,)]),
    (
        "softmax_cross_entropy",
        {"use_sample_weight": True},
        [(None, 3), None, (4,)],
        None,
        [(4, 3), (4,), (4,)],
    ),
]


@pytest.mark.parametrize(("operator", "parameters", "inputs", "output", "expected"), BACKWARD)
def test_P2_knowledge_flows_to_the_inputs_of_arithmetic(
    operator: str,
    parameters: dict[str, object],
    inputs: PartialShapes,
    output: PartialShape,
    expected: PartialShapes,
) -> None:
    assert create(operator, parameters).infer_shape(inputs, [output]).inputs == expected


CONTRADICTIONS: list[tuple[str, dict[str, object], PartialShapes, str, str]] = [
    ("broadcast_add", {}, [(2, 3), (2, 4)], "rhs", "lhs"),
    ("sum", {"axis": (2,)}, [(2, 3)], "data", "axis"),
    ("sum", {"axis": (1, -1)}, [(2, 3)], "data", "axis"),
    ("dot", {}, [(2, 3), (4, 5)], "rhs", "summed"),
    ("dot", {"transpose_a": True}, [(4,), (4,)], "lhs", "transpose"),
    ("batch_dot", {}, [(1, 3, 4), (2, 4, 5)], "rhs", "leading"),
    ("batch_dot", {}, [(3, 4), (4, 5)], "lhs", "stack"),
    ("softmax", {"axis": 2}, [(2, 3)], "data", "axis"),
    ("softmax_cross_entropy", {}, [(2,), None], "data", "rows"),
    ("softmax_cross_entropy", {}, [(2, 3, 4), (2, 4)], "label", "rows"),
    ("softmax_cross_entropy", {}, [(2, 3), (4,)], "label", "rows"),
]


@pytest.mark.parametrize(("operator", "parameters", "inputs", "argument", "rule"), CONTRADICTIONS)
def test_P3_arithmetic_names_the_argument_that_contradicts(
    operator: str,
    parameters: dict[str, object],
    inputs: PartialShapes,
    argument: str,
    rule: str,
) -> None:
    found = contradiction(operator, parameters, inputs)
    assert found.argument == argument
    assert rule in found.rule


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("elemwise_sub", {"g"}),
        ("elemwise_mul", {"g", "a", "b"}),
        ("broadcast_div", {"g", "a", "b"}),
        ("_mul_scalar", {"g"}),
        ("_rdiv_scalar", {"g", "a"}),
        ("mean", {"g"}),
        ("max", {"g", "a", "y"}),
        ("dot", {"g", "a", "b"}),
        ("log_softmax", {"g", "y"}),
        ("softmax_cross_entropy", {"g", "a", "b"}),
    ],
)
def test_P5_arithmetic_declares_what_its_backward_reads(operator: str, expected: set[str]) -> None:
    prop = create(operator, {})
    assert set(prop.declare_backward_dependency("g", "ab"[: len(prop.list_arguments())], "y")) == (
        expected
    )


def test_P13_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be 0"):
        create("softmax", {"temperature": 0.0})


def test_one_axis_may_stand_alone() -> None:
    assert create("sum", {"axis": 1}).parameters.axis == (1,)
    with pytest.raises(UserError, match="'axis'"):
        create("sum", {"axis": True})


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        *itertools.product(("_minus", "_Minus", "_sub"), ("elemwise_sub",)),
        *itertools.product(("_mul", "_Mul"), ("elemwise_mul",)),
        *itertools.product(("_div", "_Div"), ("elemwise_div",)),
        ("broadcast_plus", "broadcast_add"),
        ("broadcast_minus", "broadcast_sub"),
        ("_PlusScalar", "_plus_scalar"),
        ("_MinusScalar", "_minus_scalar"),
        ("_RMinusScalar", "_rminus_scalar"),
        ("_MulScalar", "_mul_scalar"),
        ("_DivScalar", "_div_scalar"),
        ("_RDivScalar", "_rdiv_scalar"),
        ("_PowerScalar", "_power_scalar"),
        ("sum_axis", "sum"),
        ("max_axis", "max"),
    ],
)
def test_mxnets_names_of_arithmetic_are_known(alias: str, name: str) -> None:
    assert OPERATORS.get(alias) is OPERATORS.get(name)
