"""The three products of dot and batch_dot, on the matrices that they store."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest
from mxrun.operator.native_kernel import source, target
from mxrun.ops.dense_product import MatrixProduct, StoredMatrices
from mxrun.ops.dot.operator import MatrixProductProperty, gradients


def read_specs(request: ForwardRequest) -> tuple[TensorSpec, ...]:
    """Return the inputs as a product reads them: plain, in the output's dtype."""
    dtype = request.outputs[0].dtype
    return tuple(replace(spec.with_layout(PLAIN), dtype=dtype) for spec in request.inputs)


def output_product(prop: MatrixProductProperty, request: ForwardRequest) -> MatrixProduct:
    """Return lhs x rhs."""
    lhs, rhs = read_specs(request)
    left, right = prop.stored(lhs.shape, rhs.shape)
    p = prop.parameters
    return MatrixProduct(
        StoredMatrices(TensorSpec(left, lhs.dtype), source(0), p.transpose_a),
        StoredMatrices(TensorSpec(right, rhs.dtype), source(1), p.transpose_b),
        StoredMatrices(TensorSpec(prop.output_of(left, right), lhs.dtype), target(0)),
    )


def gradient_products(
    prop: MatrixProductProperty, request: BackwardRequest
) -> dict[str, MatrixProduct]:
    """Return the gradients of lhs and rhs; the kernel's inputs are the gradient, lhs and rhs."""
    read = request.forward.inputs[0]
    assert read is not None
    stored = prop.stored(request.in_grad[0].shape, request.in_grad[1].shape)
    shapes = (prop.output_of(*stored), *stored)

    def product(side: int) -> MatrixProduct:
        left, right = (
            StoredMatrices(
                TensorSpec(shapes[factor.position], read.dtype),
                source(factor.position),
                factor.transposed,
            )
            for factor in gradients(prop.parameters)[side]
        )
        spec = TensorSpec(stored[side], request.in_grad[side].dtype)
        return MatrixProduct(left, right, StoredMatrices(spec, target(side)))

    return {"lhs_grad": product(0), "rhs_grad": product(1)}
