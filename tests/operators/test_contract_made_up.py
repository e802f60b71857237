"""The contract on cases that the checker makes up: every registered operator, and hard ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planted import keep_apart

from mxrun import library
from mxrun.operator import scalar
from mxrun.operator.contract.derive import cases
from mxrun.operator.register import OPERATORS, create
from mxrun.operator.simple import reads_inputs, reads_out_grad, simple_operator
from mxrun.session.check_op import check_operator
from mxrun.session.registry import operator as described

library.load()


@pytest.fixture(autouse=True)
def _registered_for_the_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_apart(monkeypatch)


def broken(name: str, *settings: str) -> dict[str, str]:
    """The checks that an operator fails, each with its first problem."""
    found = check_operator(name, settings)
    return {
        check["name"]: check["problems"][0]["sentence"]
        for check in found["checks"]
        if not check["passed"]
    }


@pytest.mark.parametrize("name", list(OPERATORS))
def test_F8_every_operator_keeps_the_contract_on_cases_made_up_for_it(name: str) -> None:
    assert broken(name) == {}


def test_F8_what_is_not_checked_says_why() -> None:
    unchecked = {name for name in OPERATORS if OPERATORS.get(name).unchecked}
    assert unchecked == {"_reorder"}
    found = check_operator("_reorder")
    (check,) = found["checks"]
    assert found["cases"] == []
    assert check["not_checked"] == OPERATORS.get("_reorder").unchecked


def test_values_are_numbers_that_both_types_have() -> None:
    for name in ("gamma", "BatchNorm", "LogisticRegressionOutput"):
        for case in cases(create(name, {})):
            for single, double in zip(case.inputs["float32"], case.inputs["float64"], strict=True):
                assert (single == double).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint8", "int64"])
def test_an_output_of_fewer_digits_has_no_difference_to_compare(dtype: str) -> None:
    assert broken("Cast", f"dtype={dtype}") == {}


def steps(x: Any) -> Any:
    """output = data - floor(4096 data) / 4096: a slope of 1 between jumps."""
    return x - scalar.floor(4096 * x) / 4096


def test_jumps_do_not_hide_the_slope_between_them() -> None:
    register: Callable[..., Any] = simple_operator
    register("steps", gradient=reads_out_grad(lambda g: g))(steps)
    assert broken("steps") == {}
    register("steep_steps", gradient=reads_out_grad(lambda g: 2 * g))(steps)
    assert "is not the derivative" in broken("steep_steps")["gradients"]


def rounded(x: Any) -> Any:
    """output = data rounded; the gradient passes as if it were not."""
    return scalar.round(x)


def test_a_deliberate_gradient_is_stated_on_the_operator() -> None:
    register: Callable[..., Any] = simple_operator
    register("silent", gradient=reads_out_grad(lambda g: g))(rounded)
    assert set(broken("silent")) == {"gradients"}
    sentence = "The output's, as if nothing were rounded."
    straight = reads_out_grad(lambda g: g)
    register("straight_through", gradient=straight, gradient_instead=sentence)(rounded)
    assert broken("straight_through") == {}
    assert described("straight_through")["gradient_instead"] == sentence
    register("muttered", gradient=straight, gradient_instead="whatever")(rounded)
    assert broken("muttered") == {"documentation": broken("muttered")["documentation"]}
    assert "no sentence" in broken("muttered")["documentation"]


def test_a_loss_is_compared_with_its_loss_whatever_its_outputs_say() -> None:
    """`gradient_instead` excuses nothing where there is a loss to differentiate."""
    kind = OPERATORS.get("MakeLoss")
    bent = type("Bent", (kind,), {"type_string": "bent", "__doc__": "A wrong sign."})
    body = kind(create("MakeLoss", {}).parameters).create_operator()
    wrong = type("Wrong", (type(body),), {"backward": _negated(type(body).backward)})

    def create_operator(self: Any) -> Any:
        operator = kind.create_operator(self)
        operator.__class__ = wrong
        return operator

    bent.create_operator = create_operator  # type: ignore[method-assign]
    OPERATORS.add("bent", bent)
    assert "gradients" in broken("bent")


def _negated(backward: Callable[..., None]) -> Callable[..., None]:
    """A backward of which half of the elements have the other sign."""

    def wrong(
        self: Any, context: Any, out_grad: Any, in_data: Any, out_data: Any, *rest: Any
    ) -> None:
        backward(self, context, out_grad, in_data, out_data, *rest)
        gradient = rest[1][0]
        if gradient is not None:
            flat = gradient.array.reshape(-1)
            flat[::2] = -flat[::2]
            gradient.array[...] = np.reshape(flat, gradient.array.shape)

    return wrong


def test_inputs_are_compared_where_the_operator_is_defined() -> None:
    def gradient(g: Any, x: Any) -> Any:
        return g * 0.5 / scalar.sqrt(x)

    @simple_operator("root", gradient=reads_inputs(gradient))
    def root(x: Any) -> Any:
        """output = sqrt(data)."""
        return scalar.sqrt(x)

    assert broken("root") == {}
