"""SimpleOp: the result of one registration, for a map and for a function on arrays."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from executors import cpu
from launches import handles_of
from operator_harness import BackwardData, backward, forward
from pydantic import Field
from simple_registration import keeps_the_contract, plan_request, refusal, run_alone

from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import TensorSpec
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind, ResourceKind, ResourceRequest
from mxrun.operator.register import OPERATORS, create, implement, implementations, register
from mxrun.operator.shape import ShapeContradiction
from mxrun.operator.simple import (
    EnvArguments,
    Inplace,
    MapImplementation,
    SimpleEntry,
    SimpleProperty,
    reads_inputs,
    reads_out_grad,
    simple_entry,
    simple_operator,
)

pytestmark = pytest.mark.usefixtures("separate_registry")

Array = np.ndarray[Any, Any]
ZERO = GradientKind.ZERO
TEMP_SPACE = ResourceKind.TEMP_SPACE


def test_Q2_a_map_keeps_the_shape_in_every_direction() -> None:
    prop = create("smooth_l1", {})
    assert prop.infer_shape([(2, None)], [(None, 3)]).inputs == [(2, 3)]
    assert prop.infer_shape([None], [(4, 5, 6)]).inputs == [(4, 5, 6)]
    assert prop.infer_shape([(7,)], [None]).outputs == [(7,)]


def test_Q2_two_inputs_of_other_shapes_are_a_contradiction() -> None:
    @simple_operator("distance", gradient=ZERO)
    def distance(x: Any, y: Any) -> Any:
        """output = |lhs - rhs|."""
        return abs(x - y)

    prop = create("distance", {})
    assert prop.list_arguments() == ("lhs", "rhs")
    assert prop.infer_shape([(2, 3), None], [None]).inputs == [(2, 3), (2, 3)]
    with pytest.raises(ShapeContradiction, match=r"rhs is \[2, 4\]"):
        prop.infer_shape([(2, 3), (2, 4)], [None])


def test_Q2_a_shape_function_overrides() -> None:
    @simple_operator("row_sums", shape=lambda parameters, data: data[:1])
    def row_sums(env: EnvArguments, data: Array) -> Any:
        """output[n] = the sum of data's row n."""
        return data.reshape(len(data), -1).sum(axis=1)

    prop = create("row_sums", {})
    assert prop.infer_shape([(3, 4, 5)], [None]).outputs == [(3,)]
    assert prop.infer_shape([(3, None)], [None]).outputs == [None]
    with pytest.raises(ShapeContradiction, match="the shape function"):
        prop.infer_shape([(3, 4)], [(4,)])
    keeps_the_contract("row_sums")


@pytest.mark.parametrize(
    "name", ["smooth_l1", "sigmoid", "negative", "ones_like", "hypotenuse", "product_of_arrays"]
)
def test_Q3_functions_honour_every_request(name: str) -> None:
    @simple_operator(
        "hypotenuse",
        gradient=reads_inputs(
            lambda g, x, y: g * x * scalar.rsqrt(x * x + y * y),
            lambda g, x, y: g * y * scalar.rsqrt(x * x + y * y),
        ),
    )
    def hypotenuse(x: Any, y: Any) -> Any:
        """output = sqrt(lhs^2 + rhs^2)."""
        return scalar.sqrt(x * x + y * y)

    @simple_operator(
        "product_of_arrays",
        gradient=reads_inputs(lambda env, g, lhs, rhs: g * rhs, lambda env, g, lhs, rhs: g * lhs),
        inplace=(Inplace.LHS_OUT, Inplace.OUT_LHS),
    )
    def product(env: EnvArguments, lhs: Array, rhs: Array) -> Any:
        """output = lhs * rhs."""
        return lhs * rhs

    keeps_the_contract(name)


def test_Q6_the_scalar_reaches_forward_and_gradient() -> None:
    data = np.array([-1, -0.1, 0, 0.1, 1], "float32")
    output, gradient = run_alone("smooth_l1", {"scalar": 3.0}, data)
    np.testing.assert_allclose(output, [1 - 1 / 18, 0.045, 0, 0.045, 1 - 1 / 18], rtol=1e-6)
    np.testing.assert_allclose(gradient, [-1, -0.9, 0, 0.9, 1], rtol=1e-6)


