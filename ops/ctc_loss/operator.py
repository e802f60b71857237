"""CTCLoss: connectionist temporal classification of unaligned label sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
)
from mxrun.operator.register import register
from mxrun.operator.shape import unify
from mxrun.ops.loss import class_indices

T = TypeVar("T")
Array = npt.NDArray[Any]

# Labels of padding.
_PADDING = {"first": 0, "last": -1}


class CTCLossParameters(Parameters):
    """Parameters of CTCLoss (MXNet's)."""

    use_data_lengths: bool = Field(
        default=False,
        description="Adds the argument data_lengths; otherwise all sequences have full length.",
    )
    use_label_lengths: bool = Field(
        default=False,
        description="Adds the argument label_lengths; otherwise padding ends the labels: 0 with "
        "blank_label first, else -1.",
    )
    blank_label: Literal["first", "last"] = Field(
        default="first", description="Class of the blank: 0, or the last one."
    )
    layout: Literal["TNC", "NTC"] = Field(
        default="TNC",
        description="Order of data's axes: T steps, N batch; MXNet knows TNC alone.",
        examples=["NTC", "TNC"],
    )

    @property
    def padding(self) -> int:
        """Label of padding."""
        return _PADDING[self.blank_label]

    def blank(self, classes: int) -> int:
        """Return the class of the blank."""
        return 0 if self.blank_label == "first" else classes - 1


@register("CTCLoss", "ctc_loss")
class CTCLossProperty(OperatorProperty[CTCLossParameters]):
    """output[n] = -log(probability of label[n] by the softmax of data[:, n]), over all alignments.

    data [T, N, C] (layout NTC: [N, T, C]), label [N, L], data_lengths and label_lengths [N] if
    used, output [N]. An alignment names one class at each step; without repetitions and then
    without blanks it is the label. A label that fits into no alignment has loss 0 and gradient 0,
    as in MXNet, and a label outside the classes counts as the nearest class. A label of probability
    0, which data of -inf give, has an infinite loss; no alignment has a share of it, so that its
    gradient is the softmax, as in MXNet. The hidden output gradient is that of data for an output's
    gradient of 1, by which backward multiplies it. Steps beyond the length have a zero gradient. A
    network adds MakeLoss to train with it.
    """

    type_string = "CTCLoss"
    family = OperatorFamily.LOSS
    parameter_type = CTCLossParameters
    reads_only_data = True
    is_floating = True

    def list_arguments(self) -> tuple[str, ...]:
        """data and label; data_lengths and label_lengths if used."""
        p = self.parameters
        lengths = ("data_lengths",) * p.use_data_lengths + ("label_lengths",) * p.use_label_lengths
        return ("data", "label", *lengths)

    def list_outputs(self) -> tuple[str, ...]:
        """The loss, and the hidden gradient."""
        return ("output", "gradient")

    @property
    def num_visible_outputs(self) -> int:
        """1: the gradient is hidden."""
        return 1

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the batch of all tensors, and data with its gradient."""
        data, label, *lengths = inputs
        data = unify("data", data, (None, None, None), "steps, batch and classes")
        data = unify("gradient", outputs[1], data, "data")
        first = self.parameters.layout == "NTC"
        label = unify("label", label, (data[1 - first], None), "data's batch and labels")
        batch = label[0]
        for name, shape in zip(
            (*self.list_arguments()[2:], "output"), (*lengths, outputs[0]), strict=True
        ):
            (batch,) = unify(name, shape, (batch,), "data's batch")
        data = (batch, data[1], data[2]) if first else (data[0], batch, data[2])
        label = (batch, label[1])
        each = [(batch,)] * len(lengths)
        return PartialInference([data, label, *each], [(batch,), data], [])

    def example_shapes(self, sample: Shape) -> PartialShapes:
        """Return data with as many labels as steps."""
        if len(sample) != 3:
            return []
        batch, steps = sample[:2] if self.parameters.layout == "NTC" else sample[1::-1]
        return [sample, (batch, steps), *[None] * (len(self.list_arguments()) - 2)]

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Data and outputs share one dtype; labels and lengths default to int32."""
        (data, *_), types = super().infer_type([inputs[0], *[None] * (len(inputs) - 1)], outputs)
        return [data, *(dtype or "int32" for dtype in inputs[1:])], types

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """Only data has a computed gradient."""
        others = len(self.list_arguments()) - 1
        return (GradientKind.COMPUTES, *(GradientKind.ZERO,) * others)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and the hidden gradient."""
        return [out_grad[0], out_data[1]]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair the hidden gradient with data's."""
        return [(out_data[1], in_grad[0])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Five per element for the softmax, and some ten for each step and place in a label."""
        data, (_, labels) = in_shapes[:2]
        return math.prod(data[:2]) * (5 * data[2] + 10 * (2 * labels + 1))

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return CTCLoss(self.parameters)


class CTCLoss(Operator):
    """NumPy body: one sample at a time, with the variables' logarithms in float64."""

    def __init__(self, parameters: CTCLossParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output and gradient."""
        data = self._steps_first(call.inputs.data.astype(np.float64))
        losses, gradient = np.zeros(data.shape[1]), np.zeros_like(data)
        for n in range(data.shape[1]):
            rows, label = data[: self._steps(call, n), n], self._label(call, n)
            repeated = np.count_nonzero(label[1:] == label[:-1])
            if len(rows) and len(label) + repeated <= len(rows):
                losses[n], gradient[: len(rows), n] = self._one(rows, label)
        call.store(output=losses, gradient=self._steps_first(gradient))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad times the hidden gradient."""
        scale = call.output_gradients.output[:, None]
        gradient = self._steps_first(call.outputs.gradient) * scale
        call.store(data=self._steps_first(gradient))

    def _steps_first(self, data: Array) -> Array:
        """Return a view [T, N, C] of data, or a view of data's layout of [T, N, C]."""
        return data.swapaxes(0, 1) if self.parameters.layout == "NTC" else data

    def _steps(self, call: ForwardCall, n: int) -> int:
        steps: int = self._steps_first(call.inputs.data).shape[0]
        if not self.parameters.use_data_lengths:
            return steps
        return int(np.clip(class_indices(call.inputs.data_lengths[n]), 0, steps))

    def _label(self, call: ForwardCall, n: int) -> Array:
        label = class_indices(call.inputs.label[n])
        if self.parameters.use_label_lengths:
            count = int(np.clip(class_indices(call.inputs.label_lengths[n]), 0, len(label)))
        else:
            (ends,) = np.nonzero(label == self.parameters.padding)
            count = int(ends[0]) if len(ends) else len(label)
        classes: Array = label[:count].clip(0, call.inputs.data.shape[2] - 1)
        return classes

    def _one(self, rows: Array, label: Array) -> tuple[float, Array]:
        """Return the loss and the gradient of a sample's steps."""
        classes = rows.shape[1]
        blank = self.parameters.blank(classes)
        # Blanks between, before and behind the labels.
        symbols = np.full(2 * len(label) + 1, blank)
        symbols[1::2] = label
        logarithms = rows - rows.max(axis=1, keepdims=True)
        logarithms -= np.log(np.exp(logarithms).sum(axis=1, keepdims=True))
        seen = logarithms[:, symbols]
        skips = (symbols[2:] != blank) & (symbols[2:] != symbols[:-2])
        before = _scan(seen, skips)
        after = _scan(seen[::-1, ::-1], skips[::-1])[::-1, ::-1]
        total = np.logaddexp.reduce(before[-1, -2:])
        gradient = np.exp(logarithms)
        if np.isneginf(total):
            return math.inf, gradient
        # A class of probability 0 has no share; both variables count it, and it is taken out once.
        with np.errstate(invalid="ignore"):
            joint = before + after - seen - total
        shares = np.exp(np.where(np.isneginf(seen), seen, joint))
        for place, symbol in enumerate(symbols):
            gradient[:, symbol] -= shares[:, place]
        return -total, gradient


def _scan(seen: Array, allowed: Array) -> Array:
    """Return logarithms of the sums over the alignments that reach each place at each step.

    allowed: whether an alignment may go from the place two before to each one from the third on.
    """
    skips = np.concatenate([np.zeros(2, np.bool_), allowed])[: seen.shape[1]]
    result = np.full(seen.shape, -np.inf)
    result[0, :2] = seen[0, :2]
    for t in range(1, len(seen)):
        stay = result[t - 1]
        move = np.concatenate([[-np.inf], stay[:-1]])
        skip = np.where(skips, np.concatenate([[-np.inf] * 2, stay])[: len(stay)], -np.inf)
        result[t] = np.logaddexp(np.logaddexp(stay, move), skip) + seen[t]
    return result
