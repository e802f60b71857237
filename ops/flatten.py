"""Flatten: merges all axes after the first."""

from __future__ import annotations

from mxrun.base.params import Parameters
from mxrun.operator.property import PartialInference, PartialShapes
from mxrun.operator.register import register
from mxrun.operator.shape import unify, unify_product
from mxrun.ops.view import ViewProperty


class FlattenParameters(Parameters):
    """Parameters of Flatten: none."""


@register("Flatten", "flatten")
class FlattenProperty(ViewProperty[FlattenParameters]):
    """output[n, :] = data[n] in row-major order; data [N, ...], output [N, product of the other
    axes].

    Backward reads only the output's gradient.
    """

    type_string = "Flatten"
    parameter_type = FlattenParameters

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer the output's columns as a product; backward, one unknown axis of data."""
        data = inputs[0]
        output = unify("output", outputs[0], (None, None), "flattening to rows")
        if data is not None:
            data = unify("data", data, (output[0], *(None,) * (len(data) - 1)), "output's rows")
            row, elements = unify_product("data", data[1:], output[1], "output's columns")
            data = (data[0], *row)
            output = unify("output", output, (data[0], elements), "data")
        return PartialInference([data], [output], [])
