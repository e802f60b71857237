"""Embedding: lookup of table rows by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import PLAIN, Shape
from mxrun.codegen.arguments import Arguments, Float32s, Int32s, Integer
from mxrun.codegen.intrinsics import each
from mxrun.codegen.jit import native
from mxrun.codegen.loops import elements_of_task
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import unify
from mxrun.ops.indexing.kernels import sum_parts
from mxrun.ops.indexing.loops import RowSelection
from mxrun.ops.indexing.operators import within
from mxrun.ops.sums import running_sums

T = TypeVar("T")
Count = Annotated[Int32, Field(ge=1)]


class EmbeddingParameters(Parameters):
    """Parameters of Embedding (MXNet's)."""

    input_dim: Count = Field(
        description="Number of rows of the table: number of different ids.", examples=[1000]
    )
    output_dim: Count = Field(
        description="Number of columns of the table: length of each vector.", examples=[16]
    )
    dtype: Literal["float16", "float32", "float64", "uint8", "int32", "int8", "int64"] = Field(
        default="float32", description="Element type of the weight and the output."
    )
    sparse_grad: bool = Field(
        default=False,
        description="Accepted for MXNet's models; the gradient is always dense.",
    )


@register("Embedding")
class EmbeddingProperty(OperatorProperty[EmbeddingParameters]):
    """output[..., :] = weight[id, :] for every id in data.

    data [...], weight [input_dim, output_dim], output [..., output_dim]. An id outside the table is
    clamped to the nearest row, as in MXNet; a fractional id is truncated. The weight's gradient is,
    for each row, the sum of the output's gradient over equal ids, in data's order. data has a zero
    gradient. Backward reads the output's gradient and data.
    """

    type_string = "Embedding"
    family = OperatorFamily.DENSE
    parameter_type = EmbeddingParameters

    def list_arguments(self) -> tuple[str, ...]:
        """data and weight."""
        return ("data", "weight")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer data and output from each other; the weight from the parameters."""
        data, output = inputs[0], outputs[0]
        rows, columns = self.parameters.input_dim, self.parameters.output_dim
        weight = unify("weight", inputs[1], (rows, columns), "[input_dim, output_dim]")
        if output is not None:
            unknown = (None,) * (len(output) - 1)
            output = unify("output", output, (*unknown, columns), "data's axes and output_dim")
            data = unify("data", data, output[:-1], "output")
        if data is not None:
            output = unify("output", output, (*data, columns), "data's axes and output_dim")
        return PartialInference([data, weight], [output], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Default ids to int32; weight and output have the same dtype."""
        common = inputs[1] or outputs[0] or self.parameters.dtype
        return [inputs[0] or "int32", common], [common]

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of the ids."""
        return sequences.axes[0] if sequences.axes[1] is None else None

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """Only the weight has a computed gradient."""
        return (GradientKind.ZERO, GradientKind.COMPUTES)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and data."""
        return [out_grad[0], in_data[0]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return 0: nothing is computed."""
        return 0

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Embedding(self.parameters)


class Embedding(Operator):
    """NumPy body: gathers rows; backward scatters and adds them."""

    def __init__(self, parameters: EmbeddingParameters) -> None:
        self.rows = parameters.input_dim

    def forward(self, call: ForwardCall) -> None:
        """output = weight[data]."""
        call.store(output=call.inputs.weight[within(call.inputs.data, self.rows, "clip")])

    def backward(self, call: BackwardCall) -> None:
        """Gradient of weight: weight_grad[id] += grad[..., :] for every id, in data's order."""
        if not call.is_requested("weight"):
            return
        blank = call.input_gradients.weight
        gradient = running_sums(blank.shape, blank.dtype)
        ids = within(call.inputs.data, self.rows, "clip")
        np.add.at(gradient, ids, call.output_gradients.output)
        call.store(weight=gradient.astype(blank.dtype))


class TableAccess(Arguments):
    """Access to a table of `rows` rows and `columns` columns by the `count` ids in data."""

    count: Integer
    rows: Integer
    columns: Integer
    data: Int32s


class Lookup(TableAccess):
    """Arguments of `lookup_loop`."""

    weight: Float32s
    output: Float32s


@native
def lookup_loop(call: Lookup) -> None:
    """output[n, :] = weight[data[n] clamped to the table, :]."""
    for n in elements_of_task(call.count):
        read = min(max(call.data[n], 0), call.rows - 1) * call.columns
        write = n * call.columns
        for c in each(0, call.columns):
            call.output[write + c] = call.weight[read + c]


@implement("Embedding", backend="jit")
class CompiledEmbedding(Implementation):
    """Compiled loops for int32 ids and a float32 table."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare one row copy per id."""
        data, weight = request.inputs
        if (data.dtype, weight.dtype) != ("int32", "float32"):
            return None
        output = request.outputs[0].with_layout(PLAIN)
        tasks = request.device.tasks_for_elements(output.elements)
        rows, columns = weight.shape
        lookup = Lookup(
            count=data.elements,
            rows=rows,
            columns=columns,
            data=source(0),
            weight=source(1),
            output=target(0),
        )
        return native_kernel(
            self.name,
            [LoopPart(lookup_loop, lookup, tasks)],
            (data.with_layout(PLAIN), weight.with_layout(PLAIN)),
            (output,),
            request.requests,
            request.device,
            # Only the copied rows of the table are read.
            bytes_moved=data.nbytes + 2 * output.nbytes,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the sums of the rows of each id."""
        gradient, data = request.out_grad[0], request.in_data[0]
        assert gradient is not None
        assert data is not None
        if not data.elements:
            return None
        gradient, weight = gradient.with_layout(PLAIN), request.in_grad[1].with_layout(PLAIN)
        rows, columns = weight.shape
        count = data.elements
        selection = RowSelection(
            rows=count, columns=columns, size=rows, count=count, index_count=count
        )
        operands, written = (source(0), gradient), (target(1), weight)
        device, requested = request.device, request.requests[1]
        return native_kernel(
            self.name,
            sum_parts(selection, operands, source(1), written, device, requested),
            (gradient, data.with_layout(PLAIN), None, None),
            (None, weight),
            without_add_requests(request.requests),
            device,
            flops=gradient.elements,
        )
