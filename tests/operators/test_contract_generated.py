"""Contract on generated cases: every registered operator, and difficult ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mxrun import library
from mxrun.commands.check_op import check_operator
from mxrun.commands.ops import operator as described
from mxrun.contract.derive import cases
from mxrun.operator import scalar
from mxrun.operator.operator import BackwardCall
from mxrun.operator.register import OPERATORS, create
from mxrun.operator.simple import reads_inputs, reads_out_grad, simple_operator

library.load()
pytestmark = pytest.mark.usefixtures("separate_registry")


def broken(name: str, *settings: str) -> dict[str, str]:
    """Return the checks that an operator fails, each with its first problem."""
    found = check_operator(name, settings)
    return {
        check["name"]: check["problems"][0]["sentence"]
        for check in found["checks"]
        if not check["passed"]
    }


@pytest.mark.full
@pytest.mark.parametrize("name", list(OPERATORS))
def test_F8_every_operator_keeps_the_contract_on_generated_cases(name: str) -> None:
    assert broken(name) == {}


def test_F8_what_is_not_checked_says_why() -> None:
    unchecked = {name for name in OPERATORS if OPERATORS.get(name).unchecked}
    of_recurrences = {"_loop", "_step_random", "_valid_steps", "_zeros"}
    assert unchecked == {"_reorder", *of_recurrences}
    for name in unchecked:
        found = check_operator(name)
        (check,) = found["checks"]
        assert found["cases"] == []
        assert check["not_checked"] == OPERATORS.get(name).unchecked


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


@pytest.mark.full
def test_jumps_do_not_hide_the_slope_between_them() -> None:
    register: Callable[..., Any] = simple_operator
    register("steps", gradient=reads_out_grad(lambda g: g))(steps)
    assert broken("steps") == {}
    register("steep_steps", gradient=reads_out_grad(lambda g: 2 * g))(steps)
    assert "is not the derivative" in broken("steep_steps")["gradients"]


def rounded(x: Any) -> Any:
    """output = data rounded; the gradient passes as if it were not."""
    return scalar.round(x)


@pytest.mark.full
def test_a_deliberate_gradient_is_stated_on_the_operator() -> None:
    register: Callable[..., Any] = simple_operator
    register("silent", gradient=reads_out_grad(lambda g: g))(rounded)
    assert set(broken("silent")) == {"gradients"}
    sentence = "The output's, as if nothing were rounded."
    straight = reads_out_grad(lambda g: g)
    register("straight_through", gradient=straight, nonstandard_gradient=sentence)(rounded)
    assert broken("straight_through") == {}
    assert described("straight_through")["nonstandard_gradient"] == sentence
    register("muttered", gradient=straight, nonstandard_gradient="whatever")(rounded)
    assert broken("muttered") == {"documentation": broken("muttered")["documentation"]}
    assert "is not a sentence" in broken("muttered")["documentation"]


@pytest.mark.full
def test_a_loss_is_compared_with_its_loss_whatever_its_outputs_say() -> None:
    """A loss operator is differentiated even if it has `nonstandard_gradient`."""
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
    """Return a backward in which half of the elements have the other sign."""

    def wrong(self: Any, call: BackwardCall) -> None:
        backward(self, call)
        if call.is_requested("data"):
            flat = call.input_gradients.data.reshape(-1)
            flat[::2] = -flat[::2]

    return wrong


def scaled(x: Any, scalar: Any) -> Any:
    """output = scalar * data^2."""
    return scalar * x * x


@pytest.mark.full
def test_numbers_that_give_no_examples_are_varied() -> None:
    register: Callable[..., Any] = simple_operator
    right = reads_inputs(lambda g, x, scalar: g * scalar * 2 * x)
    register("scaled", gradient=right, scalar=1.0)(scaled)
    assert broken("scaled") == {}
    forgetful = reads_inputs(lambda g, x, scalar: g * 2 * x)
    register("forgetful", gradient=forgetful, scalar=1.0)(scaled)
    assert "scalar=1.5" in broken("forgetful")["gradients"]
    assert broken("forgetful", "scalar=1") == {}


def squared(x: Any) -> Any:
    """output = data^2."""
    return x * x


def test_gradients_are_compared_at_far_values() -> None:
    def cut_off(g: Any, x: Any) -> Any:
        return scalar.where(scalar.abs(x) > 5.0, 0.0, g * 2 * x)

    register: Callable[..., Any] = simple_operator
    register("cut_off", gradient=reads_inputs(cut_off))(squared)
    assert "wide" in broken("cut_off")["gradients"]


def tiny(x: Any) -> Any:
    """output = data / 1e9."""
    return x * 1e-9


@pytest.mark.full
def test_a_small_gradient_is_compared_too() -> None:
    register: Callable[..., Any] = simple_operator
    register("tiny", gradient=reads_out_grad(lambda g: g * 1e-9))(tiny)
    assert broken("tiny") == {}
    register("tiny_turned", gradient=reads_out_grad(lambda g: g * -1e-9))(tiny)
    assert "is not the derivative" in broken("tiny_turned")["gradients"]


def array_square(env: Any, x: Any) -> Any:
    """output = data^2, on arrays."""
    return x * x


def test_the_gradient_is_compared_in_the_type_that_trains() -> None:
    def gradient(env: Any, g: Any, x: Any) -> Any:
        return g * x * (2 if x.dtype == np.float64 else 3)

    register: Callable[..., Any] = simple_operator
    register("double_only", gradient=reads_inputs(gradient))(array_square)
    assert "gradient of x in float32" in broken("double_only")["element types"]


def test_several_tasks_have_enough_to_do() -> None:
    def large(env: Any, x: Any) -> Any:
        """output = data^2, but of many elements data."""
        return x * x if x.size < 65536 else x

    register: Callable[..., Any] = simple_operator
    register("large", gradient=reads_inputs(lambda env, g, x: g * 2 * x))(large)
    assert "257x263" in broken("large")["gradients"]


def test_a_domain_that_was_not_tried_is_told_as_such() -> None:
    def far(x: Any) -> Any:
        """output = log(data - 100)."""
        return scalar.log(x - 100)

    register: Callable[..., Any] = simple_operator
    register("far", gradient=reads_inputs(lambda g, x: g / (x - 100)))(far)
    assert "no tried input values give finite outputs" in broken("far")["gradients"]


def test_what_an_operator_prints_is_beside_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    def loud(env: Any, x: Any) -> Any:
        """output = data^2."""
        print("loud")
        return x * x

    register: Callable[..., Any] = simple_operator
    register("loud", gradient=reads_inputs(lambda env, g, x: g * 2 * x))(loud)
    assert broken("loud") == {}
    printed = capsys.readouterr()
    assert not printed.out
    assert "loud" in printed.err


def test_inputs_are_compared_where_the_operator_is_defined() -> None:
    def gradient(g: Any, x: Any) -> Any:
        return g * 0.5 / scalar.sqrt(x)

    @simple_operator("root", gradient=reads_inputs(gradient))
    def root(x: Any) -> Any:
        """output = sqrt(data)."""
        return scalar.sqrt(x)

    assert broken("root") == {}
