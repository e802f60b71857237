"""RNN: cases and formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from families.dropout import word
from families.indexing import between
from operator_harness import RANDOM, STREAM
from operator_row import Objective, Reference, Row

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}


def sigmoid(x: float) -> float:
    """Return the logistic function, without overflow."""
    return 0.5 * (1 + math.tanh(0.5 * x))


def step(p: Any, x: Array, y: Array, h: list[float], c: list[float], k: int) -> tuple[Any, Any]:
    """Return element k of the output and of the cell, in Python's numbers."""
    size = p.state_size
    xs, ys = x[k::size].tolist(), y[k::size].tolist()
    sums = [a + b for a, b in zip(xs, ys, strict=True)]
    if p.mode == "rnn_relu":
        return max(sums[0], 0.0), 0.0
    if p.mode == "rnn_tanh":
        return math.tanh(sums[0]), 0.0
    if p.mode == "gru":
        reset, update = sigmoid(sums[0]), sigmoid(sums[1])
        new = math.tanh(xs[2] + reset * ys[2])
        return new + update * (h[k] - new), 0.0
    cell = sigmoid(sums[1]) * c[k] + sigmoid(sums[0]) * math.tanh(sums[2])
    if p.lstm_state_clip_min is not None:
        cell = min(max(cell, p.lstm_state_clip_min), p.lstm_state_clip_max)
    return sigmoid(sums[3]) * math.tanh(cell), cell


class Packed:
    """Weights taken one after the other from the packed vector."""

    def __init__(self, p: Any, features: int, vector: Array) -> None:
        directions = 2 if p.bidirectional else 1
        hidden, rows = p.projection_size or p.state_size, GATES[p.mode] * p.state_size
        self.weights: list[list[Array]] = []
        at = 0
        for layer in range(p.num_layers):
            width = features if layer == 0 else directions * hidden
            for _ in range(directions):
                own = []
                shapes = [(rows, width), (rows, hidden)]
                shapes += [(hidden, p.state_size)] if p.projection_size else []
                for shape in shapes:
                    own.append(vector[at : at + math.prod(shape)].reshape(shape))
                    at += math.prod(shape)
                self.weights.append(own)
        self.biases = vector[at:].reshape(p.num_layers * directions, 2, rows)
        assert at + self.biases.size == len(vector)


def rnn(p: Any, inputs: list[Array]) -> list[Array]:
    """Run one sequence at a time, over its own steps only."""
    return run(p, inputs, is_train=True)


def evaluated(p: Any, inputs: list[Array]) -> list[Array]:
    """Run without dropout."""
    return run(p, inputs, is_train=False)


def run(p: Any, inputs: list[Array], is_train: bool) -> list[Array]:
    """Return output, states and mask."""
    data, vector, *rest = inputs
    data = data if p.layout == "TNC" else data.swapaxes(0, 1)
    steps, batch, features = data.shape
    directions, hidden = 2 if p.bidirectional else 1, p.projection_size or p.state_size
    place = len(rest) - 1 if p.initial_state == "input" else 0
    lengths = rest.pop(place).tolist() if p.use_sequence_length else [steps] * batch
    count = p.num_layers * directions
    states = np.zeros((count, batch, hidden), data.dtype)
    cells = np.zeros((count, batch, p.state_size), data.dtype)
    if p.initial_state != "zeros":
        states = rest[0].copy()
        cells = rest[1].copy() if p.mode == "lstm" else cells
    packed = Packed(p, features, vector)
    output = np.zeros((steps, batch, directions * hidden), data.dtype)
    mask = np.ones((batch, p.num_layers - 1, steps, directions * hidden), data.dtype)
    if p.p and is_train:
        words = [word(RANDOM[0] ^ STREAM, RANDOM[1], i) for i in range(mask.size)]
        limit = (1 - p.p) * 2.0**32
        flat = [1 / (1 - p.p) if each < limit else 0.0 for each in words]
        mask = np.array(flat, data.dtype).reshape(mask.shape)
    for n, length in enumerate(lengths):
        read = data[: int(length), n]
        for layer in range(p.num_layers):
            if layer:
                read = read * mask[n, layer - 1, : int(length)]
            sides = []
            for side in range(directions):
                index = layer * directions + side
                rows = read[::-1] if side else read
                found = sequence(p, packed, index, rows, states[index, n], cells[index, n])
                sides.append(found[::-1] if side else found)
            read = np.concatenate(sides, 1)
        output[: int(length), n] = read
    results = [output if p.layout == "TNC" else output.swapaxes(0, 1)]
    if p.state_outputs or p.initial_state == "carry":
        results += [states, cells] if p.mode == "lstm" else [states]
    if p.initial_state == "carry":
        results += rest
    return [*results, mask] if p.p and p.num_layers > 1 else results


def sequence(p: Any, packed: Packed, index: int, rows: Array, h: Array, c: Array) -> Array:
    """Return the outputs of one direction of a layer; h and c become its last states."""
    weights, biases = packed.weights[index], packed.biases[index]
    found = np.zeros((len(rows), len(h)), rows.dtype)
    for t, row in enumerate(rows):
        x, y = weights[0] @ row + biases[0], weights[1] @ h + biases[1]
        before = h.tolist(), c.tolist()
        pairs = [step(p, x, y, *before, k) for k in range(p.state_size)]
        inner = np.array([pair[0] for pair in pairs], rows.dtype)
        found[t] = h[:] = weights[2] @ inner if p.projection_size else inner
        c[:] = [pair[1] for pair in pairs]
    return found


