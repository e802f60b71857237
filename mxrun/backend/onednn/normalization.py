"""oneDNN's normalizations: batch normalization, and across neighbouring channels (LRN)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from mxrun.backend.onednn.descriptor import describe
from mxrun.backend.onednn.library import require
from mxrun.backend.onednn.primitive import (
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    Argument,
    Asked,
    Primitive,
    build,
)
from mxrun.base.tensor import TensorSpec

_BACKWARD = 128
_ACROSS_CHANNELS = 0xAFF
_USE_GLOBAL_STATISTICS = 1
_USE_SCALE = 2
_USE_SHIFT = 4


@dataclass(frozen=True)
class BatchNormalization:
    """What is normalized: `data` [N, C, ...], always shifted, scaled unless the scale is 1.

    global_statistics: mean and variance are given instead of computed over the batch.
    """

    data: TensorSpec
    epsilon: float
    scaled: bool
    global_statistics: bool

    @property
    def flags(self) -> int:
        """dnnl_normalization_flags_t."""
        scale = _USE_SCALE if self.scaled else 0
        return _USE_SHIFT | scale | (_USE_GLOBAL_STATISTICS if self.global_statistics else 0)

    @property
    def handle(self) -> int:
        """The data's memory descriptor."""
        return describe(self.data).value

    def asked(self, *arguments: Argument) -> dict[int, Asked]:
        """Arguments of the data's form, then one number a channel for all the others."""
        channels = TensorSpec(self.data.shape[1:2], self.data.dtype)
        wide = (Argument.SOURCE, Argument.OUTPUT, Argument.SOURCE_GRAD, Argument.OUTPUT_GRAD)
        unscaled = () if self.scaled else (Argument.SCALE, Argument.SCALE_GRAD)
        return {
            argument: Asked(self.data if argument in wide else channels)
            for argument in arguments
            if argument not in unscaled
        }


@cache
def batch_normalization_forward(what: BatchNormalization, threads: int) -> Primitive:
    """SOURCE, SCALE, SHIFT → OUTPUT = SCALE (SOURCE - MEAN) / sqrt(VARIANCE + epsilon) + SHIFT.

    MEAN and VARIANCE (biased) are outputs, with global statistics inputs.
    """
    asked = what.asked(
        *(Argument.SOURCE, Argument.OUTPUT, Argument.MEAN, Argument.VARIANCE),
        *(Argument.SCALE, Argument.SHIFT),
    )
    arguments = (require().engine, FORWARD_TRAINING, what.handle, what.handle)
    settings = (what.epsilon, what.flags)
    return build("batch_normalization_forward", (*arguments, *settings), asked, threads)


@cache
def batch_normalization_backward(what: BatchNormalization, threads: int) -> Primitive:
    """OUTPUT_GRAD, SOURCE, MEAN, VARIANCE, SCALE → SOURCE_GRAD, SCALE_GRAD, SHIFT_GRAD."""
    forward = batch_normalization_forward(what, threads)
    asked = what.asked(
        *(Argument.SOURCE_GRAD, Argument.OUTPUT_GRAD, Argument.SOURCE),
        *(Argument.MEAN, Argument.VARIANCE, Argument.SCALE),
        *(Argument.SCALE_GRAD, Argument.SHIFT_GRAD),
    )
    arguments = (
        *(require().engine, _BACKWARD, what.handle, what.handle, what.handle),
        *(what.epsilon, what.flags, forward.descriptor.value),
    )
    return build("batch_normalization_backward", arguments, asked, threads)


@dataclass(frozen=True)
class ChannelWindow:
    """OUTPUT = SOURCE (k + alpha / size * sum of SOURCE^2 over `size` channels)^(-beta)."""

    size: int
    alpha: float
    beta: float
    k: float

    @property
    def arguments(self) -> tuple[object, ...]:
        """In oneDNN's order."""
        return (self.size, self.alpha, self.beta, self.k)


@cache
def lrn_forward(
    data: TensorSpec, window: ChannelWindow, threads: int, is_train: bool = True
) -> Primitive:
    """SOURCE → OUTPUT and, in training where the implementation wants it, WORKSPACE."""
    asked: dict[int, Asked] = {Argument.SOURCE: Asked(data), Argument.OUTPUT: Asked(data)}
    handle = describe(data).value
    kind = (FORWARD_TRAINING if is_train else FORWARD_INFERENCE, _ACROSS_CHANNELS)
    arguments = (require().engine, *kind, handle, handle, *window.arguments)
    return build("lrn_forward", arguments, asked, threads)


@cache
def lrn_backward(data: TensorSpec, window: ChannelWindow, threads: int) -> Primitive:
    """SOURCE, OUTPUT_GRAD and the forward pass's WORKSPACE → SOURCE_GRAD."""
    forward = lrn_forward(data, window, threads)
    asked: dict[int, Asked] = {
        Argument.SOURCE_GRAD: Asked(data),
        Argument.OUTPUT_GRAD: Asked(data),
        Argument.SOURCE: Asked(data),
    }
    handles = [describe(data).value] * 3
    arguments = (
        *(require().engine, _ACROSS_CHANNELS, *handles, *window.arguments),
        forward.descriptor.value,
    )
    return build("lrn_backward", arguments, asked, threads)
