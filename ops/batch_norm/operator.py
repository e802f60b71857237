"""BatchNorm: normalises every channel to mean 0 and variance 1, then scales and shifts it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Float32, NotNegative, Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, unscaled_axis
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    Precision,
    StateUpdate,
)
from mxrun.operator.register import register
from mxrun.operator.shape import ShapeContradiction, show, unify
from mxrun.ops.sums import sum_over

T = TypeVar("T")
Array = npt.NDArray[Any]

# Indices of arguments, auxiliary states and outputs.
DATA, GAMMA, BETA, MOVING_MEAN, MOVING_VAR = range(5)
OUTPUT, MEAN, VAR = range(3)


class BatchNormParameters(Parameters):
    """Parameters of BatchNorm (MXNet's names and defaults)."""

    eps: NotNegative = Field(default=1e-3, description="Added to the variance.")
    momentum: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.9, description="Weight of the previous moving statistics in a training step."
    )
    fix_gamma: bool = Field(
        default=True,
        description="Read gamma as 1 with zero gradient; its stored values do not change.",
    )
    use_global_stats: bool = Field(
        default=False,
        description="Normalize by the moving statistics in training too, without updating them.",
    )
    output_mean_var: bool = Field(
        default=False, description="Make the outputs mean and var visible to the network."
    )
    axis: int = Field(default=1, description="Axis of the channels; negative from the end.")
    cudnn_off: bool = Field(
        default=False, description="Accepted for MXNet's models; has no effect."
    )
    min_calib_range: Float32 | None = Field(
        default=None,
        description="Accepted for MXNet's quantized models; has no effect; default: none.",
    )
    max_calib_range: Float32 | None = Field(
        default=None,
        description="Accepted for MXNet's quantized models; has no effect; default: none.",
    )