def test_Q6_arrays_find_the_scalar_in_their_environment() -> None:
    @simple_operator("shifted", scalar=0.5, gradient=reads_out_grad(lambda env, g: g * env.scalar))
    def shifted(env: EnvArguments, data: Array) -> Any:
        """output = scalar * data."""
        return data * data.dtype.type(env.scalar)

    data = np.array([1, 2], "float32")
    assert run_alone("shifted", {}, data)[0].tolist() == [0.5, 1]
    assert run_alone("shifted", {"scalar": 4.0}, data)[1].tolist() == [4, 4]


class Line(Parameters):
    """A line."""

    slope: Float32 = 2.0
    height: Float32 = 0.0

    @property
    def root(self) -> float:
        """Return the zero of the line."""
        return -self.height / self.slope


def test_Q7_keyword_parameters_reach_functions_by_name() -> None:
    @simple_operator("line", parameters=Line, gradient=reads_out_grad(lambda g, slope: g * slope))
    def line(x: Any, slope: Any, root: Any) -> Any:
        """output = slope (data - root)."""
        return slope * (x - root)

    data = np.array([0, 1], "float32")
    output, gradient = run_alone("line", {"slope": 4.0, "height": 2.0}, data)
    assert output.tolist() == [2, 6]
    assert gradient.tolist() == [4, 4]


def test_Q7_T7_a_scalar_and_keyword_parameters_are_refused() -> None:
    def both(x: Any, scalar: Any) -> Any:
        return x

    problem = refusal(lambda: simple_operator("both", scalar=1.0, parameters=Line)(both), both)
    assert "both has a scalar and keyword parameters" in problem
    assert "both" not in OPERATORS


@pytest.mark.parametrize("several", [False, True])
def test_Q8_requests_are_answered_in_their_order(several: bool) -> None:
    sizes = (64, 24, 4096) if several else (24,)
    requests = [ResourceRequest(TEMP_SPACE, size) for size in sizes]
    seen: list[tuple[int, ...]] = []

    @simple_operator(
        "spacious",
        resource=requests if several else requests[0],
        gradient=reads_out_grad(lambda env, g: watched(env, g)),
    )
    def spacious(env: EnvArguments, data: Array) -> Any:
        """output = data."""
        return watched(env, data)

    def watched(env: EnvArguments, value: Array) -> Array:
        seen.append(tuple(env.call.space(i).nbytes for i in range(len(sizes))))
        return value

    run_alone("spacious", {}, np.ones(3, "float32"))
    assert seen == [sizes, sizes]


def cross_entropy(env: EnvArguments, data: Array, label: Array) -> Any:
    """output[0] = sum over n of -log(softmax(data)[n, label[n]])."""
    return -np.log(probability(env, data)[np.arange(len(data)), label.astype("int64")]).sum()


def cross_entropy_gradient(env: EnvArguments, grad: Array, data: Array, label: Array) -> Any:
    slope = probability(env, data)
    slope[np.arange(len(data)), label.astype("int64")] -= 1
    slope *= grad[0]
    return slope


def probability(env: EnvArguments, data: Array) -> Array:
    """The softmax of rows, in the temporary space."""
    space: Array = env.call.space(0).view(data.dtype).reshape(data.shape)
    np.subtract(data, data.max(axis=1, keepdims=True), out=space)
    np.exp(space, out=space)
    space /= space.sum(axis=1, keepdims=True)
    return space


