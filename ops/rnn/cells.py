"""One step of each kind of recurrent layer, forward and backward, on NumPy arrays.

x and y [N, gates * H] are the products of the input and of the previous state with their weights,
biases included.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.operator import scalar
from mxrun.ops.rnn.parameters import RNNParameters

Array = npt.NDArray[Any]
# Arrays of one step that backward reads.
Saved = tuple[Array, ...]


class Cell(ABC):
    """One kind of layer; the state's cell is None unless the layer has one."""

    def __init__(self, parameters: RNNParameters) -> None:
        self.parameters = parameters

    @abstractmethod
    def forward(self, x: Array, y: Array, h: Array, c: Array) -> tuple[Array, Array, Saved]:
        """Return the output before a projection, the cell, and what backward reads."""

    @abstractmethod
    def backward(
        self, saved: Saved, h_grad: Array, c_grad: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Return the gradients of x and y, and those of h and c but for y's share."""


class Simple(Cell):
    """h = act(x + y)."""

    def forward(self, x: Array, y: Array, h: Array, c: Array) -> tuple[Array, Array, Saved]:
        """Return the activation."""
        total = x + y
        if self.parameters.mode == "rnn_relu":
            output = np.where(total > 0, total, np.where(np.isnan(total), total, 0))
        else:
            output = scalar.tanh(total)
        output = output.astype(x.dtype)
        return output, c, (output,)

    def backward(
        self, saved: Saved, h_grad: Array, c_grad: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Multiply by the activation's derivative."""
        (output,) = saved
        relu = self.parameters.mode == "rnn_relu"
        grad = h_grad * (output > 0) if relu else h_grad * (1 - output * output)
        return grad, grad, np.zeros_like(h_grad), c_grad


class Gru(Cell):
    """n = tanh(x + r * y), h = (1 - z) * n + z * h."""

    def forward(self, x: Array, y: Array, h: Array, c: Array) -> tuple[Array, Array, Saved]:
        """Return the mean of the new and the old state, weighted by z."""
        (x_r, x_z, x_n), (y_r, y_z, y_n) = np.split(x, 3, 1), np.split(y, 3, 1)
        reset, update = (
            scalar.sigmoid(x_r + y_r).astype(x.dtype),
            scalar.sigmoid(x_z + y_z).astype(x.dtype),
        )
        new = scalar.tanh(x_n + reset * y_n).astype(x.dtype)
        output = (1 - update) * new + update * h
        return output, c, (reset, update, new, y_n, h)

    def backward(
        self, saved: Saved, h_grad: Array, c_grad: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Differentiate the mean, then the gates."""
        reset, update, new, y_n, h = saved
        n_grad = h_grad * (1 - update) * (1 - new * new)
        z_grad = h_grad * (h - new) * update * (1 - update)
        r_grad = n_grad * y_n * reset * (1 - reset)
        return (
            np.concatenate([r_grad, z_grad, n_grad], 1),
            np.concatenate([r_grad, z_grad, n_grad * reset], 1),
            h_grad * update,
            c_grad,
        )


class Lstm(Cell):
    """c = f * c + i * g, h = o * tanh(c)."""

    def forward(self, x: Array, y: Array, h: Array, c: Array) -> tuple[Array, Array, Saved]:
        """Return o * tanh(c) with the clipped cell."""
        i, f, g, o = np.split(x + y, 4, 1)
        i, f, o = (scalar.sigmoid(each).astype(x.dtype) for each in (i, f, o))
        g = scalar.tanh(g).astype(x.dtype)
        cell = f * c + i * g
        passes = np.ones_like(cell)
        p = self.parameters
        if p.lstm_state_clip_min is not None and p.lstm_state_clip_max is not None:
            low, high = cell.dtype.type(p.lstm_state_clip_min), p.lstm_state_clip_max
            if p.lstm_state_clip_nan:
                cell = np.where(np.isnan(cell), low, cell)
            clipped = np.clip(cell, low, cell.dtype.type(high))
            passes = ((clipped == cell) & ~np.isnan(f * c + i * g)).astype(cell.dtype)
            cell = clipped
        tanh = scalar.tanh(cell).astype(x.dtype)
        return o * tanh, cell, (i, f, g, o, c, tanh, passes)

    def backward(
        self, saved: Saved, h_grad: Array, c_grad: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Differentiate the output, then the cell; a clipped cell passes no gradient."""
        i, f, g, o, c, tanh, passes = saved
        cell = (c_grad + h_grad * o * (1 - tanh * tanh)) * passes
        grad = np.concatenate(
            [
                cell * g * i * (1 - i),
                cell * c * f * (1 - f),
                cell * i * (1 - g * g),
                h_grad * tanh * o * (1 - o),
            ],
            1,
        )
        return grad, grad, np.zeros_like(h_grad), cell * f


CELLS: dict[str, type[Cell]] = {
    "rnn_relu": Simple,
    "rnn_tanh": Simple,
    "gru": Gru,
    "lstm": Lstm,
}
