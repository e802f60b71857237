"""SimpleOp: registrations that are refused, each at the line of its function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planted import keep_apart
from simple_registration import refusal

from mxrun.base.errors import InternalError, UserError
from mxrun.operator.property import GradientKind, ResourceKind, ResourceRequest
from mxrun.operator.register import OPERATORS
from mxrun.operator.simple import (
    EnvArguments,
    Inplace,
    reads_out_grad,
    reads_output,
    simple_operator,
)

Array = np.ndarray[Any, Any]
ZERO = GradientKind.ZERO
TEMP_SPACE = ResourceKind.TEMP_SPACE


@pytest.fixture(autouse=True)
def _registered_for_the_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_apart(monkeypatch)


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
        (unary, {"gradient": reads_out_grad(lambda g: math.exp(g))}, "no Python number"),
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
