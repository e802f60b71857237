"""SequenceMask, SequenceLast and SequenceReverse: cases and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from families.indexing import between
from operator_row import Reference, Row

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


def sequences(p: Any, inputs: list[Array]) -> list[tuple[Array, int]]:
    """Return a copy [steps, ...] and the length of each sequence."""
    data = inputs[0]
    batch = np.moveaxis(data, 1 - p.axis, 0).copy()
    steps = data.shape[p.axis]
    lengths = inputs[1] if len(inputs) > 1 else [steps] * len(batch)
    return [(one, min(int(length), steps)) for one, length in zip(batch, lengths, strict=True)]


def mask(p: Any, inputs: list[Array]) -> list[Array]:
    """Overwrite what comes after the end."""
    found = sequences(p, inputs)
    for one, length in found:
        one[length:] = p.value
    return [np.stack([one for one, _ in found], 1 - p.axis)]


def hold(p: Any, inputs: list[Array]) -> list[Array]:
    """Repeat the last step of each sequence; zeros without one."""
    found = sequences(p, inputs)
    for one, length in found:
        one[length:] = one[length - 1] if length else 0
    return [np.stack([one for one, _ in found], 1 - p.axis)]


def last(p: Any, inputs: list[Array]) -> list[Array]:
    """Select one step of each sequence."""
    return [np.stack([one[max(length, 1) - 1] for one, length in sequences(p, inputs)])]


def turned(p: Any, inputs: list[Array]) -> list[Array]:
    """Reverse a slice of each sequence."""
    found = sequences(p, inputs)
    for one, length in found:
        one[:length] = one[:length][::-1].copy()
    return [np.stack([one for one, _ in found], 1 - p.axis)]


def tail(p: Any, inputs: list[Array]) -> list[Array]:
    """Cut each sequence off, with zeros in front, and keep the end."""
    data, lengths = inputs
    padded = np.concatenate([np.zeros((p.count, *data.shape[1:]), data.dtype), data])
    ends = p.count + np.minimum(p.before + lengths, len(data)).astype(int)
    last = [padded[end - p.count : end, record] for record, end in enumerate(ends)]
    return [np.stack(last, 1)]


USED: dict[str, object] = {"use_sequence_length": True}


def sized(
    operator: str, parameters: dict[str, object], shape: Shape, low: int = 1, **more: Any
) -> Row:
    """Return a row with lengths from `low` to the number of steps."""
    axis = parameters.get("axis", 0)
    assert isinstance(axis, int)
    values = {"sequence_length": between(low, shape[axis] + 1)}
    return Row(operator, parameters, shape, values=values, **more)


ROWS: list[Row] = [
    sized("SequenceMask", {}, (4, 3, 2)),
    sized("SequenceMask", {**USED, "value": -1.0}, (4, 3, 2), 0),
    sized("SequenceMask", USED, (5, 4)),
    sized("SequenceMask", {**USED, "axis": 1, "value": 0.5}, (3, 5, 2, 2), 0),
    sized("SequenceMask", USED, (40, 30, 35)),
    sized("_sequence_hold", USED, (4, 3, 2), 0, peers=("PyTorch",)),
    sized("_sequence_hold", {**USED, "axis": 1}, (3, 5, 2, 2), peers=("PyTorch",)),
    sized("_sequence_hold", USED, (5, 4), peers=("PyTorch",)),
    sized("_sequence_hold", {**USED, "axis": 1}, (1, 2, 1), peers=("PyTorch",)),
    sized("_sequence_hold", USED, (40, 30, 35), peers=("PyTorch",)),
    sized("_sequence_tail", {"count": 3}, (5, 4, 2), 0, peers=("PyTorch",)),
    sized("_sequence_tail", {"count": 2, "before": 2}, (5, 4), 0, peers=("PyTorch",)),
    sized("_sequence_tail", {"count": 1}, (1, 3, 2, 2), peers=("PyTorch",)),
    sized("_sequence_tail", {"count": 2, "before": 1}, (3, 4, 5), peers=("PyTorch",)),
    sized("_sequence_tail", {"count": 20, "before": 20}, (40, 30, 35), 0, peers=("PyTorch",)),
    sized("SequenceLast", {}, (4, 3, 2)),
    sized("SequenceLast", USED, (4, 3, 2)),
    sized("SequenceLast", USED, (5, 4)),
    sized("SequenceLast", {**USED, "axis": 1}, (3, 5, 2, 2)),
    sized("SequenceLast", {**USED, "axis": 1}, (60, 7, 35)),
    sized("SequenceLast", USED, (4, 3), 0, peers=("PyTorch",)),
    sized("SequenceReverse", {}, (4, 3, 2)),
    sized("SequenceReverse", USED, (4, 3, 2), 0),
    sized("SequenceReverse", USED, (5, 4)),
    sized("SequenceReverse", USED, (40, 30, 35)),
    # MXNet 1.9.1 reverses along axis 0 only.
    sized("SequenceReverse", {**USED, "axis": 1}, (3, 5, 2), peers=("PyTorch",)),
    sized("SequenceReverse", {"axis": 1}, (3, 4), peers=("PyTorch",)),
]

REFERENCES: dict[str, Reference] = {
    "SequenceMask": mask,
    "_sequence_hold": hold,
    "_sequence_tail": tail,
    "SequenceLast": last,
    "SequenceReverse": turned,
}
