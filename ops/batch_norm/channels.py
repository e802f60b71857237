"""Batch normalisation's loops over channels: statistics and factors from partial sums.

They run on one thread. All data are float32; the totals of the sums are float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.backend.jit import Block, float32s, float64s, inlined, integer, native, real


@inlined
def added_up(block: Block) -> Any:
    """Add the partial sums and return the totals [2, C]; uses slots 0, 1, 4 and 5 of both loops."""
    channels, sums, totals = integer(block, 0), float32s(block, 4), float64s(block, 5)
    for j in range(2 * channels):
        totals[j] = 0.0
    for k in range(integer(block, 1)):
        for j in range(2 * channels):
            totals[j] += sums[2 * k * channels + j]
    return totals


@native
def scale_loop(block: Block) -> None:
    """mean, var, scale = gamma / sqrt(var + eps), from the sums, or from given statistics.

    Slots: channels, number of partial sums (0: statistics are given), elements per channel, eps,
    sums, totals (float64 [2, C]), shift or the given mean, the given var, gamma (absent: 1), mean,
    scale, the outputs mean and var (may be absent), beta and its copy for backward (may be absent).
    """
    channels, count, epsilon = integer(block, 0), integer(block, 2), np.float64(real(block, 3))
    totals = added_up(block)
    shift, given, gamma = float32s(block, 6), float32s(block, 7), float32s(block, 8)
    mean, scale = float32s(block, 9), float32s(block, 10)
    mean_output, var_output = float32s(block, 11), float32s(block, 12)
    beta, beta_copy = float32s(block, 13), float32s(block, 14)
    for c in range(channels):
        # Mean distance from the shift; 0 if the mean is given.
        distance = totals[c] / count
        average = shift[c] + distance
        variance = totals[channels + c] / count - distance * distance
        variance = 0.0 if variance < 0 else variance
        if integer(block, 1) == 0:
            variance = np.float64(given[c])
        factor = 1 / np.sqrt(variance + epsilon)
        mean[c] = average
        scale[c] = factor if integer(block, 8) == 0 else factor * gamma[c]
        if integer(block, 11) != 0:
            mean_output[c] = average
        if integer(block, 12) != 0:
            var_output[c] = variance
        if integer(block, 14) != 0:
            beta_copy[c] = beta[c]


@native
def gradient_scale_loop(block: Block) -> None:
    """Gradients of gamma and beta, and the factors scale, center and slope of data's gradient.

    With x = (data - mean) * f and f = 1 / sqrt(var + eps): scale = gamma f, center = sum(grad) / n,
    slope = f sum(grad x) / n. center and slope are 0 if the statistics were given.

    Slots: channels, number of partial sums, n, eps, sums, totals (float64 [2, C]), var, gamma
    (absent: 1), scale, center, slope, the gradients of gamma and beta (may be absent), whether the
    statistics were given.
    """
    channels, count, epsilon = integer(block, 0), integer(block, 2), np.float64(real(block, 3))
    totals = added_up(block)
    var, gamma, scale = float32s(block, 6), float32s(block, 7), float32s(block, 8)
    center, slope = float32s(block, 9), float32s(block, 10)
    gamma_grad, beta_grad = float32s(block, 11), float32s(block, 12)
    for c in range(channels):
        factor = 1 / np.sqrt(np.float64(var[c]) + epsilon)
        first, second = totals[c], totals[channels + c] * factor
        scale[c] = factor if integer(block, 7) == 0 else factor * gamma[c]
        center[c] = first / count if integer(block, 13) == 0 else 0.0
        slope[c] = second / count * factor if integer(block, 13) == 0 else 0.0
        if integer(block, 11) != 0:
            gamma_grad[c] = second
        if integer(block, 12) != 0:
            beta_grad[c] = first
