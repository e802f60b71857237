"""Products of small matrices, for native functions that work on blocks that fit the cache.

Sums over the inner index are in its order, each term fused into the sum, so the bits depend on
nothing else.
"""

from __future__ import annotations

from typing import Any

from mxrun.codegen.declaration import intrinsic


@intrinsic
def multiply_block(
    output: Any,
    to: int,
    output_step: int,
    left: Any,
    left_at: int,
    row_step: int,
    inner_step: int,
    right: Any,
    right_at: int,
    right_step: int,
    rows: int,
    columns: int,
    inner: int,
    begin: Any,
    begin_at: int,
    begin_step: int,
    is_begun: int,
) -> None:
    """Compute output[to + i * output_step + j], for i < `rows` and j < `columns`:

    the sum over k < `inner` of left[left_at + i * row_step + k * inner_step] * right[right_at + k *
    right_step + j]. If it `is_begun`, begin[begin_at + i * begin_step + j] is added to the sum. All
    are float32.
    """


@intrinsic
def multiply_pairs(
    output: Any,
    to: int,
    output_step: int,
    left: Any,
    left_at: int,
    row_step: int,
    inner_step: int,
    right: Any,
    right_at: int,
    right_step: int,
    rows: int,
    columns: int,
    inner: int,
    begin: Any,
    begin_at: int,
    begin_step: int,
    is_begun: int,
) -> None:
    """Compute `multiply_block` of factors whose float32 elements are pairs of bfloat16.

    A product is the sum of both products of a pair, added to a float32 sum. Only processors with
    bfloat16 instructions have it.
    """
