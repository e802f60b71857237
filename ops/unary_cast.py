"""Cast: the same numbers as another type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.scalar_value import MAP_DTYPES
from mxrun.base.dtype import item_size, numpy_dtype
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, TensorSpec, unpacked
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, require_array
from mxrun.operator.property import (
    InPlaceProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import written
from mxrun.operator.tensor import Tensor

T = TypeVar("T")
Array = npt.NDArray[Any]

# Of an element: reorders, which are oneDNN's, know no larger type.
_MAX_MOVABLE_BYTES = 4


class CastParameters(Parameters):
    """Parameters of Cast (MXNet's, but for the types that mxrun does not have)."""

    dtype: Literal["float32", "float64", "float16", "uint8", "int32", "int8", "int64"] = Field(
        description="The element type of the output.", examples=["float32"]
    )


@register("Cast", "cast")
class CastProperty(InPlaceProperty[CastParameters]):
    """output = data as numbers of `dtype`, of any shape. Backward reads the output's gradient only.

    A fraction is cut off; a number beyond an integer type becomes what the processor makes of it.
    The gradient is the output's in data's type, also through integers.
    """

    type_string = "Cast"
    parameter_type = CastParameters

    @property
    def nonstandard_gradient(self) -> str:
        """Nothing of whole numbers is a derivative."""
        return "" if self.parameters.dtype.startswith("float") else "The output's, in data's type."

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """data and output have one shape."""
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """The output is of the type that is asked for, whatever data is."""
        return inputs, [self.parameters.dtype]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad."""
        return [out_grad[0]]

    def create_operator(self) -> Operator:
        """NumPy's conversion."""
        return Cast(self.parameters.dtype)


class Cast(Operator):
    """NumPy's conversion, which is the processor's."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = data in the other type."""
        assign(out_data[0], req[0], _converted(in_data[0].array, self.dtype))

    def backward(
        self,
        context: OpContext,
        out_grad: Sequence[Tensor | None],
        in_data: Sequence[Tensor | None],
        out_data: Sequence[Tensor | None],
        req: Sequence[OpReqType],
        in_grad: Sequence[Tensor | None],
        aux_states: Sequence[Tensor],
    ) -> None:
        """The output's gradient in data's type."""
        if in_grad[0] is not None:
            assign(
                in_grad[0], req[0], _converted(require_array(out_grad[0]), in_grad[0].spec.dtype)
            )


def _converted(value: Array, dtype: str) -> Array:
    # What does not fit is no error, as in compiled code.
    with np.errstate(invalid="ignore", over="ignore"):
        return value.astype(numpy_dtype(dtype))


@implement("Cast", backend="jit")
class CompiledCast(Implementation):
    """One pass between the types that maps have.

    In the layout that the tensors come in; but what no reorder moves, numbers of 8 bytes, stays
    plain, as every other operator reads it.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """The output, in data's layout."""
        (data,), (output,) = request.inputs, request.outputs
        if not {data.dtype, output.dtype} <= set(MAP_DTYPES):
            return None
        return self._kernel(data, output.dtype, 0, request.requests, request.threads)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """data's gradient, in out_grad's layout."""
        (gradient,), (data,) = request.out_grad, request.in_grad
        assert gradient is not None
        return self._kernel(gradient, data.dtype, 2, request.requests, request.threads)

    def _kernel(
        self,
        given: TensorSpec,
        dtype: str,
        unread: int,
        requests: tuple[OpReqType, ...],
        threads: int,
    ) -> Kernel:
        """The first input in another type; `unread` more inputs come after it."""
        is_movable = max(item_size(given.dtype), item_size(dtype)) <= _MAX_MOVABLE_BYTES
        given = unpacked(given) if is_movable else given.laid_out(PLAIN)
        kernel = scalar.compile(_same, dtype=given.dtype, result_dtype=dtype)
        part = kernel.part(
            target(0), [source(0)], given.elements, threads=threads, request=requests[0]
        )
        return native_kernel(
            self.name,
            [part],
            (given, *[None] * unread),
            (replace(given, dtype=dtype),),
            written(requests),
            threads,
        )


def _same(x: Any) -> Any:
    """x."""
    return x
