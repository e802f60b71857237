"""Formulas of one step of each kind of recurrent layer, and the step on NumPy arrays.

A formula's operands are sums of the products of the input and of the previous state with their
weights, one for each gate; a gru has the new gate's two products apart, then h, and an lstm c. It
returns what backward reads, and the states after the step: of an lstm c and h, else h. A gradient's
operands are that of h, of an lstm that of c, and what backward reads; it returns those of the sums,
of a gru's product with the state, of an lstm's previous c, and the previous h's but for its
product. clip: the limits of an lstm's c, if it has any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.operator import scalar
from mxrun.ops.rnn.parameters import RNNParameters

Array = npt.NDArray[Any]
# Scalar functions run on arrays and symbolic values.
Scalar = Any
# What backward reads, and the states after a step.
Results = tuple[tuple[Scalar, ...], tuple[Scalar, ...]]
# Arrays of one step that backward reads.
Saved = tuple[Array, ...]


def _relu(given: Sequence[Scalar], clip: Sequence[Scalar], clips_nan: bool) -> Results:
    """h = max(x, 0)."""
    return (), (scalar.maximum(given[0], 0.0),)


def _tanh(given: Sequence[Scalar], clip: Sequence[Scalar], clips_nan: bool) -> Results:
    """h = tanh(x)."""
    return (), (scalar.tanh(given[0]),)


def _gru(given: Sequence[Scalar], clip: Sequence[Scalar], clips_nan: bool) -> Results:
    """n = tanh(x + r * y), h = (1 - z) * n + z * h."""
    r, z, n, y, h = given
    reset, update = scalar.sigmoid(r), scalar.sigmoid(z)
    new = scalar.tanh(n + reset * y)
    return (reset, update, new, y), ((1 - update) * new + update * h,)


def _lstm(given: Sequence[Scalar], clip: Sequence[Scalar], clips_nan: bool) -> Results:
    """c = f * c + i * g, h = o * tanh(c)."""
    i, f, g, o, c = given
    i, f, o, g = scalar.sigmoid(i), scalar.sigmoid(f), scalar.sigmoid(o), scalar.tanh(g)
    cell, _ = _cell(f * c + i * g, clip, clips_nan)
    return (i, f, g, o, cell), (cell, o * scalar.tanh(cell))


def _cell(cell: Scalar, clip: Sequence[Scalar], clips_nan: bool) -> tuple[Scalar, Scalar]:
    """Return the clipped cell, and 1 where it passes a gradient, else 0."""
    if not clip:
        return cell, None
    low, high = clip
    passes = scalar.where(cell >= low, scalar.where(cell <= high, 1.0, 0.0), 0.0)
    if clips_nan:
        cell = scalar.where(scalar.isnan(cell), low, cell)
    return scalar.minimum(scalar.maximum(cell, low), high), passes


def _relu_gradient(
    total: Scalar, recorded: Sequence[Scalar], clip: Sequence[Scalar], clips_nan: bool
) -> tuple[Scalar, ...]:
    return scalar.where(recorded[0] > 0.0, total, total * 0.0), 0.0


def _tanh_gradient(
    total: Scalar, recorded: Sequence[Scalar], clip: Sequence[Scalar], clips_nan: bool
) -> tuple[Scalar, ...]:
    return total * (1 - recorded[0] * recorded[0]), 0.0


def _gru_gradient(
    total: Scalar, recorded: Sequence[Scalar], clip: Sequence[Scalar], clips_nan: bool
) -> tuple[Scalar, ...]:
    reset, update, new, y, h = recorded
    n = total * (1 - update) * (1 - new * new)
    z = total * (h - new) * update * (1 - update)
    r = n * y * reset * (1 - reset)
    return r, z, n, n * reset, total * update


def _lstm_gradient(
    total: Scalar, recorded: Sequence[Scalar], clip: Sequence[Scalar], clips_nan: bool
) -> tuple[Scalar, ...]:
    c_grad, i, f, g, o, c = recorded
    cell, passes = _cell(f * c + i * g, clip, clips_nan)
    tanh = scalar.tanh(cell)
    grad = c_grad + total * o * (1 - tanh * tanh)
    if passes is not None:
        grad = grad * passes
    return (
        grad * g * i * (1 - i),
        grad * c * f * (1 - f),
        grad * i * (1 - g * g),
        total * tanh * o * (1 - o),
        grad * f,
        0.0,
    )


FORWARD: dict[str, Callable[..., Results]] = {
    "rnn_relu": _relu,
    "rnn_tanh": _tanh,
    "gru": _gru,
    "lstm": _lstm,
}
BACKWARD: dict[str, Callable[..., tuple[Scalar, ...]]] = {
    "rnn_relu": _relu_gradient,
    "rnn_tanh": _tanh_gradient,
    "gru": _gru_gradient,
    "lstm": _lstm_gradient,
}


class Cell:
    """Step of a layer; the state's cell is None unless the layer has one."""

    def __init__(self, parameters: RNNParameters) -> None:
        self._mode, self._gates = parameters.mode, parameters.gates
        self._clips_nan = parameters.lstm_state_clip_nan
        limits = parameters.lstm_state_clip_min, parameters.lstm_state_clip_max
        self._clip = [each for each in limits if each is not None and parameters.is_clipped]

    def forward(self, x: Array, y: Array, h: Array, c: Array) -> tuple[Array, Array, Saved]:
        """Return the output before a projection, the cell, and what backward reads.

        x and y [N, gates * H] are the products of the input and of the previous state with their
        weights, biases included.
        """
        xs, ys = np.split(x, self._gates, 1), np.split(y, self._gates, 1)
        given = [a + b for a, b in zip(xs, ys, strict=True)]
        given += {"gru": [h], "lstm": [c]}.get(self._mode, [])
        if self._mode == "gru":
            given[2:3] = xs[2], ys[2]

        def step(*values: Scalar) -> tuple[Scalar, ...]:
            own, clip = values[: len(given)], values[len(given) :]
            recorded, states = FORWARD[self._mode](own, clip, self._clips_nan)
            return (*recorded, *states)

        *recorded, output = scalar.evaluate(step, given, self._clip)
        saved = (*recorded[:4], given[-1]) if recorded else (output,)
        return output, recorded[-1] if self._mode == "lstm" else c, saved

    def backward(
        self, saved: Saved, h_grad: Array, c_grad: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Return the gradients of x and y, and those of h and c but for y's share."""
        given = [h_grad, *([c_grad] if self._mode == "lstm" else []), *saved]

        def step(*values: Scalar) -> tuple[Scalar, ...]:
            own, clip = values[1 : len(given)], values[len(given) :]
            return BACKWARD[self._mode](values[0], own, clip, self._clips_nan)

        *found, before = scalar.evaluate(step, given, self._clip)
        if self._mode == "lstm":
            c_grad = found.pop()
        x_grad = np.concatenate(found[: self._gates], 1)
        y_grad = np.concatenate([*found[:2], found[3]], 1) if self._mode == "gru" else x_grad
        return x_grad, y_grad, before, c_grad
