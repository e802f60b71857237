"""CTCLoss: cases, and the formula as a sum over all alignments."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from families.indexing import between
from operator_row import Objective, Reference, Row, Values

Array = npt.NDArray[Any]


def label_of(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    """Return the label that an alignment names: without repetitions, then without blanks."""
    return tuple(symbol for symbol, _ in itertools.groupby(path) if symbol != blank)


def ctc_loss(p: Any, inputs: list[Array]) -> list[Array]:
    """Enumerate all alignments."""
    data, label, *lengths = inputs
    if p.layout == "NTC":
        data = data.swapaxes(0, 1)
    losses, gradient = np.zeros(data.shape[1]), np.zeros(data.shape)
    padding, blank = (0, 0) if p.blank_label == "first" else (-1, data.shape[2] - 1)
    for n in range(data.shape[1]):
        steps, given = data.shape[0], [int(one[n]) for one in lengths]
        if p.use_data_lengths:
            steps = given.pop(0)
        own = [int(symbol) for symbol in label[n]]
        count = given[0] if p.use_label_lengths else [*own, padding].index(padding)
        rows = data[:steps, n].astype(np.float64)
        chances = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
        total, shares = 0.0, np.zeros_like(chances)
        for path in itertools.product(range(data.shape[2]), repeat=steps):
            if label_of(path, blank) == tuple(own[:count]):
                chance = math.prod(chances[t, symbol] for t, symbol in enumerate(path))
                total += chance
                shares[range(steps), path] += chance
        if total:
            losses[n] = -math.log(total)
            gradient[:steps, n] = chances - shares / total
    if p.layout == "NTC":
        gradient = gradient.swapaxes(0, 1)
    return [losses.astype(data.dtype), gradient.astype(data.dtype)]


def of_the_loss(
    row: Row, inputs: list[Array], outputs: list[Array], out_grad: list[Array]
) -> float:
    """Return the losses times their gradients; the hidden output passes none."""
    del row, inputs
    return float((outputs[0].astype(np.float64) * out_grad[0]).sum())


def as_floats(values: Values) -> Values:
    """Return the same values as float32."""

    def drawn(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        return values(random, shape, dtype).astype("float32")

    return drawn


def row(
    shape: tuple[int, int, int], labels: int, parameters: dict[str, object], **more: Any
) -> Row:
    """Return a row whose labels are classes other than the blank, and padding where it is."""
    first = parameters.get("blank_label", "first") == "first"
    batch, steps = shape[:2] if parameters.get("layout") == "NTC" else shape[1::-1]
    low, high = (0, shape[2]) if first else (-1, shape[2] - 1)
    if parameters.get("use_label_lengths"):
        low += 1
    values: dict[str, Values] = {
        "label": between(low, high),
        "data_lengths": between(1, steps + 1),
        "label_lengths": between(0, labels + 1),
    }
    # MXNet reads lengths of data's type only.
    if "MXNet" in more.get("peers", ("MXNet",)):
        values |= {name: as_floats(values[name]) for name in ("data_lengths", "label_lengths")}
    sizes = {"label": (batch, labels)}
    return Row("CTCLoss", parameters, shape, shapes=sizes, values=values, **more)


LENGTHS: dict[str, object] = {"use_data_lengths": True, "use_label_lengths": True}
ROWS: list[Row] = [
    row((4, 3, 3), 2, {}),
    row((5, 4, 3), 3, {"blank_label": "last"}),
    row((6, 5, 3), 3, {"use_label_lengths": True}),
    # MXNet leaves gradients unwritten after a sequence's end and where a label fits no alignment.
    row((5, 6, 3), 2, {"use_data_lengths": True}, peers=("PyTorch",)),
    row((5, 6, 3), 3, LENGTHS, peers=("PyTorch",)),
    row((4, 20, 4), 3, {**LENGTHS, "blank_label": "last"}, peers=("PyTorch",)),
    row((3, 5, 3), 2, {"layout": "NTC"}, peers=("PyTorch",)),
    row((7, 4, 4), 2, {**LENGTHS, "layout": "NTC"}, peers=("PyTorch",)),
    row((3, 2, 20), 2, {}),
]

REFERENCES: dict[str, Reference] = {"CTCLoss": ctc_loss}
OBJECTIVES: dict[str, Objective] = {"CTCLoss": of_the_loss}