def of_visible(row: Row, inputs: list[Array], outputs: list[Array], out_grad: list[Array]) -> float:
    """Return the objective of all outputs but the mask."""
    count = row.create().num_visible_outputs
    return float(sum((g * y).sum() for g, y in zip(out_grad[:count], outputs[:count], strict=True)))


def small(scale: float) -> Any:
    """Return normally distributed values of a scale."""

    def values(random: np.random.Generator, shape: Shape, dtype: str) -> Array:
        return (scale * random.standard_normal(shape)).astype(dtype)

    return values


def row(mode: str, shape: Shape, size: int = 3, low: int = 1, **more: Any) -> Row:
    """Return a row; `low` is the least length of a sequence."""
    settings = {name: more.pop(name) for name in ("peers", "is_train") if name in more}
    parameters = {"state_size": size, "mode": mode, "num_layers": 1, **more}
    steps = shape[1] if more.get("layout") == "NTC" else shape[0]
    values = {
        "sequence_length": between(low, steps + 1),
        "parameters": small(0.5 if size < 10 else 0.15),
    }
    return Row("RNN", parameters, shape, values=values, **settings)


# MXNet 1.9.1 has sequence lengths, projections and clipping on GPUs only.
TORCH, NONE = {"peers": ("PyTorch",)}, {"peers": ()}
MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
LENGTHS: dict[str, Any] = {"use_sequence_length": True}
CLIP: dict[str, Any] = {"lstm_state_clip_min": -0.4, "lstm_state_clip_max": 0.5}

ROWS: list[Row] = [
    *(row(mode, (3, 2, 4)) for mode in MODES),
    *(row(mode, (4, 3, 2), num_layers=2, state_outputs=True) for mode in MODES),
    *(row(mode, (3, 2, 5), bidirectional=True, state_outputs=True) for mode in MODES),
    *(row(mode, (5, 4, 3), **LENGTHS, state_outputs=True, **TORCH) for mode in MODES),
    *(
        row(
            *(mode, (4, 5, 6), 5, 0),
            num_layers=2,
            bidirectional=True,
            layout="NTC",
            state_outputs=True,
            **{"initial_state": "zeros", **LENGTHS, **NONE},
        )
        for mode in MODES
    ),
    *(row(mode, (4, 5, 6), 35, num_layers=2, bidirectional=True) for mode in MODES),
    *(row(mode, (3, 4, 2), layout="NTC", initial_state="zeros", **TORCH) for mode in MODES),
    row("lstm", (4, 3, 5), 4, projection_size=2, state_outputs=True, **TORCH),
    row(
        *("lstm", (4, 3, 5), 4),
        **{"projection_size": 3, "num_layers": 2, "bidirectional": True, **LENGTHS, **TORCH},
    ),
    row("lstm", (5, 3, 4), state_outputs=True, **CLIP, **NONE),
    row("lstm", (5, 3, 4), num_layers=2, lstm_state_clip_nan=True, **CLIP, **NONE),
    *(row(mode, (4, 3, 2), num_layers=3, p=0.4, **NONE) for mode in ("lstm", "gru")),
    row(
        *("lstm", (3, 4, 2), 20),
        **{"num_layers": 2, "p": 0.25, "bidirectional": True, "layout": "NTC", **NONE},
    ),
    row("lstm", (4, 3, 2), num_layers=2, p=0.4, is_train=False),
    row("gru", (1, 1, 1), 1),
    row("lstm", (3, 4, 2), layout="NTC", initial_state="carry", **TORCH),
    row("gru", (5, 4, 3), num_layers=2, initial_state="carry", state_outputs=True, **TORCH),
    row("lstm", (4, 3, 2), num_layers=2, p=0.3, initial_state="carry", **LENGTHS, **NONE),
]


def unpacked(p: Any, inputs: list[Array]) -> list[Array]:
    """Take one weight after the other."""
    packed = Packed(p, p.features, inputs[0])
    weights = [weight for own in packed.weights for weight in own]
    return [*weights, *(bias for own in packed.biases for bias in own)]


ROWS += [
    Row(
        "_unpack_rnn",
        {"state_size": 3, "mode": mode, "num_layers": 1, "features": 2, **more},
        (size,),
        peers=(),
        no_peer="Only mxrun has it, for layers that are not fused.",
    )
    for mode, size, more in (
        ("rnn_tanh", 21, {}),
        ("rnn_relu", 45, {"num_layers": 2}),
        ("gru", 126, {"bidirectional": True}),
        ("lstm", 84, {}),
        ("lstm", 78, {"projection_size": 2}),
    )
]

REFERENCES: dict[str, Reference] = {"RNN": rnn, "_unpack_rnn": unpacked}
EVALUATED: dict[str, Reference] = {"RNN": evaluated}
OBJECTIVES: dict[str, Objective] = {"RNN": of_visible}
