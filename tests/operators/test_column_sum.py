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
from mxrun.ops.chain import ChainPart
from mxrun.ops.column_sum import RowBlocks, column_sum_parts

# One block, several with an incomplete last one, and many rows; groups of columns and what is left.
SHAPES = ((1, 1), (32, 10), (64, 10), (65, 64), (768, 512), (5000, 83))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_column_sums_are_right_and_do_not_depend_on_the_team(rows, columns, dtype):
    random = np.random.default_rng(0)
    matrix = random.standard_normal((rows, columns)).astype(np.float32)
    if dtype == "bfloat16":
        matrix = matrix.astype(ml_dtypes.bfloat16)
    blocks, found = RowBlocks(rows, columns), []
    for threads in (1, 2, 3):
        loops = column_sum_parts(source(0), target(0), blocks, dtype, cpu(threads))
        part = ChainPart(tuple(loops), ())
        total = np.full(columns, np.nan, np.float32)
        run(part, [matrix.view(np.uint8)], [total], aligned(part.scratch_bytes), threads)
        found.append(total)
    expected = matrix.astype(np.float64).sum(0)
    np.testing.assert_allclose(found[0], expected, atol=1e-6 * rows, rtol=1e-5)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("rows", [70, 5000])
@pytest.mark.parametrize(
    ("operator", "scales"), [("LayerNorm", 2), ("RMSNorm", 1), ("_bias_activation", 1)]
)
def test_gradients_that_are_summed_where_rows_are_computed_do_not_depend_on_the_team(
    operator, scales, rows
):
    random, prop, columns = np.random.default_rng(0), create(operator, {}), 83
    data, grad = random.standard_normal((2, rows, columns)).astype(np.float32)
    inputs = [data, *random.standard_normal((scales, columns)).astype(np.float32)]
    inferred = prop.infer_shape([each.shape for each in inputs], [None] * len(prop.list_outputs()))
    before = [np.zeros(shape, np.float32) for shape in inferred.outputs]
    found = []
    for threads in (1, 2, 3):
        body = implementations(operator)["jit"]
        done = forward(body, prop, inputs, before, threads=threads)
        tensors = BackwardData([grad, *before[1:]], inputs, done.outputs)
        gradients = backward(body, prop, tensors, inputs, done, threads=threads)
        found.append(b"".join(each.tobytes() for each in gradients))
    assert found == [found[0]] * 3
