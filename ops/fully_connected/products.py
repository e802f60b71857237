"""The three products of FullyConnected, on matrices of its tensors' rows."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator.native_kernel import source, target
from mxrun.ops.dense_product import MatrixProduct, StoredMatrices


def output_product(
    data: TensorSpec, weight: TensorSpec, output: TensorSpec, *, has_bias: bool
) -> MatrixProduct:
    """Return output = data x weight^T + bias, of a kernel's inputs in this order."""
    hidden, features = weight.shape
    return MatrixProduct(
        StoredMatrices(_matrix(data, features), source(0)),
        StoredMatrices(weight, source(1), is_turned=True),
        StoredMatrices(_matrix(output, hidden), target(0)),
        source(2) if has_bias else None,
    )


def gradient_products(
    gradient: TensorSpec, data: TensorSpec, weight: TensorSpec, results: Sequence[TensorSpec]
) -> tuple[MatrixProduct, MatrixProduct]:
    """Return the gradients of data, gradient x weight, and of weight, gradient^T x data.

    The kernel's inputs are gradient, data and weight; results: specs of their gradients.
    """
    hidden, features = weight.shape
    given, read = _matrix(gradient, hidden), _matrix(data, features)
    return (
        MatrixProduct(
            StoredMatrices(given, source(0)),
            StoredMatrices(weight.with_layout(PLAIN), source(2)),
            StoredMatrices(_matrix(results[0], features), target(0)),
        ),
        MatrixProduct(
            StoredMatrices(given, source(0), is_turned=True),
            StoredMatrices(read, source(1)),
            StoredMatrices(_matrix(results[1], features), target(1)),
        ),
    )


def _matrix(spec: TensorSpec, columns: int) -> TensorSpec:
    """Return the same plain memory as rows of `columns` elements."""
    return TensorSpec((spec.elements // columns, columns), spec.dtype)
