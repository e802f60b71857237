"""MXNet's products of multi-head attention over interleaved projections, and their NumPy body.

A projection of T steps of N sequences is [T, N, heads * parts * D]: the parts of each head, such as
query, key and value, are side by side. A part is a stack of N * heads matrices [T, D] that are
`parts * D` elements apart, so each operator is one product of stacks of matrices in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.dataclass import dataclass
from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes, Precision
from mxrun.operator.register import register
from mxrun.ops.attention.shapes import SizeInference

T = TypeVar("T")
Array = npt.NDArray[Any]
Axes = tuple[tuple[str, int], ...]


class InterleavedParameters(Parameters):
    """Parameters of the interleaved products (MXNet's)."""

    heads: Annotated[int, Field(ge=1)] = Field(description="Number of heads.", examples=[2])


@dataclass(frozen=True)
class Matrices:
    """Stack of N * heads matrices in a tensor.

    tensor: 0 and 1 are the arguments, 2 the output. part, parts: position among the parts of a
    projection; parts is 0 for a tensor [N * heads, rows, columns]. turned: whether the matrices
    are transposed in the product.
    """

    tensor: int
    part: int = 0
    parts: int = 0
    turned: bool = False

    @property
    def transposed(self) -> Matrices:
        """The transposed matrices."""
        return Matrices(self.tensor, self.part, self.parts, not self.turned)

    def shape(self, tensor: Shape, heads: int) -> Shape:
        """Return number, rows and columns of the stored matrices."""
        if not self.parts:
            return tensor
        steps, batch, columns = tensor
        return batch * heads, steps, columns // (heads * self.parts)

    def strides(self, tensor: Shape, heads: int) -> Shape:
        """Return the elements before the first matrix, from one to the next, and between rows."""
        if not self.parts:
            return 0, tensor[1] * tensor[2], tensor[2]
        _, batch, columns = tensor
        size = columns // (heads * self.parts)
        return self.part * size, self.parts * size, batch * columns

    def view(self, array: Array, heads: int) -> Array:
        """Return a view [N * heads, rows, columns] of a tensor's stored matrices."""
        count, rows, columns = self.shape(array.shape, heads)
        if not self.parts:
            return array
        split = array.reshape(rows, count, self.parts, columns)[:, :, self.part]
        view: Array = split.swapaxes(0, 1)
        return view


class InterleavedProperty(OperatorProperty[InterleavedParameters]):
    """Common part: output = factor * left x right, for each sequence and head."""

    family = OperatorFamily.DENSE
    parameter_type = InterleavedParameters
    precision = Precision.BFLOAT16
    is_floating = True
    arguments: ClassVar[tuple[str, ...]]
    axes: ClassVar[tuple[Axes, ...]]
    left: ClassVar[Matrices]
    right: ClassVar[Matrices]
    output: ClassVar[Matrices]

    def list_arguments(self) -> tuple[str, ...]:
        """The projections, and the attention weights if they are multiplied."""
        return self.arguments

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify steps, sequences and the size of heads; axes hold multiples for the heads."""
        sizes, names = SizeInference(), (*self.arguments, "output")
        axes = [
            [(letter, self.parameters.heads * count if count else 1) for letter, count in tensor]
            for tensor in self.axes
        ]
        for name, shape, each in zip(names, (*inputs, *outputs), axes, strict=True):
            sizes.read(name, shape, each)
        *given, output = map(sizes.of, axes)
        return PartialInference([*given], [output], [])

    def example_shapes(self, sample: Shape) -> PartialShapes:
        """Return arguments for the steps, sequences and size of a head in `sample`."""
        if len(sample) != len(self.axes[0]):
            return []
        steps, batch, size = sample
        sizes = {"q": steps + 1, "k": steps + 1, "n": batch, "d": size}
        sizes[self.axes[0][0][0]] = steps
        heads = self.parameters.heads
        return [
            tuple(sizes[letter] * (heads * count if count else 1) for letter, count in tensor)
            for tensor in self.axes[:-1]
        ]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and the arguments."""
        return [out_grad[0], *in_data]

    def factor(self, in_shapes: Sequence[Shape]) -> float:
        """Return the factor of the products: 1 / sqrt(D) of queries and keys."""
        if self.output.parts:
            return 1.0
        return 1 / math.sqrt(self.left.shape(in_shapes[0], self.parameters.heads)[2])

    def products(self) -> Iterator[tuple[Matrices, Matrices, Matrices]]:
        """Yield output, left and right of the gradients; tensor 2 is the output's gradient."""
        left, right, grad = self.left, self.right, self.output
        yield self.left, grad, right.transposed
        if right.turned:
            yield right.transposed, grad.transposed, left
        else:
            yield right, left.transposed, grad

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per multiply-add."""
        heads = self.parameters.heads
        count, rows, columns = self.left.shape(in_shapes[self.left.tensor], heads)
        other = self.right.shape(in_shapes[self.right.tensor], heads)
        return 2 * count * rows * columns * other[1 if self.right.turned else 2]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return InterleavedProduct(self)


@register("_contrib_interleaved_matmul_selfatt_qk")
class SelfAttentionScores(InterleavedProperty):
    """output = query x key^T / sqrt(D) of each head.

    queries_keys_values [T, N, heads * 3 * D], output [N * heads, T, T]. Backward reads the output's
    gradient g and queries_keys_values: query's gradient is g key / sqrt(D), key's is g^T query /
    sqrt(D), and value's is 0.
    """

    type_string = "_contrib_interleaved_matmul_selfatt_qk"
    arguments = ("queries_keys_values",)
    axes = ((("t", 0), ("n", 0), ("d", 3)), (("n", 1), ("t", 0), ("t", 0)))
    left, right, output = Matrices(0, 0, 3), Matrices(0, 1, 3, turned=True), Matrices(2)


@register("_contrib_interleaved_matmul_selfatt_valatt")
class SelfAttentionValues(InterleavedProperty):
    """output = attention x value of each head.

    queries_keys_values [T, N, heads * 3 * D], attention [N * heads, T, T], output [T, N, heads *
    D]. Backward reads the output's gradient g and both arguments: attention's gradient is g
    value^T, value's is attention^T g, and those of query and key are 0.
    """

    type_string = "_contrib_interleaved_matmul_selfatt_valatt"
    arguments = ("queries_keys_values", "attention")
    axes = (
        (("t", 0), ("n", 0), ("d", 3)),
        (("n", 1), ("t", 0), ("t", 0)),
        (("t", 0), ("n", 0), ("d", 1)),
    )
    left, right, output = Matrices(1), Matrices(0, 2, 3), Matrices(2, 0, 1)


@register("_contrib_interleaved_matmul_encdec_qk")
class CrossAttentionScores(InterleavedProperty):
    """output = query x key^T / sqrt(D) of each head.

    queries [Tq, N, heads * D], keys_values [Tk, N, heads * 2 * D], output [N * heads, Tq, Tk].
    Backward reads the output's gradient g and both arguments: query's gradient is g key / sqrt(D),
    key's is g^T query / sqrt(D), and value's is 0.
    """

    type_string = "_contrib_interleaved_matmul_encdec_qk"
    arguments = ("queries", "keys_values")
    axes = (
        (("q", 0), ("n", 0), ("d", 1)),
        (("k", 0), ("n", 0), ("d", 2)),
        (("n", 1), ("q", 0), ("k", 0)),
    )
    left, right, output = Matrices(0, 0, 1), Matrices(1, 0, 2, turned=True), Matrices(2)


@register("_contrib_interleaved_matmul_encdec_valatt")
class CrossAttentionValues(InterleavedProperty):
    """output = attention x value of each head.

    keys_values [Tk, N, heads * 2 * D], attention [N * heads, Tq, Tk], output [Tq, N, heads * D].
    Backward reads the output's gradient g and both arguments: attention's gradient is g value^T,
    value's is attention^T g, and key's is 0.
    """

    type_string = "_contrib_interleaved_matmul_encdec_valatt"
    arguments = ("keys_values", "attention")
    axes = (
        (("k", 0), ("n", 0), ("d", 2)),
        (("n", 1), ("q", 0), ("k", 0)),
        (("q", 0), ("n", 0), ("d", 1)),
    )
    left, right, output = Matrices(1), Matrices(0, 1, 2), Matrices(2, 0, 1)


class InterleavedProduct(Operator):
    """NumPy body: one product of views."""

    def __init__(self, prop: InterleavedProperty) -> None:
        self.prop, self.heads = prop, prop.parameters.heads

    def forward(self, call: ForwardCall) -> None:
        """output = factor * left x right."""
        tensors = [*call.inputs, call.outputs.output]
        output = np.empty_like(call.outputs.output)
        self._multiply(call, output, self.prop.output, self.prop.left, self.prop.right, tensors)
        call.store(output=output)

    def backward(self, call: BackwardCall) -> None:
        """Gradients of the parts that are read; the others are 0."""
        tensors = [*call.inputs, call.output_gradients.output]
        gradients = [np.zeros_like(array) for array in call.inputs]
        for output, left, right in self.prop.products():
            self._multiply(call, gradients[output.tensor], output, left, right, tensors)
        call.store(**dict(zip(self.prop.arguments, gradients, strict=True)))

    def _multiply(
        self,
        call: OperatorCall,
        result: Array,
        output: Matrices,
        left: Matrices,
        right: Matrices,
        tensors: Sequence[Array],
    ) -> None:
        factors = []
        for each in (left, right):
            # The output, tensor 2, is the last one.
            array = tensors[min(each.tensor, len(tensors) - 1)]
            matrix = each.view(array, self.heads)
            factors.append(matrix.swapaxes(1, 2) if each.turned else matrix)
        factor = self.prop.factor([array.shape for array in call.inputs])
        product = np.matmul(*factors) * result.dtype.type(factor)
        output.view(result, self.heads)[...] = product
