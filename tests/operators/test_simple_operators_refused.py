"""SimpleOp: registrations that are refused, each at the line of its function."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from operator_harness import forward
from pydantic import Field
from simple_registration import refusal

from mxrun.base.errors import InternalError, UserError
from mxrun.base.keywords import RESERVED_KEYS
from mxrun.base.params import Parameters
from mxrun.operator.kernel import OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.operator import BackwardCall, ByName, ForwardCall
from mxrun.operator.property import GradientKind, ResourceKind, ResourceRequest
from mxrun.operator.register import OPERATORS, create
from mxrun.operator.simple import (
    EnvArguments,
    Inplace,
    reads_inputs,
    reads_out_grad,
    reads_output,
    simple_operator,
)

pytestmark = pytest.mark.usefixtures("separate_registry")

Array = np.ndarray[Any, Any]
ZERO = GradientKind.ZERO
TEMP_SPACE = ResourceKind.TEMP_SPACE


def three(a: Any, b: Any, c: Any) -> Any:
    return a + b + c


def three_arrays(env: EnvArguments, a: Array, b: Array, c: Array) -> Any:
    return a + b + c


def pair(x: Any) -> Any:
    return x, -x


def nothing() -> Any:
    return 1.0


@pytest.mark.parametrize("function", [three, three_arrays, pair, nothing])
def test_Q14_more_tensors_need_a_property(function: Callable[..., Any]) -> None:
    problem = refusal(lambda: simple_operator("more", description="more")(function), function)
    assert "OperatorProperty" in problem
    assert "more" not in OPERATORS


def unary(x: Any) -> Any:
    return x


def unary_array(env: EnvArguments, data: Array) -> Any:
    return data


def defaulted(x: Any, y: Any = 2) -> Any:
    return x


class Moded(Parameters):
    """A parameter that is no number."""

    mode: str = Field(default="a", description="A text.")


def moded(x: Any, mode: Any) -> Any:
    return x * mode


def scaled(x: Any, scalar: Any) -> Any:
    return x * scalar


@pytest.mark.parametrize(
    ("function", "options", "problem"),
    [
        (unary, {"gradient": reads_out_grad(unary, unary)}, "unary has 2 gradients"),
        (unary, {"gradient": reads_out_grad(three)}, "the gradient of x gets b, c"),
        (unary, {"gradient": reads_output(unary)}, "the arguments of the gradient of x"),
        (unary, {"gradient": GradientKind.COMPUTES}, "needs a function"),
        (unary, {"gradient": reads_out_grad(math.exp)}, "builtin_function_or_method"),
        (unary, {"inplace": Inplace.LHS_OUT}, "cannot be Inplace.LHS_OUT"),
        (unary, {"shape": lambda p, data: data}, "a map, which keeps the shape"),
        (unary, {"resource": ResourceRequest(TEMP_SPACE, 8)}, "a map, which needs no resources"),
        (unary, {"description": ""}, "wrong has no description"),
        (defaulted, {}, "defaulted has starred, keyword-only or default arguments"),
        (unary, {"gradient": reads_out_grad(lambda g: math.exp(g))}, "not a Python number"),
        (unary, {"gradient": unary}, "reads_inputs(f), or GradientKind.ZERO\n  got: function"),
        (unary, {"inplace": "kInplaceInOut"}, "expected: Inplace.NONE or Inplace.IN_OUT"),
        (unary_array, {"inplace": "kInplaceInOut"}, "cannot be kInplaceInOut"),
        (unary_array, {"resource": 3}, "resource is not a ResourceRequest"),
        (
            unary_array,
            {"resource": [ResourceRequest(TEMP_SPACE, 8), 3]},
            "resource is not a ResourceRequest",
        ),
        (unary_array, {"shape": (3,)}, "shape is not a function"),
        (unary_array, {"shape": lambda data: data}, "the shape function of unary_array has other"),
        (unary, {"parameters": Moded(mode="a")}, "parameters is not a class"),
        (moded, {"parameters": Moded}, "moded is a map, whose parameter 'mode' is not a number"),
        (scaled, {"scalar": "abc"}, "scalar cannot be 'abc' by default"),
        (scaled, {"scalar": math.nan}, "scalar cannot be nan by default"),
        (scaled, {"scalar": True}, "scalar cannot be True by default"),
        (scaled, {"scalar": 1e300}, "a finite number that float32 holds"),
        (unary, {"scalar": 2.0}, "no function of wrong takes its scalar"),
    ],
)
def test_a_wrong_registration_is_refused_at_the_functions_line(
    function: Callable[..., Any], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UserError) as caught:
        simple_operator("wrong", **{"description": "wrong", **options})(function)
    assert problem in str(caught.value)
    if "builtin" not in problem:
        assert f"{__file__}:" in str(caught.value)
    assert "wrong" not in OPERATORS


def test_a_gradient_works_on_what_its_forward_does() -> None:
    register = simple_operator("mixed", gradient=reads_out_grad(unary), description="mixed")
    assert "`env`" in refusal(lambda: register(unary_array), unary)


def test_a_name_that_is_taken_is_refused_at_the_functions_line() -> None:
    with pytest.raises(InternalError, match="'exp' is registered twice") as caught:
        simple_operator("exp", description="again")(unary)
    assert f"{__file__}:{unary.__code__.co_firstlineno}:" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "my op/1:x", "1st", "a-b", "\u00e9", 3, "repeat", *RESERVED_KEYS]
)
def test_what_no_layer_can_be_told_by_is_no_name(name: Any) -> None:
    for names in ((name,), ("sensible", name)):
        problem = refusal(partial(simple_operator(*names, description="x"), unary), unary)
        assert "unary cannot be registered under that name" in problem
        assert f"got: {name!r}" in problem
    assert "sensible" not in OPERATORS


def test_a_decorator_without_its_name_is_refused_at_the_functions_line() -> None:
    problem = refusal(lambda: simple_operator(unary), unary)  # type: ignore[arg-type]
    assert '@simple_operator("NAME")' in problem


def test_a_function_on_arrays_finds_its_scalar_by_itself() -> None:
    simple_operator("found", scalar=2.0, description="found")(unary_array)
    assert OPERATORS.get("found").parameter_type.model_fields["scalar"].default == 2.0


@pytest.mark.parametrize("made", [(-3,), (1.5,), 5, None, "ab"])
def test_a_shape_function_that_answers_no_shape_is_named(made: Any) -> None:
    def shape(parameters: Any, data: Any) -> Any:
        return made

    simple_operator("misshapen", shape=shape, description="x")(unary_array)
    prop = create("misshapen", {})
    problem = refusal(lambda: prop.infer_shape([(4,)], [None]), shape)
    assert f"the shape function of misshapen returns {made!r}" in problem


@pytest.mark.parametrize(
    "made",
    [np.zeros(1), np.zeros((1, 6)), np.zeros(3), np.float32(0), np.zeros(6, "complex64"), "x"],
)
def test_an_array_that_does_not_fit_is_refused_at_the_functions_line(made: Any) -> None:
    def answers(env: EnvArguments, data: Array) -> Any:
        return made

    def gradient(env: EnvArguments, out_grad: Array, data: Array) -> Any:
        return made

    simple_operator("unfit", gradient=reads_inputs(gradient), description="x")(answers)
    body, data = create("unfit", {}).create_operator(), np.ones(6, "float32")
    given, out = ByName("input", ["data"], [data]), ByName("output", ["output"], [data])
    written = {"inputs": given, "outputs": out, "is_train": True, "resources": ()}
    requests = [OpReqType.WRITE]
    call = ForwardCall(
        **written,
        requests=ByName("output", ["output"], requests),
        auxiliary=ByName("auxiliary state", [], []),
    )
    problem = refusal(lambda: body.forward(call), answers)
    assert "as the output, float32 of shape (6,)" in problem
    back = BackwardCall(
        **written,
        requests=ByName("input gradient", ["data"], requests),
        output_gradients=out,
        input_gradients=given,
    )
    problem = refusal(lambda: body.backward(back), gradient)
    assert "as the gradient of data, float32 of shape (6,)" in problem
    assert data.tolist() == [1] * 6


def test_a_number_stands_for_every_element() -> None:
    simple_operator("constant", description="x")(constant)
    run = forward(NUMPY, create("constant", {}), [np.ones(3, "float32")], [np.ones(3, "float32")])
    assert run is not None
    assert run.outputs[0].tolist() == [0.5] * 3


def constant(env: EnvArguments, data: Array) -> Any:
    return 0.5
