"""Loop: a graph that runs several times as one step; made by the compiler, never by users."""

from __future__ import annotations

from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.operator.operator import Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import register


class LoopParameters(Parameters):
    """Numbers of tensors."""

    num_inputs: int = Field(1, ge=0, description="Number of tensors that the loop reads.")
    num_outputs: int = Field(1, ge=1, description="Number of tensors that the loop writes.")


@register("_loop")
class LoopProperty(OperatorProperty[LoopParameters]):
    """Iterations of a graph of plain steps; the loop of the step says what it computes."""

    type_string = "_loop"
    parameter_type = LoopParameters
    is_internal = True
    unchecked = "A loop's kernel is planned from its body, which consists of checked operators."

    def list_arguments(self) -> tuple[str, ...]:
        """input0, input1, ..."""
        return tuple(f"input{index}" for index in range(self.parameters.num_inputs))

    def list_outputs(self) -> tuple[str, ...]:
        """output0, output1, ..."""
        return tuple(f"output{index}" for index in range(self.parameters.num_outputs))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Return the shapes as they are: the compiler knows all of them."""
        return PartialInference([*inputs], [*outputs], [])

    def create_operator(self) -> Operator:
        """Raise TypeError: a loop's kernel is that of its body."""
        raise TypeError("a loop has no NumPy body")
