"""Cast: conversion to another dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import item_size, numpy_dtype
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, TensorSpec, unpacked
from mxrun.codegen.scalar_value import MAP_DTYPES
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    InPlaceProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import without_add_requests

T = TypeVar("T")
Array = npt.NDArray[Any]

# Maximum element size of oneDNN's reorders.
_MAX_MOVABLE_BYTES = 4


class CastParameters(Parameters):
    """Parameters of Cast (MXNet's, except dtypes that mxrun does not have)."""

    dtype: Literal["float32", "float64", "float16", "uint8", "int32", "int8", "int64"] = Field(
        description="Element type of the output.", examples=["float32"]
    )


@register("Cast", "cast", foreign={"Cast: {dtype: float32}": "astype type"})
class CastProperty(InPlaceProperty[CastParameters]):
    """output = data converted to `dtype`, of any shape. Backward reads only the output's gradient.

    Fractions are truncated. A number outside an integer type's range gives a result that depends on
    the processor. The gradient of data is the output's gradient converted to data's dtype, even if
    `dtype` is an integer type.
    """

    type_string = "Cast"
    family = OperatorFamily.ELEMENTWISE
    parameter_type = CastParameters

    @property
    def nonstandard_gradient(self) -> str:
        """Gradient of a cast to an integer dtype, which has no derivative."""
        return "" if self.parameters.dtype.startswith("float") else "The output's, in data's type."

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the shapes of data and output."""
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of data."""
        return shared_axis(sequences.axes)

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Set the output's dtype to the parameter, whatever data is."""
        return inputs, [self.parameters.dtype]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad."""
        return [out_grad[0]]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Cast(self.parameters.dtype)


class Cast(Operator):
    """NumPy body; out-of-range numbers are converted as the processor does."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def forward(self, call: ForwardCall) -> None:
        """output = data converted to dtype."""
        call.store(output=_converted(call.inputs.data, self.dtype))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad converted to data's dtype."""
        kind = str(call.input_gradients.data.dtype)
        call.store(data=_converted(call.output_gradients.output, kind))


def _converted(value: Array, dtype: str) -> Array:
    # Out-of-range numbers are not an error, as in compiled code.
    with np.errstate(invalid="ignore", over="ignore"):
        return value.astype(numpy_dtype(dtype))


@implement("Cast", backend="jit")
class CompiledCast(Implementation):
    """One pass between the dtypes of maps, in the layout of the given tensor.

    8-byte types use the plain layout: no reorder can move them, and every other operator reads them
    plain.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the output, in data's layout."""
        (data,), (output,) = request.inputs, request.outputs
        if not {data.dtype, output.dtype} <= set(MAP_DTYPES):
            return None
        return self._kernel(data, output.dtype, 0, request.requests, request.device)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare data's gradient, in out_grad's layout."""
        (gradient,), (data,) = request.out_grad, request.in_grad
        assert gradient is not None
        return self._kernel(gradient, data.dtype, 2, request.requests, request.device)

    def _kernel(
        self,
        given: TensorSpec,
        dtype: str,
        unread: int,
        requests: tuple[OpReqType, ...],
        device: DeviceDescription,
    ) -> Kernel:
        """Return the conversion of the first input; `unread` further inputs follow it."""
        is_movable = max(item_size(given.dtype), item_size(dtype)) <= _MAX_MOVABLE_BYTES
        given = unpacked(given) if is_movable else given.with_layout(PLAIN)
        kernel = scalar.compile(_same, dtype=given.dtype, result_dtype=dtype)
        part = kernel.part(
            target(0), [source(0)], given.elements, device=device, request=requests[0]
        )
        return native_kernel(
            self.name,
            [part],
            (given, *[None] * unread),
            (replace(given, dtype=dtype),),
            without_add_requests(requests),
            device,
        )


def _same(x: Any) -> Any:
    return x