@register(
    "BatchNorm",
    foreign={
        "BatchNorm": "batchnorm1d batchnorm2d batchnorm3d batchnormalization batchnormv1 "
        "syncbatchnorm",
    },
)
class BatchNormProperty(OperatorProperty[BatchNormParameters]):
    """output = gamma * (data - mean) / sqrt(var + eps) + beta, channel by channel.

    data and output of any shape with C channels along `axis`; gamma, beta, moving_mean, moving_var,
    mean and var [C]. In training, mean and var are those of the batch; the variance is biased
    (divided by the number of elements). The moving statistics are updated as moving = momentum *
    moving + (1 - momentum) * mean or var. In evaluation and with use_global_stats, mean and var are
    copies of the moving statistics. (MXNet 1.9.1's output `var` is the inverse deviation 1 /
    sqrt(var + eps).)

    Backward reads the output's gradient, data, gamma unless fixed, mean and var. As in MXNet, the
    outputs mean and var pass no gradient back. With n elements per channel, x = (data - mean) /
    sqrt(var + eps) and g the output's gradient: beta's gradient is sum(g), gamma's is sum(g x), and
    data's is gamma / sqrt(var + eps) * (g - sum(g) / n - x sum(g x) / n), with use_global_stats
    gamma / sqrt(var + eps) * g.
    """

    type_string = "BatchNorm"
    family = OperatorFamily.NORMALISATION
    parameter_type = BatchNormParameters
    precision = Precision.INHERIT

    def list_arguments(self) -> tuple[str, ...]:
        """data, the scale gamma and the shift beta, which have one number per channel."""
        return ("data", "gamma", "beta")

    def list_outputs(self) -> tuple[str, ...]:
        """The output and the statistics used to normalise it."""
        return ("output", "mean", "var")

    def list_auxiliary_states(self) -> tuple[str, ...]:
        """The moving statistics."""
        return ("moving_mean", "moving_var")

    @property
    def num_visible_outputs(self) -> int:
        """3 with output_mean_var, else 1."""
        return 3 if self.parameters.output_mean_var else 1

    def list_state_updates(self) -> tuple[StateUpdate, ...]:
        """Updates of the moving statistics; none with use_global_stats."""
        if self.parameters.use_global_stats:
            return ()
        momentum = self.parameters.momentum
        return (
            StateUpdate("moving_mean", "mean", momentum),
            StateUpdate("moving_var", "var", momentum),
        )

    def with_frozen_states(self) -> BatchNormProperty:
        """Return the same operator with use_global_stats."""
        return type(self)(self.parameters.model_copy(update={"use_global_stats": True}))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output; all other tensors have the shape [C]."""
        data = unify("data", inputs[DATA], outputs[OUTPUT], "output")
        channels: int | None = None
        axis = self.parameters.axis
        if data is not None:
            if not -len(data) <= axis < len(data):
                raise ShapeContradiction("data", show(data), f"an axis {axis}", "axis")
            channels = data[axis]
        names = ("gamma", "beta", "mean", "var")
        for name, shape in zip(names, [*inputs[GAMMA:], *outputs[MEAN:]], strict=True):
            (channels,) = unify(name, shape, (channels,), "data's channels")
        if data is not None:
            known = list(data)
            known[axis] = channels
            data = tuple(known)
        each = (channels,)
        return PartialInference([data, each, each], [data, each, each], [each, each])

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of data, unless the channels lie along it."""
        return unscaled_axis(sequences, self.parameters.axis)

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """The gradients are computed, except that a fixed gamma's is zero."""
        computes, zero = GradientKind.COMPUTES, GradientKind.ZERO
        return (computes, zero if self.parameters.fix_gamma else computes, computes)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad, data, gamma unless fixed, mean and var."""
        gamma = [] if self.parameters.fix_gamma else [in_data[GAMMA]]
        return [out_grad[OUTPUT], in_data[DATA], *gamma, out_data[MEAN], out_data[VAR]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair data with the output; in training backward still reads data."""
        return [(in_data[DATA], out_data[OUTPUT])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair out_grad with data's gradient."""
        return [(out_grad[OUTPUT], in_grad[DATA])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Eight per element: mean (one), variance (three), normalisation and affine map (four)."""
        return 8 * math.prod(in_shapes[DATA])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return BatchNorm(self.parameters)


class BatchNorm(Operator):
    """NumPy body: the formulas of the property."""

    def __init__(self, parameters: BatchNormParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output, mean and var."""
        output, mean, var = self.results(call)
        call.store(output=output, mean=mean, var=var)

    def results(self, call: ForwardCall) -> tuple[Array, Array, Array]:
        """Return the output, mean and var."""
        data = call.inputs.data
        mean, var = call.auxiliary.moving_mean, call.auxiliary.moving_var
        # An empty batch has no statistics: the moving ones stay as they are.
        if call.is_train and not self.parameters.use_global_stats and data.size:
            others = self._other_axes(data)
            mean = data.mean(axis=others, dtype=np.float64).astype(data.dtype)
            var = data.var(axis=others, dtype=np.float64).astype(data.dtype)
        return self.normalized(call, mean, var), mean, var

    def normalized(self, call: OperatorCall, mean: Array, var: Array) -> Array:
        """Return the output for given statistics."""
        data = call.inputs.data
        normalized, _ = self._normalized(data, mean, var)
        if not self.parameters.fix_gamma:
            normalized *= self._along(data, call.inputs.gamma)
        return normalized + self._along(data, call.inputs.beta)

    def backward(self, call: BackwardCall) -> None:
        """Gradients of data, gamma and beta."""
        self.store_gradients(call, call.output_gradients.output)

    def store_gradients(self, call: BackwardCall, gradient: Array) -> None:
        """Store the gradients of data, gamma and beta for this gradient of the output."""
        data = call.inputs.data
        normalized, scale = self._normalized(data, call.outputs.mean, call.outputs.var)
        others = self._other_axes(data)
        beta_grad = sum_over(gradient, others)
        gamma_grad = sum_over(gradient * normalized, others)
        data_grad = gradient
        if not self.parameters.use_global_stats:
            count = max(data.size // max(beta_grad.size, 1), 1)
            data_grad = gradient - self._along(data, beta_grad / count)
            data_grad = data_grad - normalized * self._along(data, gamma_grad / count)
        if not self.parameters.fix_gamma:
            scale = scale * self._along(data, call.inputs.gamma)
        call.store(data=data_grad * scale, gamma=gamma_grad, beta=beta_grad)

    def _normalized(self, data: Array, mean: Array, var: Array) -> tuple[Array, Array]:
        """Return (data - mean) * scale, and scale = 1 / sqrt(var + eps)."""
        scale = self._along(data, 1 / np.sqrt(var + np.asarray(self.parameters.eps, var.dtype)))
        return (data - self._along(data, mean)) * scale, scale

    def _other_axes(self, data: Array) -> tuple[int, ...]:
        axis = self.parameters.axis % data.ndim
        return tuple(other for other in range(data.ndim) if other != axis)

    def _along(self, data: Array, channels: Array) -> Array:
        """Reshape [C] so that it broadcasts along data's channels."""
        return np.expand_dims(channels, self._other_axes(data))
