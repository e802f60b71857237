"""Loops around a library's products of all heads of attention.

Scores and the gradients of probabilities are float32, everything else is bfloat16. Rows of scores
are `stride` elements apart, and probabilities beyond the keys that a query reads are 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, BFloat16s, Float32s, Integer, Real
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.loops import rows_of_task, vectors
from mxrun.codegen.vectors import (
    exp2_lanes,
    lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
    subtract_lanes,
)
from mxrun.ops.row_reduction import row_maximum, row_sum

_LOG2_E = np.float32(math.log2(math.e))


class HeadRows(Arguments):
    """Arguments of `split_loop` and `merge_loop`: rows of `width` elements of all heads.

    tensor: of sequences, `positions` and, in `columns`, heads; stack: of sequences, heads and
    positions.
    """

    rows: Integer
    heads: Integer
    positions: Integer
    width: Integer
    columns: Integer
    tensor: BFloat16s
    stack: BFloat16s


@inlined
def place_of(call: HeadRows, row: int) -> Any:
    """Return where a row of the stack is in the tensor."""
    sequence, head = row // (call.positions * call.heads), row // call.positions % call.heads
    position = sequence * call.positions + row % call.positions
    return position * call.columns + head * call.width


@native
def split_loop(call: HeadRows) -> None:
    """Copy the tensor's rows to the stack."""
    for row in rows_of_task(call.rows):
        at = place_of(call, row)
        for j, count in vectors(0, call.width):
            store_lanes(
                call.stack, row * call.width + j, load_lanes(call.tensor, at + j, count), count
            )


@native
def merge_loop(call: HeadRows) -> None:
    """Copy the stack's rows to the tensor."""
    for row in rows_of_task(call.rows):
        at = place_of(call, row)
        for j, count in vectors(0, call.width):
            store_lanes(
                call.tensor, at + j, load_lanes(call.stack, row * call.width + j, count), count
            )


class ScoreRows(Arguments):
    """Arguments of the other loops: `rows` rows of `keys` scores, `queries` for each head.

    causal: whether query i reads the keys 0 to i alone. logsumexp [rows]: of the scaled scores.
    """

    rows: Integer
    queries: Integer
    keys: Integer
    stride: Integer
    scale: Real
    causal: Integer
    scores: Float32s
    probabilities: BFloat16s
    logsumexp: Float32s


@inlined
def keys_read(call: ScoreRows, row: int) -> Any:
    """Return how many keys a row's query reads."""
    return min(row % call.queries + 1, call.keys) if call.causal else call.keys


@inlined
def scaled(call: ScoreRows, j: int, count: int) -> Any:
    """Return scores times the factor."""
    return multiply_lanes(load_lanes(call.scores, j, count), lanes(call.scale))


@inlined
def exponential(call: ScoreRows, j: int, count: int, shift: Any) -> Any:
    """Return e to the power of scaled scores minus a shift."""
    vector = subtract_lanes(scaled(call, j, count), shift)
    return exp2_lanes(multiply_lanes(vector, lanes(_LOG2_E)))


@inlined
def write_row(call: ScoreRows, row: int, logarithm: Any) -> None:
    """Write a row's probabilities, given the logarithm of the sum of the exponentials."""
    at, shift = row * call.stride, lanes(np.float32(logarithm))
    read = at + keys_read(call, row)
    for j, count in vectors(at, read):
        store_lanes(call.probabilities, j, exponential(call, j, count, shift), count)
    for j, count in vectors(read, at + call.stride):
        store_lanes(call.probabilities, j, lanes(np.float32(0.0)), count)


@native
def probabilities_loop(call: ScoreRows) -> None:
    """probabilities = exp(scale * scores - logsumexp), and logsumexp."""
    for row in rows_of_task(call.rows):
        at = row * call.stride
        read = at + keys_read(call, row)
        most = row_maximum(at, read, lambda j, count: scaled(call, j, count))
        shift = lanes(most)
        total = row_sum(at, read, lambda j, count: exponential(call, j, count, shift))
        logarithm = most + math.log(total)
        if call.logsumexp is not None:
            call.logsumexp[row] = logarithm
        write_row(call, row, logarithm)


@native
def recomputed_probabilities_loop(call: ScoreRows) -> None:
    """probabilities = exp(scale * scores - logsumexp), which forward has computed."""
    for row in rows_of_task(call.rows):
        write_row(call, row, call.logsumexp[row])


@inlined
def product_with_gradient(call: ScoreRows, j: int, count: int) -> Any:
    """Return probabilities times their gradients, which stand in place of the scores."""
    return multiply_lanes(
        load_lanes(call.probabilities, j, count), load_lanes(call.scores, j, count)
    )


@native
def score_gradients_loop(call: ScoreRows) -> None:
    """probabilities = scale * probabilities * (g - sum(probabilities * g)), for gradients g.

    g are the gradients of the probabilities, in place of the scores; the results are those of the
    scores.
    """
    for row in rows_of_task(call.rows):
        at = row * call.stride
        read = at + keys_read(call, row)
        total = row_sum(at, read, lambda j, count: product_with_gradient(call, j, count))
        shift = lanes(np.float32(total))
        for j, count in vectors(at, read):
            vector = subtract_lanes(load_lanes(call.scores, j, count), shift)
            vector = multiply_lanes(vector, load_lanes(call.probabilities, j, count))
            vector = multiply_lanes(vector, lanes(call.scale))
            store_lanes(call.probabilities, j, vector, count)
