"""Matrix products: dot and batch_dot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.dataclass import dataclass
from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes, Precision
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify

T = TypeVar("T")
Array = npt.NDArray[Any]


class DotParameters(Parameters):
    """Transposition of the operands."""

    transpose_a: bool = Field(default=False, description="Use lhs transposed.")
    transpose_b: bool = Field(default=False, description="Use rhs transposed.")


class MatrixProductProperty(OperatorProperty[DotParameters]):
    """output = lhs x rhs, as products of stored matrices. Backward reads out_grad, lhs and rhs."""

    family = OperatorFamily.DENSE
    parameter_type = DotParameters
    precision = Precision.BFLOAT16

    def list_arguments(self) -> tuple[str, ...]:
        """lhs and rhs."""
        return ("lhs", "rhs")

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad, lhs and rhs."""
        return [out_grad[0], *in_data]

    def stored(self, lhs: Shape, rhs: Shape) -> tuple[Shape, Shape]:
        """Return the shapes of lhs and rhs as stored matrices, or batches of matrices."""
        raise NotImplementedError

    def output_of(self, left: Shape, right: Shape) -> Shape:
        """Return the shape of the product of stored matrices."""
        rows = left[-1] if self.parameters.transpose_a else left[-2]
        columns = right[-2] if self.parameters.transpose_b else right[-1]
        return (*left[:-2], rows, columns)

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per multiply-add."""
        left, _ = self.stored(*in_shapes)
        inner = left[-2] if self.parameters.transpose_a else left[-1]
        return 2 * math.prod(out_shapes[0]) * inner

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Product(self)


@register("dot", foreign={"dot: {lhs: a, rhs: b}": "matmul mm"})
class DotProperty(MatrixProductProperty):
    """output[i, j] = sum over k of lhs[i, k] * rhs[k, j]; i and j stand for any number of axes.

    The summed axis is lhs's last (with transpose_a its first) and rhs's first (with transpose_b its
    last). The product of two vectors has shape [1]. Backward reads the output's gradient, lhs and
    rhs: lhs's gradient is grad x rhs^T, rhs's gradient is lhs^T x grad.
    """

    type_string = "dot"

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer the summed axis between the sides, and the other axes between sides and output."""
        (lhs, rhs), output = inputs, outputs[0]
        if lhs is None or rhs is None:
            return PartialInference([lhs, rhs], [output], [])
        p = self.parameters
        if not lhs or not rhs:
            raise ShapeContradiction("lhs" if not lhs else "rhs", "[]", "at least one axis", "dot")
        if len(lhs) == len(rhs) == 1 and (p.transpose_a or p.transpose_b):
            expected = "a matrix beside the vector"
            raise ShapeContradiction("lhs", show(lhs), expected, "transpose_a or transpose_b")
        first, last = 0 if p.transpose_a else len(lhs) - 1, len(rhs) - 1 if p.transpose_b else 0
        rhs = unify("rhs", rhs, _only(last, lhs[first], len(rhs)), "lhs's summed axis")
        lhs = unify("lhs", lhs, _only(first, rhs[last], len(lhs)), "rhs's summed axis")
        rest = (*lhs[:first], *lhs[first + 1 :], *rhs[:last], *rhs[last + 1 :])
        output = unify("output", output, rest or (1,), "lhs and rhs")
        if rest:
            left = len(lhs) - 1
            lhs = (*output[:first], lhs[first], *output[first:left])
            rhs = (*output[left : left + last], rhs[last], *output[left + last :])
        return PartialInference([lhs, rhs], [output], [])

    def stored(self, lhs: Shape, rhs: Shape) -> tuple[Shape, Shape]:
        """Split lhs after its first axis if transposed, else before its last; rhs likewise."""
        p = self.parameters
        return _split(lhs, first=p.transpose_a), _split(rhs, first=not p.transpose_b)


def _only(axis: int, size: int | None, rank: int) -> Dimensions:
    """Return a shape with one known axis."""
    return tuple(size if position == axis else None for position in range(rank))


def _split(shape: Shape, first: bool) -> Shape:
    """Return the matrix shape [first axis, all others], or [all others, last axis]."""
    if first:
        return shape[0], math.prod(shape[1:])
    return math.prod(shape[:-1]), shape[-1]


