"""transpose and SwapAxis: permutations of a tensor's axes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, TypeVar

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import PartialShape, Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import register
from mxrun.operator.shape import ShapeContradiction, unify

P = TypeVar("P", bound=Parameters)
T = TypeVar("T")


class PermutationProperty(OperatorProperty[P]):
    """Axis i of the output is axis `axes(rank)[i]` of data. Backward reads only out_grad."""

    family = OperatorFamily.SHAPE

    @abstractmethod
    def axes(self, rank: int) -> Shape:
        """Return the order of data's axes in the output; raises ShapeContradiction."""

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer in both directions once the rank is known."""
        data, output = inputs[0], outputs[0]
        rank = _rank(data, output)
        if rank is None:
            return PartialInference([None], [None], [])
        axes = self.axes(rank)
        given = unify("data", data, (None,) * rank, "output's rank")
        permuted = unify("output", output, tuple(given[axis] for axis in axes), "data's axes")
        back = tuple(permuted[axis] for axis in inverse(axes))
        return PartialInference([unify("data", given, back, "output's axes")], [permuted], [])

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """The place of data's axis in the permutation."""
        (axis,), (shape,) = sequences.axes, sequences.shapes
        return None if axis is None else self.axes(len(shape)).index(axis)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad."""
        return [out_grad[0]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return 0: nothing is computed."""
        return 0

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Permutation(self)


def inverse(axes: Shape) -> Shape:
    """Return the inverse of the permutation `axes`."""
    return tuple(int(axis) for axis in np.argsort(axes))


def _rank(*shapes: PartialShape) -> int | None:
    return next((len(shape) for shape in shapes if shape is not None), None)


class TransposeParameters(Parameters):
    """Parameters of transpose (MXNet's)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"axes": [1, 0]}]})
    axes: tuple[Annotated[Int32, Field(ge=0)], ...] = Field(
        default=(), description="data's axis for each axis of the output; default: reversed."
    )

    @model_validator(mode="after")
    def _permutation(self) -> TransposeParameters:
        if sorted(self.axes) != list(range(len(self.axes))):
            raise ValueError(f"axes must name each of 0 to {len(self.axes) - 1} once")
        return self


@register("transpose", foreign={"transpose: {axes: [0, 2, 1]}": "permute"})
class TransposeProperty(PermutationProperty[TransposeParameters]):
    """output = data with its axes permuted: axis i of the output is axis `axes[i]` of data.
    Backward reads only the output's gradient, whose axes it permutes back.
    """

    type_string = "transpose"
    parameter_type = TransposeParameters

    def axes(self, rank: int) -> Shape:
        """Return the parameter, or the reverse order if it is empty."""
        axes = self.parameters.axes or tuple(range(rank))[::-1]
        if len(axes) != rank:
            raise ShapeContradiction("data", f"rank {rank}", f"rank {len(axes)}", "axes")
        return axes


class SwapAxisParameters(Parameters):
    """Parameters of SwapAxis (MXNet's)."""

    dim1: Int32 = Field(default=0, description="First axis; negative from the end.")
    dim2: Int32 = Field(default=0, description="Second axis; negative from the end.")


@register("SwapAxis", "swapaxes")
class SwapAxisProperty(PermutationProperty[SwapAxisParameters]):
    """output = data with two axes exchanged. Backward reads only the output's gradient."""

    type_string = "SwapAxis"
    parameter_type = SwapAxisParameters

    def axes(self, rank: int) -> Shape:
        """Return all axes in order, with dim1 and dim2 exchanged."""
        axes = list(range(rank))
        first, second = self.parameters.dim1, self.parameters.dim2
        for name, axis in (("dim1", first), ("dim2", second)):
            if not -rank <= axis < rank:
                raise ShapeContradiction("data", f"rank {rank}", f"axis {axis} inside", name)
        axes[first], axes[second] = axes[second], axes[first]
        return tuple(axes)


class Permutation(Operator):
    """NumPy body; obtains the order of axes from the property for data's rank."""

    def __init__(self, prop: PermutationProperty[P]) -> None:
        self.axes = prop.axes

    def forward(self, call: ForwardCall) -> None:
        """output = data.transpose(axes)."""
        data = call.inputs.data
        call.store(output=data.transpose(self.axes(data.ndim)))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad.transpose(inverse(axes))."""
        gradient = call.output_gradients.output
        call.store(data=gradient.transpose(inverse(self.axes(gradient.ndim))))
