"""Bases of the losses, whose sum over the rows of a batch training minimises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import FLOAT32
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, PartialShape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.kernel import BackwardRequest, Kernel
from mxrun.operator.native_kernel import KernelPart, native_kernel
from mxrun.operator.operator import OperatorCall
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
)
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify

Array = npt.NDArray[Any]

# Divisors of a gradient: 1, the number of samples, or the number of those that count.
Normalization = Literal["null", "batch", "valid"]
NORMALIZATIONS: tuple[str, ...] = get_args(Normalization)


class LossParameters(Parameters):
    """Parameters of a loss.

    Each loss declares use_sample_weight as a field, with a description of its own.
    """

    if TYPE_CHECKING:
        use_sample_weight: bool


P = TypeVar("P", bound=LossParameters)
T = TypeVar("T")


class LossProperty(OperatorProperty[P]):
    """Loss of rows: of data [N, ...], of label if there is one, and of weights if requested.

    The arguments are data, label unless `label_type` is None, and sample_weight [N] with
    use_sample_weight. Only data has a computed gradient.
    """

    family = OperatorFamily.LOSS
    is_floating = True
    label_arguments: ClassVar[tuple[str, ...]] = ("label", "sample_weight")
    # Default dtype of label; None for a loss without labels.
    label_type: ClassVar[str | None] = FLOAT32
    # Minimum rank of data, and the rule that requires it.
    minimum_rank: ClassVar[tuple[int, str]] = (1, "rows of a batch")

    def list_arguments(self) -> tuple[str, ...]:
        """data, label if there is one, and with use_sample_weight sample_weight."""
        label = () if self.label_type is None else ("label",)
        weight = ("sample_weight",) if self.parameters.use_sample_weight else ()
        return ("data", *label, *weight)

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Data and outputs share one dtype; labels and weights have defaults of their own."""
        data, *others = inputs
        completed, types = super().infer_type([data, *[None] * len(others)], outputs)
        defaults = {"label": self.label_type, "sample_weight": FLOAT32}
        named = zip(self.list_arguments()[1:], others, strict=True)
        return [completed[0], *(dtype or defaults[name] for name, dtype in named)], types

    def infer_rows(self, data: PartialShape, others: PartialShapes) -> PartialShapes:
        """Return the shapes of data and `others`, the arguments after it, with the same rows.

        Raises ShapeContradiction if these differ, or if data has too few axes.
        """
        labels = 0 if self.label_type is None else 1
        label = others[0] if labels else None
        minimum, rule = self.minimum_rank
        if data is not None and len(data) < minimum:
            raise ShapeContradiction("data", show(data), f"rank {minimum} or more", rule)
        rows, rule = (label[:1], "label's rows") if label else ((None,), "one per row")
        weights = [unify("sample_weight", shape, rows, rule) for shape in others[labels:]]
        if data is not None:
            for count, *_ in weights:
                rows = (count, *(None,) * (len(data) - 1))
                data = unify("data", data, rows, "sample_weight's rows")
            data, label = self.infer_label(data, label)
            weights = [unify("sample_weight", shape, data[:1], "data's rows") for shape in weights]
        return [data, *[label][:labels], *weights]

    def infer_label(self, data: Dimensions, label: PartialShape) -> tuple[Dimensions, PartialShape]:
        """Complete the shapes of data and label from each other, if there is a label."""
        return data, label

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """data has a computed gradient; labels and weights have a zero gradient."""
        return (GradientKind.COMPUTES, *(GradientKind.ZERO,) * (len(self.list_arguments()) - 1))


class HiddenLossProperty(LossProperty[P]):
    """Loss whose visible output has data's shape; the loss [1] is a hidden output."""

    def list_outputs(self) -> tuple[str, ...]:
        """output and the hidden loss."""
        return ("output", "loss")

    @property
    def num_visible_outputs(self) -> int:
        """1: loss is hidden."""
        return 1

    @property
    def loss_output(self) -> int:
        """Index of the second output."""
        return 1

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output, and the rows of all arguments."""
        data = unify("data", inputs[0], outputs[0], "output")
        loss = unify("loss", outputs[1], (1,), "one number")
        arguments = self.infer_rows(data, inputs[1:])
        return PartialInference(arguments, [arguments[0], loss], [])

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair data with the output."""
        return [(in_data[0], out_data[0])]


class LabelledLossProperty(HiddenLossProperty[P]):
    """Loss of a prediction, which is the output; backward computes data's gradient from it."""

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return label, the weights if any, and output."""
        return [*in_data[1:], out_data[0]]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair the output with data's gradient."""
        return [(out_data[0], in_grad[0])]


def row_weights(call: OperatorCall, rows: int, dtype: npt.DTypeLike) -> Array:
    """Return sample_weight, or ones of `dtype` without it."""
    inputs = call.inputs
    return inputs.sample_weight if "sample_weight" in inputs else np.ones(rows, dtype)


def weighted(terms: Array, weights: Array) -> Array:
    """Return terms * weights, and 0 where a weight is 0, even if the term is not finite."""
    with np.errstate(invalid="ignore"):
        product = terms * weights
    result: Array = np.where(weights == 0, product.dtype.type(0), product)
    return result


def probabilities(data: Array) -> Array:
    """Return the softmax of data along axis 1."""
    # A difference of -inf correctly gives probability 0; inf - inf gives NaN.
    with np.errstate(over="ignore", invalid="ignore"):
        exponential = np.exp(data - data.max(axis=1, keepdims=True, initial=-np.inf))
    result: Array = exponential / exponential.sum(axis=1, keepdims=True)
    return result


def class_indices(label: Array) -> Array:
    """Return labels as int32; what int32 lacks becomes an index that no class has."""
    if label.dtype.kind in "iu" and not np.can_cast(label.dtype, np.int32):
        limits = np.iinfo(np.int32)
        label = label.clip(limits.min, limits.max)
    with np.errstate(invalid="ignore"):
        return label.astype(np.int32)


def gradient_kernel(part: KernelPart, request: BackwardRequest, flops: int) -> Kernel:
    """Return the kernel of a loop that computes data's gradient from all given tensors, plain."""
    read = (*request.out_grad, *request.in_data, *request.out_data, *request.forward.extra_outputs)
    gradient, *others = request.in_grad
    return native_kernel(
        "jit",
        [part],
        tuple(None if spec is None else spec.with_layout(PLAIN) for spec in read),
        (gradient.with_layout(PLAIN), *(None for _ in others)),
        request.requests,
        request.device,
        flops=flops,
    )
