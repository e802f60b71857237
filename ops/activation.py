"""Activation: the elementwise nonlinearities whose gradient follows from their output."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.operator.register import implement, register
from mxrun.operator.scalar import expm1, sigmoid, softplus, tanh, where
from mxrun.operator.simple import (
    MapImplementation,
    SimpleEntry,
    SimpleProperty,
    reads_output,
    simple_entry,
)

# Scalar functions run on numbers, arrays and values that stand for compiled ones.
Scalar = Any


class ActivationParameters(Parameters):
    """Parameters of Activation (MXNet's)."""

    act_type: Literal["relu", "sigmoid", "softrelu", "softsign", "tanh"] = Field(
        description="The function applied to every element.", examples=["relu"]
    )


def relu(x: Scalar) -> Scalar:
    """x, or 0 where x is not above it; unlike max(x, 0) in vector code, NaN for NaN."""
    return where(x <= 0, 0.0, x)


def relu_gradient(g: Scalar, y: Scalar) -> Scalar:
    """g where y is above 0; times y elsewhere, which is 0 or NaN."""
    return g * where(y > 0, 1.0, y)


_ENTRIES: dict[str, SimpleEntry] = {
    "relu": simple_entry(relu, gradient=reads_output(relu_gradient)),
    "sigmoid": simple_entry(
        lambda x: sigmoid(x), gradient=reads_output(lambda g, y: g * (y * (1 - y)))
    ),
    "softrelu": simple_entry(
        lambda x: softplus(x), gradient=reads_output(lambda g, y: g * -expm1(-y))
    ),
    "softsign": simple_entry(
        lambda x: x / (1 + abs(x)),
        gradient=reads_output(lambda g, y: g * ((1 - abs(y)) * (1 - abs(y)))),
    ),
    "tanh": simple_entry(lambda x: tanh(x), gradient=reads_output(lambda g, y: g * (1 - y * y))),
}


@register("Activation")
class ActivationProperty(SimpleProperty[ActivationParameters]):
    """output = f(data), elementwise: relu max(x, 0), sigmoid 1 / (1 + exp(-x)),
    softrelu log(1 + exp(x)), softsign x / (1 + |x|), tanh.

    NaN stays NaN; MXNet 1.9.1's relu makes 0 of it, which hides that a network has diverged.
    Backward reads the output and its gradient: every derivative here is a function of the output.
    """

    type_string = "Activation"
    parameter_type = ActivationParameters

    @property
    def entry(self) -> SimpleEntry:
        """The function of act_type."""
        return _ENTRIES[self.parameters.act_type]

    @property
    def is_monotone(self) -> bool:
        """Of relu. What the others make of different numbers may be equal but for its gradient."""
        return self.parameters.act_type == "relu"


# oneDNN's eltwise takes longer: over 64 x 500 and two threads 8.8 us for tanh and 5.2 for its
# gradient, where the maps take 4.8 and 3.1; over 3 M floats all wait for the memory.
implement("Activation", backend="jit")(MapImplementation)