def test_T2_Q12_a_loss_computes_in_its_temporary_space() -> None:
    simple_operator(
        "rows_cross_entropy",
        gradient=reads_inputs(cross_entropy_gradient, ZERO),
        shape=lambda parameters, data, label: (1,),
        resource=lambda inputs: [ResourceRequest(TEMP_SPACE, inputs[0].nbytes)],
    )(cross_entropy)
    prop, product = create("rows_cross_entropy", {}), create("softmax_cross_entropy", {})
    assert prop.list_arguments() == ("data", "label")
    assert prop.list_gradients() == (GradientKind.COMPUTES, ZERO)
    random = np.random.default_rng(0)
    data = random.standard_normal((5, 7)).astype("float32")
    label = random.integers(0, 7, 5).astype("float32")
    found = []
    for each, labels in ((prop, label), (product, label.astype("int32"))):
        run = forward(NUMPY, each, [data, labels], [np.full(1, np.nan, "float32")])
        assert run is not None
        given = BackwardData([np.full(1, 0.5, "float32")], [data, labels], run.outputs)
        before = [np.full_like(data, np.nan), np.zeros_like(labels)]
        requests = (OpReqType.WRITE, OpReqType.NULL)
        found.append((run.outputs[0], backward(NUMPY, each, given, before, run, requests)[0]))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    kernel = NUMPY.prepare_forward(
        prop, plan_request((data.shape, label.shape), ((1,),), (OpReqType.WRITE,))
    )
    assert kernel.workspace_bytes == 192


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_Q11_a_scalar_function_is_a_loop_of_every_type(dtype: str) -> None:
    @simple_operator("folded", gradient=ZERO)
    def folded(a: Any, b: Any) -> Any:
        """output = lhs - rhs where lhs is larger, else 3 lhs + rhs."""
        return scalar.where(a > b, a - b, a * 3 + b)

    random = np.random.default_rng(1)
    a, b = (random.integers(0, 50, 777).astype(dtype) for _ in range(2))
    expected = [x - y if x > y else x * 3 + y for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    prop = create("folded", {})
    for implementation in (NUMPY, implementations("folded")["jit"]):
        run = forward(implementation, prop, [a, b], [np.zeros_like(a)], threads=2)
        assert run is not None
        assert run.outputs[0].dtype == dtype
        assert run.outputs[0].tolist() == expected


def test_Q11_a_type_without_the_function_is_left_to_numpy() -> None:
    data = np.array([0, 1, 2], "int32")
    prop = create("exp", {})
    assert forward(implementations("exp")["jit"], prop, [data], [data.copy()]) is None
    run = forward(NUMPY, prop, [data], [data.copy()])
    assert run is not None
    assert run.outputs[0].tolist() == [1, 2, 7]


@pytest.mark.parametrize("request_type", [OpReqType.WRITE, OpReqType.INPLACE, OpReqType.ADD])
def test_Q15_a_gradient_is_one_pass_without_a_temporary(request_type: OpReqType) -> None:
    prop, spec = create("gamma", {}), TensorSpec((3, 100))
    jit = implementations("gamma")["jit"]
    first = jit.prepare_forward(prop, plan_request((spec.shape,), (spec.shape,), (request_type,)))
    assert first is not None
    request = BackwardRequest((spec,), (spec,), (None,), (spec,), (request_type,), first, cpu(2))
    second = jit.prepare_backward(prop, request)
    assert second is not None
    assert first.workspace_bytes == second.workspace_bytes == 0
    one, two, three = (np.zeros(spec.shape, "float32") for _ in range(3))
    assert len(first.bind(handles_of([one], [two]))) == 1
    assert len(second.bind(handles_of([one, two, None], [three]))) == 1
    assert second.bytes_moved == 3 * spec.nbytes


class CurveParameters(Parameters):
    """Parameters of a curve."""

    kind: Literal["square", "cube"] = Field(default="square", description="The power of data.")


CURVES = {
    "square": simple_entry(lambda x: x * x, gradient=reads_inputs(lambda g, x: g * (2 * x))),
    "cube": simple_entry(lambda x: x * x * x, gradient=reads_inputs(lambda g, x: g * (3 * x * x))),
}


def test_a_parameter_may_choose_the_function() -> None:
    @register("curve")
    class CurveProperty(SimpleProperty[CurveParameters]):
        """output = data^2 or data^3. Backward reads the output's gradient and data."""

        type_string = "curve"
        parameter_type = CurveParameters

        @property
        def entry(self) -> SimpleEntry:
            """The chosen curve."""
            return CURVES[self.parameters.kind]

    implement("curve", backend="jit")(MapImplementation)
    data = np.array([-2, 3], "float32")
    assert run_alone("curve", {"kind": "cube"}, data)[0].tolist() == [-8, 27]
    assert run_alone("curve", {}, data)[1].tolist() == [-4, 6]
    keeps_the_contract("curve")


def test_Q8_random_numbers_are_answered_in_their_place() -> None:
    requests = [ResourceRequest(TEMP_SPACE, 8), ResourceRequest(ResourceKind.RANDOM)]

    @simple_operator("noisy", resource=requests, gradient=reads_out_grad(lambda env, g: g))
    def noisy(env: EnvArguments, data: Array) -> Any:
        """output = data plus a number from [0, 1) for each element."""
        assert env.call.space(0).nbytes == 8
        bits = env.call.random(1).bits(data.size).reshape(data.shape)
        return data + (bits >> 8).astype(data.dtype) * data.dtype.type(2**-24)

    keeps_the_contract("noisy")


def test_a_map_is_traced_once_for_each_type() -> None:
    traced = []

    def counted(x: Any) -> Any:
        """output = 2 data."""
        traced.append(x)
        return 2 * x

    forward = simple_entry(counted).forward
    for dtype in ("float32", "float64", "float64", "float32"):
        assert forward.kernel(dtype).dtype == dtype
    assert len(traced) == 2
