"""take, pick and one_hot: selection by index along one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Float32, Int32, Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    SelectionProperty,
)
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.ops.sums import running_sums

T = TypeVar("T")
Array = npt.NDArray[Any]

_OUTSIDE = "Indices outside of the axis: clip selects the nearest element, wrap counts modulo the "


class PickParameters(Parameters):
    """Parameters of pick (MXNet's)."""

    axis: int = Field(default=-1, description="Axis of the indices; negative from the end.")
    keepdims: bool = Field(default=False, description="Retain the axis with size 1.")
    mode: Literal["clip", "wrap"] = Field(default="clip", description=f"{_OUTSIDE}axis's size.")


class TakeParameters(Parameters):
    """Parameters of take (MXNet's)."""

    axis: int = Field(default=0, description="Axis of the indices; negative from the end.")
    mode: Literal["clip", "wrap", "raise"] = Field(
        default="clip", description=f"{_OUTSIDE}axis's size, raise is an error."
    )


class OneHotParameters(Parameters):
    """Parameters of one_hot (MXNet's, except dtypes that mxrun does not have)."""

    depth: Annotated[Int32, Field(ge=1)] = Field(
        description="Size of the new last axis: number of different indices.", examples=[10]
    )
    on_value: Float32 = Field(default=1.0, description="Value at the index.")
    off_value: Float32 = Field(default=0.0, description="Value everywhere else.")
    dtype: Literal["float32", "float64", "float16", "uint8", "int32", "int8", "int64"] = Field(
        default="float32", description="Element type of the output."
    )


def axis_of(axis: int, name: str, shape: Dimensions) -> int:
    """Return an axis counted from the front; raises ShapeContradiction if there is none."""
    if not -len(shape) <= axis < len(shape):
        raise ShapeContradiction(name, show(shape), f"an axis {axis}", "axis")
    return axis % len(shape)


@register("take", foreign={"take: {indices: ids}": "gather indexselect"})
class TakeProperty(SelectionProperty[TakeParameters]):
    """output = a at the indices along `axis`, which the axes of indices replace.

    a [B..., n, A...], indices [...] and output [B..., ..., A...], where n is the axis. A fractional
    index is truncated. a's gradient is, at each index, the sum of the output's gradient over equal
    indices, in order; indices have a zero gradient. Backward reads the output's gradient and
    indices.
    """

    type_string = "take"
    parameter_type = TakeParameters

    def list_arguments(self) -> tuple[str, ...]:
        """a and indices."""
        return ("a", "indices")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer the output from both inputs, and these from the output if their ranks are known."""
        a, indices = inputs
        output = outputs[0]
        if a is None:
            return PartialInference([a, indices], [output], [])
        axis = axis_of(self.parameters.axis, "a", a)
        before, after = a[:axis], a[axis + 1 :]
        if indices is None and output is not None and len(output) >= len(a) - 1:
            indices = output[axis : len(output) - len(after)]
        if indices is not None:
            rule = "a's axes around those of indices"
            output = unify("output", output, (*before, *indices, *after), rule)
            end = axis + len(indices)
            a = unify("a", a, (*output[:axis], a[axis], *output[end:]), "output")
            indices = unify("indices", indices, output[axis:end], "output")
        return PartialInference([a, indices], [output], [])

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """The place of the indices' in the output, if `a` is the same at all positions."""
        given, indices = sequences.axes
        axis = self.parameters.axis % len(sequences.shapes[0])
        return axis + indices if given is None and indices is not None else None

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Take(self.parameters)


@register("pick")
class PickProperty(SelectionProperty[PickParameters]):
    """output = the element of data at an index along `axis`, for every place on the other axes.

    index has data's shape without the axis, or with size 1 there; the output has no such axis, or
    size 1 with keepdims, and shape [1] if no axis remains. A fractional index is truncated. data's
    gradient is the output's gradient at the picked elements, else 0; index has a zero gradient.
    Backward reads the output's gradient and index.
    """

    type_string = "pick"
    parameter_type = PickParameters

    def list_arguments(self) -> tuple[str, ...]:
        """data and index."""
        return ("data", "index")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the axes that data, index and output share."""
        data, index = inputs
        output = outputs[0]
        if data is None:
            return PartialInference([data, index], [output], [])
        axis, keepdims = axis_of(self.parameters.axis, "data", data), self.parameters.keepdims
        others = (*data[:axis], *data[axis + 1 :])
        with_axis = (*data[:axis], 1, *data[axis + 1 :])
        rule = "data's other axes"
        if index is None:
            # The index may have the axis or not, unless no other remains.
            index = None if others else (1,)
        elif len(index) == len(data):
            index = unify("index", index, with_axis, rule)
            others = (*index[:axis], *index[axis + 1 :])
        else:
            index = others = unify("index", index, others or (1,), rule)
        given = (*others[:axis], 1, *others[axis:]) if keepdims else others or (1,)
        output = unify("output", output, given if len(data) > 1 else (1,), rule)
        if len(data) > 1:
            others = (*output[:axis], *output[axis + 1 :]) if keepdims else output
            data = (*others[:axis], data[axis], *others[axis:])
        return PartialInference([data, index], [output], [])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Pick(self.parameters)


@register("one_hot", foreign={"one_hot: {depth: 10}": "onehot"})
class OneHotProperty(OperatorProperty[OneHotParameters]):
    """output[..., c] = on_value where c = indices[...], else off_value.

    indices [...], output [..., depth]. A fractional index is truncated; an index outside of [0,
    depth) is nowhere on. The gradient of indices is zero.
    """

    type_string = "one_hot"
    family = OperatorFamily.SHAPE
    reads_only_data = True
    parameter_type = OneHotParameters

    def list_arguments(self) -> tuple[str, ...]:
        """indices."""
        return ("indices",)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer indices and output from each other."""
        indices, output = inputs[0], outputs[0]
        if output is not None:
            unknown = (None,) * (len(output) - 1)
            output = unify("output", output, (*unknown, self.parameters.depth), "depth")
            indices = unify("indices", indices, output[:-1], "output")
        if indices is not None:
            output = unify("output", output, (*indices, self.parameters.depth), "indices and depth")
        return PartialInference([indices], [output], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Default indices to int32; the output has the parameter's dtype."""
        return [inputs[0] or "int32"], [self.parameters.dtype]

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of the indices."""
        return shared_axis(sequences.axes)

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """The gradient is zero."""
        return (GradientKind.ZERO,)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return nothing."""
        return []

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return 0: nothing is computed."""
        return 0

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return OneHotBody(self.parameters)


def within(indices: Array, size: int, mode: str) -> Array:
    """Return int64 indices inside [0, size); raises UserError for others if `mode` is raise."""
    # NaN becomes the least integer or 0, as the processor converts it.
    with np.errstate(invalid="ignore"):
        whole: Array = np.trunc(indices).astype(np.int64)
    if mode == "wrap":
        return whole % size
    if mode == "raise" and whole.size and not 0 <= whole.min() <= whole.max() < size:
        outside = next(int(i) for i in whole.flat if not 0 <= i < size)
        raise UserError(
            Diagnostic(
                "an index of take is outside of the axis", None, f"0 to {size - 1}", f"{outside}"
            )
        )
    return whole.clip(0, size - 1)


class Take(Operator):
    """NumPy body."""

    def __init__(self, parameters: TakeParameters) -> None:
        self.axis, self.mode = parameters.axis, parameters.mode

    def forward(self, call: ForwardCall) -> None:
        """output = a at the indices."""
        a = call.inputs.a
        indices = within(call.inputs.indices, a.shape[self.axis], self.mode)
        call.store(output=np.take(a, indices, self.axis))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of a: sum over equal indices, in order."""
        if not call.is_requested("a"):
            return
        blank = call.input_gradients.a
        gradient = running_sums(blank.shape, blank.dtype)
        axis = self.axis % gradient.ndim
        indices = within(call.inputs.indices, gradient.shape[axis], self.mode)
        given = call.output_gradients.output
        rows = np.moveaxis(given, range(axis, axis + indices.ndim), range(indices.ndim))
        np.add.at(np.moveaxis(gradient, axis, 0), indices, rows)
        call.store(a=gradient.astype(blank.dtype))


class Pick(Operator):
    """NumPy body."""

    def __init__(self, parameters: PickParameters) -> None:
        self.axis, self.mode = parameters.axis, parameters.mode

    def forward(self, call: ForwardCall) -> None:
        """output = data at the indices."""
        data = call.inputs.data
        index = self._index(call.inputs.index, data.shape)
        picked = np.take_along_axis(data, index, self.axis)
        call.store(output=picked.reshape(call.outputs.output.shape))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: the output's gradient at the indices, else 0."""
        if not call.is_requested("data"):
            return
        gradient = np.zeros_like(call.input_gradients.data)
        index = self._index(call.inputs.index, gradient.shape)
        given = call.output_gradients.output.reshape(index.shape)
        np.put_along_axis(gradient, index, given, self.axis)
        call.store(data=gradient)

    def _index(self, index: Array, shape: Shape) -> Array:
        """Return the indices with size 1 on the axis."""
        sizes = list(shape)
        sizes[self.axis] = 1
        return within(index, shape[self.axis], self.mode).reshape(sizes)


class OneHotBody(Operator):
    """NumPy body."""

    def __init__(self, parameters: OneHotParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = on_value at the index, else off_value."""
        p, indices = self.parameters, call.inputs.indices
        chosen = np.trunc(indices)[..., None] == np.arange(p.depth)
        call.store(output=np.where(chosen, p.on_value, p.off_value).astype(p.dtype))


def sizes_around(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Return the number of elements before the axis, on it, and behind it."""
    axis %= len(shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
