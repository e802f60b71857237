"""Products of small matrices, in tiles of vector registers."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pytest

from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import NativeFunction, native
from mxrun.codegen.products import multiply_block, multiply_pairs

Array = npt.NDArray[np.float32]
GAP = 3


class Product(Arguments):
    output: Float32s
    output_step: Integer
    left: Float32s
    row_step: Integer
    inner_step: Integer
    right: Float32s
    right_step: Integer
    rows: Integer
    columns: Integer
    inner: Integer
    begin: Float32s
    begin_step: Integer
    is_begun: Integer


@native
def block_loop(call: Product) -> None:
    """Compute left x right, and add what is given."""
    multiply_block(
        *(call.output, 1, call.output_step),
        *(call.left, 2, call.row_step, call.inner_step),
        *(call.right, 3, call.right_step),
        *(call.rows, call.columns, call.inner),
        *(call.begin, 1, call.begin_step, call.is_begun),
    )


@native
def pairs_loop(call: Product) -> None:
    """Compute the same of pairs of bfloat16."""
    multiply_pairs(
        *(call.output, 1, call.output_step),
        *(call.left, 2, call.row_step, call.inner_step),
        *(call.right, 3, call.right_step),
        *(call.rows, call.columns, call.inner),
        *(call.begin, 1, call.begin_step, call.is_begun),
    )


def within(matrix: Array, start: int) -> tuple[Array, int]:
    """Return memory that holds a matrix from `start` on, with gaps, and the step of its rows."""
    rows, columns = matrix.shape
    memory = np.full((rows, columns + GAP), np.nan, np.float32)
    memory[:, :columns] = matrix
    return np.concatenate([np.full(start, np.nan, np.float32), memory.ravel()]), columns + GAP


def run(
    function: NativeFunction, left: Array, right: Array, begin: Array | None, turned: bool
) -> tuple[Array, Array]:
    """Return the output and what lies around it.

    begin: what is added to the sums, one row for all or the same rows as the output's, which are
    then read where they are written; None for 0.
    """
    rows, inner = left.shape
    columns = right.shape[1]
    is_in_place = begin is not None and len(begin) == rows
    before = begin if is_in_place else np.full((rows, columns), np.nan, np.float32)
    output, output_step = within(before, 1)
    row = None if begin is None else within(begin, 1)[0]
    stored, step = within(left.T if turned else left, 2)
    other, right_step = within(right, 3)
    steps = (1, step) if turned else (step, 1)
    product = Product(
        output=output,
        output_step=output_step,
        left=stored,
        row_step=steps[0],
        inner_step=steps[1],
        right=other,
        right_step=right_step,
        rows=rows,
        columns=columns,
        inner=inner,
        begin=output if is_in_place else row,
        begin_step=output_step if is_in_place else 0,
        is_begun=int(begin is not None),
    )
    HostLoop(function, product)()
    grid = output[1:].reshape(rows, columns + GAP)
    return grid[:, :columns], np.concatenate([output[:1], grid[:, columns:].ravel()])


def beginning(kind: str, rows: int, columns: int) -> Array | None:
    random = np.random.default_rng(1)
    count = {"zero": 0, "row": 1, "output": rows}[kind]
    return random.integers(-9, 9, (count, columns)).astype(np.float32) if count else None


@pytest.mark.parametrize("kind", ["zero", "row", "output"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "inner"),
    [
        (2, 16, 1),
        (6, 64, 5),
        (7, 48, 8),
        (10, 37, 7),
        (15, 113, 3),
        (14, 80, 33),
        (8, 16, 0),
        (1, 1, 4),
    ],
)
def test_a_product_is_the_sum_of_its_terms_in_order(
    rows: int, columns: int, inner: int, turned: bool, kind: str
) -> None:
    random = np.random.default_rng(rows)
    left = random.standard_normal((rows, inner)).astype(np.float32)
    right = random.standard_normal((inner, columns)).astype(np.float32)
    begin = beginning(kind, rows, columns)
    found, around = run(block_loop, left, right, begin, turned)
    total = np.zeros((rows, columns), np.float32)
    for k in range(inner):
        # Exact in float64, then rounded once.
        term = left[:, k : k + 1].astype(np.float64) * right[k]
        total = (term + total).astype(np.float32)
    if begin is not None:
        total = begin + total
    np.testing.assert_array_equal(found, total)
    assert np.isnan(around).all()


def in_pairs(numbers: Array) -> Array:
    """Return words of two bfloat16 numbers along the last axis."""
    halves = (np.ascontiguousarray(numbers).view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(halves).view(np.float32)


@pytest.mark.skipif(
    not llvm.get_host_cpu_features().get("avx512bf16"), reason="no products of bfloat16"
)
@pytest.mark.parametrize("kind", ["zero", "row", "output"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_product_of_pairs_adds_both_products(turned: bool, kind: str) -> None:
    random = np.random.default_rng(0)
    left = random.integers(-9, 9, (9, 14)).astype(np.float32)
    right = random.integers(-9, 9, (14, 117)).astype(np.float32)
    begin = beginning(kind, 9, 117)
    words = in_pairs(np.ascontiguousarray(right.T)).T
    found, around = run(pairs_loop, in_pairs(left), words, begin, turned)
    np.testing.assert_array_equal(found, left @ right + (0 if begin is None else begin))
    assert np.isnan(around).all()
