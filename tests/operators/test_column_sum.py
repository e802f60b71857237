"""Sums over the rows of matrices: the gradients of biases and of scales."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from executors import cpu
from launches import aligned, run
from operator_harness import BackwardData, backward, forward

from mxrun.operator.native_kernel import source, target
from mxrun.operator.register import create, implementations
from mxrun.ops.column_sum import column_sum_part

# One block, several with an incomplete last one, and many rows; groups of columns and what is left;
# narrow rows of which 1, 2 and 32 are read as one.
SHAPES = ((1, 1), (32, 10), (64, 10), (65, 64), (768, 512), (5000, 83), (4096, 50), (4096, 3))


def column_sums(matrix, threads=1):
    """Return the sums over the rows of a float32 or bfloat16 matrix."""
    dtype = str(matrix.dtype)
    part = column_sum_part(source(0), target(0), matrix.shape, dtype, cpu(threads))
    total = np.full(matrix.shape[1], np.nan, np.float32)
    run(part, [matrix.view(np.uint8)], [total], aligned(part.scratch_bytes), threads)
    return total


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_column_sums_are_right_and_do_not_depend_on_the_threads(rows, columns, dtype):
    random = np.random.default_rng(0)
    matrix = random.standard_normal((rows, columns)).astype(np.float32)
    if dtype == "bfloat16":
        matrix = matrix.astype(ml_dtypes.bfloat16)
    found = [column_sums(matrix, threads) for threads in (1, 2, 3)]
    expected = matrix.astype(np.float64).sum(0)
    np.testing.assert_allclose(found[0], expected, atol=1e-6 * rows, rtol=1e-5)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def gradients_of(operator, rows, columns, scales, threads):
    """Return the gradients of data [rows, columns] and of `scales` tensors [columns]."""
    random, prop = np.random.default_rng(0), create(operator, {})
    data, grad = random.standard_normal((2, rows, columns)).astype(np.float32)
    inputs = [data, *random.standard_normal((scales, columns)).astype(np.float32)]
    inferred = prop.infer_shape([each.shape for each in inputs], [None] * len(prop.list_outputs()))
    before = [np.zeros(shape, np.float32) for shape in inferred.outputs]
    body = implementations(operator)["jit"]
    done = forward(body, prop, inputs, before, threads=threads)
    tensors = BackwardData([grad, *before[1:]], inputs, done.outputs)
    return backward(body, prop, tensors, inputs, done, threads=threads)


@pytest.mark.parametrize("rows", [70, 5000])
@pytest.mark.parametrize(
    ("operator", "scales"), [("LayerNorm", 2), ("RMSNorm", 1), ("_bias_activation", 1)]
)
def test_sums_of_rows_while_they_are_computed_do_not_depend_on_the_threads(operator, scales, rows):
    alone, *others = (gradients_of(operator, rows, 83, scales, threads) for threads in (1, 2, 3))
    for other in others:
        for one, two in zip(alone, other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("columns", [3, 20, 83])
def test_the_bias_of_an_activation_gets_the_bits_of_the_separate_sum(columns):
    data_grad, bias_grad = gradients_of("_bias_activation", 4096, columns, 1, 2)
    np.testing.assert_array_equal(bias_grad, column_sums(data_grad))
