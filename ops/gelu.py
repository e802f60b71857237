"""gelu and silu: products of data and a smooth step."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.operator.family import OperatorFamily
from mxrun.operator.register import implement, register
from mxrun.operator.scalar import gelu, minimum, sigmoid
from mxrun.operator.simple import (
    MapImplementation,
    SimpleEntry,
    SimpleProperty,
    reads_inputs,
    simple_entry,
    simple_operator,
)
from mxrun.ops.leaky_relu.operator import gelu_gradient

# Scalar functions run on numbers, arrays and symbolic values.
Scalar = Any

# Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016: the normal distribution is about
# sigmoid(x * (_SLOPE + _CUBIC * x^2)).
_SLOPE = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715 * _SLOPE
# Square from which on sigmoid is 0 or 1, in float64 too.
_FAR = 1e4


class GeluParameters(Parameters):
    """Parameters of gelu (PyTorch's)."""

    approximate: Literal["none", "tanh"] = Field(
        default="none", description="Normal distribution: exact, or approximated with tanh."
    )


def approximate_gelu(x: Scalar) -> Scalar:
    """Return x * (1 + tanh(z)) / 2 = x * sigmoid(2 z), z = sqrt(2 / pi) * (x + 0.044715 x^3)."""
    return x * sigmoid(x * (_SLOPE + _CUBIC * (x * x)))


def approximate_gelu_gradient(g: Scalar, x: Scalar) -> Scalar:
    """Return the product rule's gradient, with sigmoid' = sigmoid * (1 - sigmoid)."""
    square = x * x
    step = sigmoid(x * (_SLOPE + _CUBIC * square))
    # sigmoid' first: it is 0 where a product of x and the slope would be infinite.
    slope = _SLOPE + 3 * _CUBIC * minimum(square, _FAR)
    return g * (step + x * (step * (1 - step)) * slope)


_ENTRIES: dict[str, SimpleEntry] = {
    "none": simple_entry(lambda x: gelu(x), gradient=reads_inputs(gelu_gradient)),
    "tanh": simple_entry(approximate_gelu, gradient=reads_inputs(approximate_gelu_gradient)),
}


@register("gelu", foreign={"gelu": "gelu"})
class GeluProperty(SimpleProperty[GeluParameters]):
    """output = data * P(a normal variable <= data), elementwise. Backward reads data and the
    output's gradient.

    - approximate none: data * (1 + erf(data / sqrt(2))) / 2, as LeakyReLU with act_type gelu
    - approximate tanh: data * (1 + tanh(sqrt(2 / pi) * (data + 0.044715 * data^3))) / 2.
    """

    type_string = "gelu"
    family = OperatorFamily.ACTIVATION
    parameter_type = GeluParameters

    @property
    def entry(self) -> SimpleEntry:
        """Functions of `approximate`."""
        return _ENTRIES[self.parameters.approximate]


implement("gelu", backend="jit")(MapImplementation)


def silu_gradient(g: Scalar, x: Scalar) -> Scalar:
    """Return g * s * (1 + x * (1 - s)), s = sigmoid(x)."""
    step = sigmoid(x)
    return g * (step * (1 + x * (1 - step)))


@simple_operator(
    "silu",
    gradient=reads_inputs(silu_gradient),
    family=OperatorFamily.ACTIVATION,
    foreign={"silu": "silu swish"},
)
def silu(x: Scalar) -> Scalar:
    """output = data / (1 + exp(-data)), elementwise; also called swish.

    Backward reads data and the output's gradient.
    """
    return x * sigmoid(x)
