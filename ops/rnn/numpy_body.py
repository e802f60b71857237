"""NumPy body of RNN. Backward runs forward again, because it keeps nothing of it but the mask."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.operator.operator import BackwardCall, ByName, ForwardCall, Operator, OperatorCall
from mxrun.ops.rnn.cells import Cell, Saved
from mxrun.ops.rnn.parameters import RNNParameters, packed_weights
from mxrun.ops.sums import sum_over

Array = npt.NDArray[Any]
Weights = Mapping[str, Array]


@dataclass
class Direction:
    """One direction of a layer over all steps.

    data [T, N, features]. valid [T, N, 1]: whether a step lies before its sequence's end. steps:
    the order in which they run. hidden, cells: states before each step of the order, and after
    all. saved, projected: by step of the order, for backward.
    """

    cell: Cell
    weights: Weights
    data: Array
    valid: Array
    steps: range
    hidden: list[Array]
    cells: list[Array]
    saved: list[Saved] = field(default_factory=list)
    projected: list[Array] = field(default_factory=list)

    def forward(self, keeps: bool) -> Array:
        """Run all steps; return the outputs [T, N, H]. keeps: whether backward will follow."""
        w = self.weights
        x = self.data @ w["input_weight"].T + w["input_bias"]
        output = np.zeros((*x.shape[:2], self.hidden[0].shape[1]), x.dtype)
        for t in self.steps:
            h, c = self.hidden[-1], self.cells[-1]
            y = h @ w["recurrent_weight"].T + w["recurrent_bias"]
            inner, cell, saved = self.cell.forward(x[t], y, h, c)
            projected = inner @ w["projection"].T if "projection" in w else inner
            output[t] = np.where(self.valid[t], projected, 0)
            self.hidden.append(np.where(self.valid[t], projected, h))
            self.cells.append(np.where(self.valid[t], cell, c))
            if keeps:
                self.saved.append(saved)
                self.projected.append(np.where(self.valid[t], inner, 0))
        return output

    def backward(
        self, output_grad: Array, h_grad: Array, c_grad: Array, grads: Weights
    ) -> tuple[Array, Array, Array]:
        """Return the gradients of data and of the first states; write those of the weights."""
        w = self.weights
        x_grad = np.zeros((*self.data.shape[:2], len(w["input_weight"])), self.data.dtype)
        y_grad = np.zeros_like(x_grad)
        for place, t in reversed(list(enumerate(self.steps))):
            valid = self.valid[t]
            total = np.where(valid, h_grad + output_grad[t], 0)
            if "projection" in w:
                grads["projection"][...] += total.T @ self.projected[place]
                total = total @ w["projection"]
            x_grad[t], y_grad[t], before, c_before = self.cell.backward(
                self.saved[place], total, np.where(valid, c_grad, 0)
            )
            # Zeros times numbers of padding that are not finite would not be zeros.
            x_grad[t], y_grad[t] = (np.where(valid, each, 0) for each in (x_grad[t], y_grad[t]))
            through = y_grad[t] @ w["recurrent_weight"]
            if "projection" not in w:
                through = through + before
            h_grad = np.where(valid, through, h_grad)
            c_grad = np.where(valid, c_before, c_grad)
        x_rows, y_rows = map(_rows, (x_grad, y_grad))
        previous = np.empty((*self.data.shape[:2], h_grad.shape[1]), self.data.dtype)
        for t, hidden in zip(self.steps, self.hidden, strict=False):
            previous[t] = hidden
        grads["input_weight"][...] = x_rows.T @ _rows(self.data)
        grads["recurrent_weight"][...] = y_rows.T @ _rows(previous)
        grads["input_bias"][...] = sum_over(x_rows, 0)
        grads["recurrent_bias"][...] = sum_over(y_rows, 0)
        return x_grad @ w["input_weight"], h_grad, c_grad


def _rows(array: Array) -> Array:
    """Return [T * N, C] of [T, N, C]."""
    return array.reshape(math.prod(array.shape[:2]), array.shape[2])


class RNN(Operator):
    """NumPy body, layer by layer."""

    def __init__(self, parameters: RNNParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """Run all layers, and return the last states."""
        p = self.parameters
        mask = self._drawn(call) if p.has_mask else None
        firsts = self._firsts(call, call.auxiliary, "carried_{}")
        layers, output = self._run(call, firsts, mask, keeps=False)
        runs = [run for layer in layers for run in layer]
        call.store(output=self._steps_first(output))
        lasts = ([run.hidden[-1] for run in runs], [run.cells[-1] for run in runs])
        if p.state_outputs or p.carries:
            for name, states in zip(p.state_names(), lasts, strict=False):
                call.store(**{name: np.stack(states)})
        if p.carries:
            for name, state in zip(p.state_names("first_{}"), firsts, strict=False):
                call.store(**{name: state})
        if mask is not None:
            call.store(mask=mask)

    def backward(self, call: BackwardCall) -> None:
        """Run forward again, then all layers from the last one."""
        p = self.parameters
        mask = call.outputs.mask if p.has_mask else None
        firsts = self._firsts(call, call.outputs, "first_{}")
        layers, _ = self._run(call, firsts, mask, keeps=True)
        data, vector = call.inputs.data, np.zeros_like(call.inputs.parameters)
        grads = self._weights(vector, data.shape[-1])
        h_grad, c_grad = self._state_grads(call, firsts)
        steps, batch = self._steps_first(data).shape[:2]
        gradient = np.zeros((steps, batch, p.directions * p.hidden), data.dtype)
        if "output" in call.output_gradients:
            gradient = self._steps_first(call.output_gradients.output)
        for layer in reversed(range(p.num_layers)):
            parts = np.split(gradient, p.directions, 2)
            gradient = np.zeros((), data.dtype)
            for side, run in enumerate(layers[layer]):
                index = layer * p.directions + side
                own, h_grad[index], c_grad[index] = run.backward(
                    parts[side], h_grad[index], c_grad[index], grads[layer, side]
                )
                gradient = gradient + own
            if layer and mask is not None:
                gradient = gradient * _of_layer(mask, layer)
        call.store(data=self._steps_first(gradient), parameters=vector)
        if p.initial_state == "input":
            for name, state in zip(p.state_names(), (h_grad, c_grad), strict=False):
                call.store(**{name: state})

    def _firsts(
        self, call: OperatorCall, carried: ByName[Array], pattern: str
    ) -> tuple[Array, Array]:
        """Return the first states; `carried` has them if they are carried, under these names."""
        p, data = self.parameters, self._steps_first(call.inputs.data)
        count = p.num_layers * p.directions
        zeros = [np.zeros((count, data.shape[1], n), data.dtype) for n in (p.hidden, p.state_size)]
        if p.initial_state == "zeros":
            return zeros[0], zeros[1]
        given = carried if p.carries else call.inputs
        names = p.state_names(pattern if p.carries else "{}")
        found = [given[name] for name in names]
        return found[0], found[1] if p.has_cell else zeros[1]

    def _steps_first(self, array: Array) -> Array:
        """Swap steps and batch if the batch stands first; the same function goes back."""
        return array if self.parameters.layout == "TNC" else np.swapaxes(array, 0, 1)

    def _weights(self, vector: Array, features: int) -> dict[tuple[int, int], dict[str, Array]]:
        """Return views of the packed vector by layer and direction."""
        found: dict[tuple[int, int], dict[str, Array]] = {}
        for weight in packed_weights(self.parameters, features):
            own = found.setdefault((weight.layer, weight.direction), {})
            own[weight.kind] = weight.of(vector)
        return found

    def _drawn(self, call: ForwardCall) -> Array:
        """Return the factors of dropout; 1 in evaluation."""
        p, data = self.parameters, self._steps_first(call.inputs.data)
        steps, batch = data.shape[:2]
        shape = (batch, p.num_layers - 1, steps, p.directions * p.hidden)
        if not call.is_train:
            return np.ones(shape, data.dtype)
        survives = call.random(0).bits(int(np.prod(shape))) <= p.limit
        scale = np.asarray(1 / (1 - p.p), data.dtype)
        return np.where(survives, scale, data.dtype.type(0)).reshape(shape)

    def _run(
        self, call: OperatorCall, firsts: tuple[Array, Array], mask: Array | None, keeps: bool
    ) -> tuple[list[list[Direction]], Array]:
        """Return the directions of each layer after forward, and the output [T, N, D * H]."""
        p, data = self.parameters, self._steps_first(call.inputs.data)
        steps, batch = data.shape[:2]
        weights = self._weights(call.inputs.parameters, data.shape[-1])
        state, cell = firsts
        lengths = np.full(batch, steps)
        if p.use_sequence_length:
            lengths = np.trunc(call.inputs.sequence_length).astype(np.int64).clip(0, steps)
        valid = (np.arange(steps)[:, None] < lengths)[:, :, None]
        if p.use_sequence_length:
            # Zeros times numbers of padding that are not finite would not be zeros.
            data = np.where(valid, data, data.dtype.type(0))
        layers = []
        for layer in range(p.num_layers):
            if layer and mask is not None:
                data = data * _of_layer(mask, layer)
            runs = []
            for side in range(p.directions):
                index = layer * p.directions + side
                order = range(steps) if side == 0 else range(steps - 1, -1, -1)
                first = ([state[index]], [cell[index]])
                runs.append(Direction(Cell(p), weights[layer, side], data, valid, order, *first))
            data = np.concatenate([run.forward(keeps) for run in runs], 2)
            layers.append(runs)
        return layers, data

    def _state_grads(self, call: BackwardCall, firsts: tuple[Array, Array]) -> list[Array]:
        """Return copies of the gradients of the last states; zeros for those that are absent."""
        given = call.output_gradients if self.parameters.state_outputs else ()
        return [
            call.output_gradients[name].copy() if name in given else np.zeros_like(first)
            for name, first in zip(("state", "state_cell"), firsts, strict=True)
        ]


def _of_layer(mask: Array, layer: int) -> Array:
    """Return the factors [T, N, D * H] of what a layer reads."""
    return np.swapaxes(mask[:, layer - 1], 0, 1)
