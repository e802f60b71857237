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


@inlined
def scale_channel(call: Scaling, c: int, first: Any, second: Any) -> None:
    """Write the statistics and factors of a channel, from its totals."""
    count, epsilon = call.count, np.float64(call.epsilon)
    # Mean distance from the shift; 0 if the mean is given.
    distance = first / count
    average = call.shift[c] + distance
    variance = second / count - distance * distance
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


@native
def scale_loop(call: Scaling) -> None:
    """mean, var, scale = gamma / sqrt(var + eps), from the sums, or from given statistics."""
    totals = added_up(call)
    for c in range(call.channels):
        scale_channel(call, c, totals[c], totals[call.channels + c])


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


@inlined
def scale_gradients(call: GradientScaling, c: int, first: Any, total: Any) -> None:
    """Write the gradients and factors of a channel, from its totals."""
    count, epsilon = call.count, np.float64(call.epsilon)
    factor = 1 / np.sqrt(np.float64(call.var[c]) + epsilon)
    second = total * factor
    call.scale[c] = factor if call.gamma is None else factor * call.gamma[c]
    call.center[c] = 0.0 if call.is_given else first / count
    call.slope[c] = 0.0 if call.is_given else second / count * factor
    if call.gamma_grad is not None:
        call.gamma_grad[c] = second
    if call.beta_grad is not None:
        call.beta_grad[c] = first


@native
def gradient_scale_loop(call: GradientScaling) -> None:
    """Gradients of gamma and beta, and the factors scale, center and slope of data's gradient.

    With x = (data - mean) * f and f = 1 / sqrt(var + eps): scale = gamma f, center = sum(grad) / n,
    slope = f sum(grad x) / n. center and slope are 0 if the statistics were given.
    """
    totals = added_up(call)
    for c in range(call.channels):
        scale_gradients(call, c, totals[c], totals[call.channels + c])
