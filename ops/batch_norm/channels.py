"""Batch normalisation's loops over channels: statistics and factors from partial sums.

They run on one thread. All data are float32; the totals of the sums are float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Integer, Real
from mxrun.codegen.jit import inlined, native


class ChannelSums(Arguments):
    """Two sums per channel, in parts: sums [partial_sums, 2, channels].

    count: elements per channel. totals: memory for their totals [2, channels].
    """

    channels: Integer
    partial_sums: Integer
    count: Integer
    epsilon: Real
    sums: Float32s
    totals: Float64s


@inlined
def added_up(call: ChannelSums) -> Any:
    """Add the partial sums and return the totals."""
    channels, sums, totals = call.channels, call.sums, call.totals
    for j in range(2 * channels):
        totals[j] = 0.0
    for k in range(call.partial_sums):
        for j in range(2 * channels):
            totals[j] += sums[2 * k * channels + j]
    return totals


class Scaling(ChannelSums):
    """Arguments of `scale_loop`; all arrays are [channels].

    shift: what was subtracted before summing, or the given mean. given_var: present if the
    statistics are given; then there are no sums. gamma: None means 1. mean_output, var_output: the
    operator's outputs, if requested. beta_copy: beta's copy for backward, if needed.
    """

    shift: Float32s
    given_var: Float32s
    gamma: Float32s
    mean: Float32s
    scale: Float32s
    mean_output: Float32s
    var_output: Float32s
    beta: Float32s
    beta_copy: Float32s


@native
def scale_loop(call: Scaling) -> None:
    """mean, var, scale = gamma / sqrt(var + eps), from the sums, or from given statistics."""
    count, epsilon = call.count, np.float64(call.epsilon)
    totals = added_up(call)
    for c in range(call.channels):
        # Mean distance from the shift; 0 if the mean is given.
        distance = totals[c] / count
        average = call.shift[c] + distance
        variance = totals[call.channels + c] / count - distance * distance
        variance = 0.0 if variance < 0 else variance
        if call.given_var is not None:
            variance = np.float64(call.given_var[c])
        factor = 1 / np.sqrt(variance + epsilon)
        call.mean[c] = average
        call.scale[c] = factor if call.gamma is None else factor * call.gamma[c]
        if call.mean_output is not None:
            call.mean_output[c] = average
        if call.var_output is not None:
            call.var_output[c] = variance
        if call.beta_copy is not None:
            call.beta_copy[c] = call.beta[c]


class GradientScaling(ChannelSums):
    """Arguments of `gradient_scale_loop`; all arrays are [channels].

    gamma: None means 1. gamma_grad, beta_grad: None if not requested. is_given: whether the
    statistics were given.
    """

    var: Float32s
    gamma: Float32s
    scale: Float32s
    center: Float32s
    slope: Float32s
    gamma_grad: Float32s
    beta_grad: Float32s
    is_given: Integer


@native
def gradient_scale_loop(call: GradientScaling) -> None:
    """Gradients of gamma and beta, and the factors scale, center and slope of data's gradient.

    With x = (data - mean) * f and f = 1 / sqrt(var + eps): scale = gamma f, center = sum(grad) / n,
    slope = f sum(grad x) / n. center and slope are 0 if the statistics were given.
    """
    count, epsilon = call.count, np.float64(call.epsilon)
    totals = added_up(call)
    for c in range(call.channels):
        factor = 1 / np.sqrt(np.float64(call.var[c]) + epsilon)
        first, second = totals[c], totals[call.channels + c] * factor
        call.scale[c] = factor if call.gamma is None else factor * call.gamma[c]
        call.center[c] = 0.0 if call.is_given else first / count
        call.slope[c] = 0.0 if call.is_given else second / count * factor
        if call.gamma_grad is not None:
            call.gamma_grad[c] = second
        if call.beta_grad is not None:
            call.beta_grad[c] = first
