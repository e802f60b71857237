"""Activation: elementwise nonlinearities whose gradient is a function of their output."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.operator.family import OperatorFamily
from mxrun.operator.register import implement, register
from mxrun.operator.scalar import expm1, sigmoid, softplus, tanh, where
from mxrun.operator.simple import (
    MapImplementation,
    SimpleEntry,
    SimpleProperty,
    reads_output,
    simple_entry,
)

# Scalar functions run on numbers, arrays and symbolic values.
Scalar = Any


class ActivationParameters(Parameters):
    """Parameters of Activation (MXNet's)."""

    act_type: Literal["relu", "sigmoid", "softrelu", "softsign", "tanh"] = Field(
        description="Function applied to every element.", examples=["relu"]
    )


def relu(x: Scalar) -> Scalar:
    """Return 0 where x <= 0, else x; NaN for NaN, unlike max(x, 0) in vector code."""
    return where(x <= 0, 0.0, x)


def relu_gradient(g: Scalar, y: Scalar) -> Scalar:
    """Return g where y > 0, else g * y, which is 0 or NaN."""
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


@register(
    "Activation",
    foreign={
        "Activation: {act_type: relu}": "relu",
        "Activation: {act_type: sigmoid}": "sigmoid",
        "Activation: {act_type: tanh}": "tanh",
        "Activation: {act_type: softsign}": "softsign",
        "Activation: {act_type: softrelu}": "softplus",
    },
)
class ActivationProperty(SimpleProperty[ActivationParameters]):
    """output = f(data), elementwise, with f = relu, sigmoid, softrelu, softsign or tanh.

    - relu: max(x, 0)
    - sigmoid: 1 / (1 + exp(-x))
    - softrelu: log(1 + exp(x))
    - softsign: x / (1 + |x|)
    - tanh: tanh(x)

    NaN gives NaN. MXNet 1.9.1's relu returns 0 for NaN, which hides that a network has diverged.
    Backward reads the output and its gradient: every derivative here is a function of the output.
    """

    type_string = "Activation"
    family = OperatorFamily.ACTIVATION
    parameter_type = ActivationParameters

    @property
    def entry(self) -> SimpleEntry:
        """Functions of act_type."""
        return _ENTRIES[self.parameters.act_type]

    @property
    def is_monotone(self) -> bool:
        """True for relu; the others round different inputs to one output with non-zero gradient."""
        return self.parameters.act_type == "relu"


# oneDNN's eltwise is slower: with 64 x 500 elements and two threads it takes 8.8 us for tanh and
# 5.2 for its gradient; the maps take 4.8 and 3.1. With 3 M floats all are limited by memory
# bandwidth.
implement("Activation", backend="jit")(MapImplementation)
