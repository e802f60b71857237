"""SoftmaxOutput: cases, formula, loss and gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Objective, Reference, Row, rows

Array = npt.NDArray[Any]


def softmax_samples(p: Any, data: Array, label: Array) -> Iterator[tuple[Any, Any, int]]:
    """(where a sample's classes are in data, its label or probabilities, its row)."""
    probabilities = label.shape == data.shape
    rows = label.reshape(data.shape[0], -1)
    if p.multi_output:
        for n in range(data.shape[0]):
            for number, index in enumerate(np.ndindex(*data.shape[2:])):
                place = (n, slice(None), *index)
                yield place, label[place] if probabilities else rows[n, number], n
    elif p.preserve_shape:
        for index in np.ndindex(*data.shape[:-1]):
            number = np.ravel_multi_index(index, data.shape[:-1])
            yield index, label[index] if probabilities else label.flat[number], index[0]
    else:
        for n in range(data.shape[0]):
            yield n, label[n] if probabilities else label.flat[n], n


def target_of(p: Any, label: Any, classes: int) -> tuple[list[float], float]:
    """Return the target probabilities of one sample, and the part outside the classes."""
    if np.ndim(label):
        return list(np.ravel(label)), 0.0
    if p.use_ignore and int(label) == int(p.ignore_label):
        return [0.0] * classes, 0.0
    smooth = 0.0 if p.multi_output else p.smooth_alpha
    target = [smooth / max(classes - 1, 1)] * classes
    if not 0 <= int(label) < classes:
        return target, 1 - smooth
    target[int(label)] = 1 - smooth
    return target, 0.0


def softmax_output(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute softmax by its definition and the loss, one sample at a time."""
    data, label, *weight = inputs
    output, loss = np.empty_like(data), 0.0
    tiny = float(np.finfo(data.dtype).tiny)
    for place, wanted, row in softmax_samples(p, data, label):
        values = [math.exp(value) for value in data[place].ravel()]
        total = math.fsum(values)
        probabilities = [value / total for value in values]
        output[place] = np.reshape(probabilities, data[place].shape)
        target, missing = target_of(p, wanted, len(values))
        terms = [-t * math.log(q) for t, q in zip(target, probabilities, strict=True)]
        loss += math.fsum([*terms, -missing * math.log(tiny)]) * float(
            weight[0][row] if weight else 1
        )
    return [output, np.array([loss], data.dtype)]


def softmax_scale(row: Row, inputs: list[Array]) -> float:
    """Return SoftmaxOutput's factor for the gradient of the loss: grad_scale / normalization."""
    p = row.create().parameters
    data, label, *weight = inputs
    if label.shape == data.shape:
        return float(p.grad_scale)
    rows = label.reshape(data.shape[0], -1)
    present = np.ones(len(rows), bool) if not weight else weight[0] != 0
    divisors = {
        "null": data[0, 0].size if p.multi_output else 1,
        "batch": sum(rows.shape[1] for here in present if here),
        "valid": max(1, int((rows[present].astype(int) != int(p.ignore_label)).sum())),
    }
    return float(p.grad_scale / divisors[p.normalization])


def softmax_gradient(row: Row, inputs: list[Array], out_grad: Array) -> Array:
    """SoftmaxOutput's data gradient by MXNet's rules, sample by sample."""
    p = row.create().parameters
    data, label, *weight = inputs
    result = np.zeros_like(data)
    for place, wanted, number in softmax_samples(p, data, label):
        if p.use_ignore and np.ndim(wanted) == 0 and int(wanted) == int(p.ignore_label):
            continue
        exponential = np.exp(data[place])
        probability = exponential / exponential.sum()
        target, _ = target_of(p, wanted, probability.size)
        slope = probability - np.reshape(target, probability.shape)
        result[place] = slope * float(weight[0][number] if weight else 1)
    result *= softmax_scale(row, inputs)
    return result * out_grad if p.out_grad else result


def softmax_objective(
    row: Row, inputs: list[Array], outputs: list[Array], out_grad: list[Array]
) -> float:
    """The loss as the gradient scales it."""
    return float(outputs[1][0]) * softmax_scale(row, inputs)


ROWS: list[Row] = [
    *rows(
        "SoftmaxOutput",
        ({}, (5, 4)),
        ({"grad_scale": 0.5, "normalization": "batch"}, (4, 3)),
        ({"use_ignore": True, "ignore_label": 1.0, "normalization": "valid"}, (6, 3)),
        ({"multi_output": True}, (2, 3, 4)),
        ({"multi_output": True, "use_ignore": True, "ignore_label": 2.0}, (2, 4, 3, 2)),
        ({"multi_output": True, "normalization": "batch"}, (3, 3, 2)),
        ({"multi_output": True, "normalization": "valid", "ignore_label": 0.0}, (3, 3, 2)),
        ({"preserve_shape": True, "normalization": "batch"}, (2, 3, 4)),
        ({"preserve_shape": True, "use_ignore": True, "ignore_label": 0.0}, (2, 3, 4)),
        ({"smooth_alpha": 0.3}, (4, 5)),
        ({"smooth_alpha": 0.1, "preserve_shape": True}, (2, 3, 4)),
        (
            {
                "smooth_alpha": 0.1,
                "use_ignore": True,
                "ignore_label": 1.0,
                "normalization": "valid",
            },
            (6, 4),
        ),
        ({"normalization": "valid", "ignore_label": 2.0}, (150, 60)),
    ),
    # MXNet 1.9.1 multiplies by the output instead, against its own documentation.
    *rows(
        "SoftmaxOutput",
        ({"out_grad": True, "grad_scale": 2.0}, (3, 4)),
        peers=("PyTorch",),
        differentiable=False,
    ),
    *rows("SoftmaxOutput", ({}, (6, 3)), labels=(0, 3), label_dtype="float32"),
    *rows("SoftmaxOutput", ({"smooth_alpha": 0.2}, (7, 3)), labels=(-2, 6), differentiable=False),
    # With one class, a label per row is still a class and not a probability.
    *rows("SoftmaxOutput", ({}, (5, 1)), labels=(0, 1)),
    *rows(
        "SoftmaxOutput",
        ({}, (4, 3)),
        ({"multi_output": True, "grad_scale": 3.0, "normalization": "batch"}, (2, 3, 2)),
        labels="probabilities",
    ),
    *rows(
        "SoftmaxOutput",
        ({"use_sample_weight": True}, (6, 4)),
        ({"use_sample_weight": True, "normalization": "batch"}, (6, 4)),
        ({"use_sample_weight": True, "normalization": "valid", "ignore_label": 1.0}, (7, 4)),
        ({"use_sample_weight": True, "multi_output": True}, (4, 3, 2)),
        ({"use_sample_weight": True, "smooth_alpha": 0.1}, (6, 4)),
        ({"use_sample_weight": True, "preserve_shape": True, "normalization": "batch"}, (3, 2, 4)),
        peers=(),
    ),
]

REFERENCES: dict[str, Reference] = {
    "SoftmaxOutput": softmax_output,
}

OBJECTIVES: dict[str, Objective] = {"SoftmaxOutput": softmax_objective}