@register("batch_dot", foreign={"batch_dot: {lhs: a, rhs: b}": "bmm"})
class BatchDotProperty(MatrixProductProperty):
    """output[b] = lhs[b] x rhs[b] for every index b of the leading axes.

    lhs [..., M, K] (transpose_a: [..., K, M]), rhs [..., K, N] (transpose_b: [..., N, K]), output
    [..., M, N]; the leading axes are equal, at least one. Backward reads the output's gradient, lhs
    and rhs: lhs's gradient is grad x rhs^T, rhs's gradient is lhs^T x grad, for every b.
    """

    type_string = "batch_dot"

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the leading axes of all, and each matrix size of the two tensors that share it."""
        rank = next((len(shape) for shape in (*inputs, *outputs) if shape is not None), None)
        if rank is None:
            return PartialInference(inputs, outputs, [])
        if rank < 3:
            name = "output" if inputs == [None, None] else "lhs"
            raise ShapeContradiction(name, f"rank {rank}", "rank 3 or more", "a stack of matrices")
        unknown: Dimensions = (None,) * rank
        lhs = unify("lhs", inputs[0], unknown, "the rank of the others")
        rhs = unify("rhs", inputs[1], unknown, "the rank of the others")
        output = unify("output", outputs[0], unknown, "the rank of lhs and rhs")
        p = self.parameters
        left, right = _transposed_shape(lhs, p.transpose_a), _transposed_shape(rhs, p.transpose_b)
        batch = (*left[:-2],)
        right = unify("rhs", right, (*batch, left[-1], None), "lhs's leading and summed axes")
        output = unify("output", output, (*right[:-2], left[-2], right[-1]), "lhs and rhs")
        left = unify("lhs", left, (*output[:-1], right[-2]), "rhs and output")
        right = unify("rhs", right, (*output[:-2], None, output[-1]), "output")
        return PartialInference(
            [_transposed_shape(left, p.transpose_a), _transposed_shape(right, p.transpose_b)],
            [output],
            [],
        )

    def stored(self, lhs: Shape, rhs: Shape) -> tuple[Shape, Shape]:
        """Merge all leading axes into one."""
        left, right = ((math.prod(shape[:-2]), *shape[-2:]) for shape in (lhs, rhs))
        return left, right


def _transposed_shape(shape: Dimensions, transposed: bool) -> Dimensions:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape


@dataclass(frozen=True)
class Factor:
    """Operand of a product: out_grad (0), lhs (1) or rhs (2), possibly transposed."""

    position: int
    transposed: bool


def gradients(p: DotParameters) -> tuple[tuple[Factor, Factor], tuple[Factor, Factor]]:
    """Return the factors of the gradients of lhs and rhs, in their stored form."""
    plain, turned = Factor(0, False), Factor(0, True)
    left = (plain, Factor(2, not p.transpose_b))
    if p.transpose_a:
        left = (Factor(2, p.transpose_b), turned)
    right = (Factor(1, not p.transpose_a), plain)
    if p.transpose_b:
        right = (turned, Factor(1, p.transpose_a))
    return left, right


class Product(Operator):
    """NumPy body on the stored matrices."""

    def __init__(self, prop: MatrixProductProperty) -> None:
        self.prop = prop

    def forward(self, call: ForwardCall) -> None:
        """output = lhs x rhs."""
        p = self.prop.parameters
        left, right = self._matrices(call.inputs.lhs, call.inputs.rhs)
        product = np.matmul(_transposed(left, p.transpose_a), _transposed(right, p.transpose_b))
        call.store(output=product.reshape(call.outputs.output.shape))

    def backward(self, call: BackwardCall) -> None:
        """Gradients, transposed as stored: lhs: grad x rhs^T; rhs: lhs^T x grad."""
        lhs, rhs = call.inputs.lhs, call.inputs.rhs
        left, right = self._matrices(lhs, rhs)
        gradient = call.output_gradients.output.reshape(
            self.prop.output_of(left.shape, right.shape)
        )
        tensors = (gradient, left, right)
        for side, factors in enumerate(gradients(self.prop.parameters)):
            name = ("lhs", "rhs")[side]
            if call.is_requested(name):
                one, other = (_transposed(tensors[f.position], f.transposed) for f in factors)
                product = np.matmul(one, other).reshape(call.input_gradients[name].shape)
                call.store(**{name: product})

    def _matrices(self, lhs: Array, rhs: Array) -> tuple[Array, Array]:
        left, right = self.prop.stored(lhs.shape, rhs.shape)
        return lhs.reshape(left), rhs.reshape(right)


def _transposed(matrix: Array, transposed: bool) -> Array:
    return np.swapaxes(matrix, -1, -2) if transposed else matrix
