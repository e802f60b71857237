"""Sums over the rows of matrices: the gradients of biases."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from executors import cpu
from launches import aligned, run

from mxrun.operator.native_kernel import source, target
from mxrun.ops.chain import ChainPart
from mxrun.ops.column_sum import RowBlocks, column_sum_parts

# One block, several with an incomplete last one, and many rows; groups of columns and what is left.
SHAPES = ((1, 1), (64, 10), (65, 64), (768, 512), (5000, 83))


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
