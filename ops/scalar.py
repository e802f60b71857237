"""Binary operators of a tensor and a scalar."""

from __future__ import annotations

from mxrun.operator.map_kernel import MapImplementation
from mxrun.operator.register import implement, register
from mxrun.operator.simple import (
    SimpleEntry,
    SimpleProperty,
    reads_inputs,
    register_entry,
    simple_entry,
)
from mxrun.ops.binary import BINARY, ScalarParameters

# MXNet's names that differ, and the maps that also exist with the scalar as x.
_WORDS = {"add": "plus", "sub": "minus"}
_REVERSED = ("sub", "div", "power", "mod")


def _register() -> None:
    """Register every map but power with the scalar as y, and some with it as x."""
    for name, one in BINARY.items():
        word = _WORDS.get(name, name)
        title = word.title().replace("_", "")
        if name != "power":
            entry = one.with_number("y")
            register_entry(
                f"_{word}_scalar",
                f"_{title}Scalar",
                entry=entry,
                parameters=ScalarParameters,
                description=one.describe(entry, "data", "scalar"),
            )
        if name in _REVERSED:
            entry = one.with_number("x")
            register_entry(
                f"_r{word}_scalar",
                f"_R{title}Scalar",
                entry=entry,
                parameters=ScalarParameters,
                description=one.describe(entry, "scalar", "data"),
            )


_register()

_POWER = BINARY["power"].with_number("y")
_SQUARE = simple_entry(
    lambda x: x * x, ScalarParameters, gradient=reads_inputs(lambda g, x: g * (2 * x))
)


@register("_power_scalar", "_PowerScalar")
class PowerScalarProperty(SimpleProperty[ScalarParameters]):
    """output = data ^ scalar. Its gradient is scalar * data ^ (scalar - 1), also at 0; 0 for
    scalar = 0.

    Backward reads the output's gradient and data.
    """

    type_string = "_power_scalar"
    parameter_type = ScalarParameters

    @property
    def entry(self) -> SimpleEntry:
        """Functions of the power, or of the square as a product for scalar = 2."""
        return _SQUARE if self.parameters.scalar == 2 else _POWER


implement("_power_scalar", backend="jit")(MapImplementation)
