"""Vectors of 16 lanes, for native functions whose loops LLVM does not vectorise.

LLVM compiles a loop over a few channels with a condition, or over several tensors that could
overlap, to scalar code, or to vector code behind checks that cost more than the work. These
intrinsics, for bodies of `jit.native`, express the vector code explicitly. A vector has 16 lanes of
float32 or int32, or of float64 for running sums. Memory is read and written at `position` of a
pointer for the first `count` lanes, or for all 16 if `count` is larger.
"""

from __future__ import annotations

from typing import Any

from mxrun.codegen.declaration import intrinsic

LANES = 16
# Columns of a panel of `multiply_panel`, and the most rows that it multiplies at a time.
PANEL_COLUMNS = 2 * LANES
PANEL_ROWS = 12


@intrinsic
def lanes(value: float) -> Any:
    """Broadcast `value`, a float32 (or int64), to a vector of float32 (or of int32)."""


@intrinsic
def load_lanes(pointer: Any, position: int, count: int) -> Any:
    """Load lanes from memory; the others are 0.

    Numbers are loaded unchanged, but bfloat16 is widened to float32, and bytes to int32.
    """


@intrinsic
def gather_lanes(pointer: Any, position: int, step: int, count: int) -> Any:
    """Load lanes from every `step`-th element of float32 memory; the others are 0."""


@intrinsic
def store_lanes(pointer: Any, position: int, vector: Any, count: int) -> None:
    """Store lanes: numbers unchanged, the lowest bytes of int32 lanes to byte memory.

    float64 is rounded to float32 memory, and float32 to bfloat16 memory, ties to even; NaN stays
    NaN.
    """


@intrinsic
def stored_lanes(pointer: Any, vector: Any) -> Any:
    """Return float32 lanes as `load_lanes` would read them after they were stored there."""


@intrinsic
def above(left: Any, right: Any) -> Any:
    """Return the mask of lanes with left > right, which is false if either is NaN."""


@intrinsic
def exceeds(left: Any, right: Any) -> Any:
    """Return the mask of lanes with left > right, or with left NaN and right not NaN."""


@intrinsic
def equals(left: Any, right: Any) -> Any:
    """Return the mask of lanes in which two int32 vectors are equal."""


@intrinsic
def choose(mask: Any, chosen: Any, otherwise: Any) -> Any:
    """Select lanes of `chosen` where the mask is set, else of `otherwise`."""


@intrinsic
def add_lanes(left: Any, right: Any) -> Any:
    """Add two vectors of one kind; float32 is widened if the other one is float64."""


@intrinsic
def wide_lanes(vector: Any) -> Any:
    """Widen float32 lanes to float64."""


@intrinsic
def narrow_lanes(vector: Any) -> Any:
    """Round float64 lanes to float32."""


@intrinsic
def subtract_lanes(left: Any, right: Any) -> Any:
    """Subtract two vectors of numbers; float32 is widened if the other one is float64."""


@intrinsic
def multiply_lanes(left: Any, right: Any) -> Any:
    """Multiply two vectors of float32."""


@intrinsic
def exp2_lanes(exponent: Any) -> Any:
    """Compute two to the power of float32 lanes that are at most 127; 0 below -126, NaN for NaN."""


@intrinsic
def log_lanes(vector: Any) -> Any:
    """Compute the natural logarithm of float64 lanes."""


@intrinsic
def maximum_lanes(left: Any, right: Any) -> Any:
    """Return the larger of two lanes of numbers of one kind; if either is NaN, the right one."""


@intrinsic
def largest_lane(vector: Any) -> float:
    """Return the float32 maximum of the lanes, by `maximum_lanes` of halves until one is left."""


@intrinsic
def keep_lanes(vector: Any, count: int, otherwise: Any) -> Any:
    """Return the first `count` lanes of a float32 vector, and the other lanes of another one."""


@intrinsic
def sum_lanes(vector: Any, count: int) -> float:
    """Return the float32 sum of the first `count` lanes, or of all 16 if `count` is larger.

    The upper half of the lanes is added to the lower half until one lane is left.
    """


@intrinsic
def fetch(pointer: Any, position: int) -> None:
    """Prefetch the cache line of `position`, which need not exist."""


@intrinsic
def pair_lanes(low: Any, high: Any) -> Any:
    """Convert two vectors of float32 to bfloat16, interleaved lane by lane.

    The result is only for storing, as float32.
    """


@intrinsic
def join_lanes(low: Any, high: Any) -> Any:
    """Return `pair_lanes` of float32 vectors that hold bfloat16 numbers, which need no rounding."""


@intrinsic
def transpose_lanes(
    pointer: Any,
    position: int,
    stride: int,
    rows: int,
    columns: int,
    output: Any,
    to: int,
    step: int,
) -> None:
    """Transpose a block: output[to + j * step + i] = pointer[position + i * stride + j], float32.

    i is below `rows` and j below `columns`; both are at least 1, and values above 16 count as 16.
    """


@intrinsic
def multiply_panel(
    output: Any,
    at: int,
    stride: int,
    rows: int,
    left: Any,
    position: int,
    step: int,
    inner: int,
    panel: Any,
    start: int,
    columns: int,
) -> None:
    """Add the product of rows with a panel of PANEL_COLUMNS columns to `output`, float32.

    output[at + i * stride + j] += sum over k < inner of left[position + i * step + k] *
    panel[start + PANEL_COLUMNS * k + j], for i below `rows`, which is at most PANEL_ROWS, and j
    below `columns`. left is float32 or bfloat16. The terms are added in the order of k, by fused
    multiply-adds.
    """


@intrinsic
def multiply_pair_panel(
    output: Any,
    at: int,
    stride: int,
    rows: int,
    left: Any,
    position: int,
    step: int,
    inner: int,
    panel: Any,
    start: int,
    columns: int,
) -> None:
    """Compute `multiply_panel` of bfloat16 factors, an even number of terms.

    left is bfloat16. An element of the panel is a pair: panel[start + PANEL_COLUMNS * k + j] holds
    the elements 2 k and 2 k + 1 of column j. A product is the sum of both products of a pair, added
    to a float32 sum. Only processors with bfloat16 instructions have it.
    """
