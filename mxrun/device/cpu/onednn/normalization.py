"""oneDNN's local response normalisation across channels (LRN)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.onednn.descriptor import describe
from mxrun.device.cpu.onednn.library import require
from mxrun.device.cpu.onednn.primitive import (
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    Argument,
    ArgumentSpec,
    Primitive,
    build,
)

_ACROSS_CHANNELS = 0xAFF


@dataclass(frozen=True)
class ChannelWindow:
    """Parameters of local response normalisation across channels.

    OUTPUT = SOURCE (k + alpha / size * sum of SOURCE^2 over `size` channels)^(-beta).
    """

    size: int
    alpha: float
    beta: float
    k: float

    @property
    def arguments(self) -> tuple[object, ...]:
        """The parameters in oneDNN's order."""
        return (self.size, self.alpha, self.beta, self.k)


@cache
def lrn_forward(
    data: TensorSpec, window: ChannelWindow, threads: int, is_train: bool = True
) -> Primitive:
    """Prepare SOURCE → OUTPUT and, in training if the implementation needs it, WORKSPACE."""
    requested: dict[int, ArgumentSpec] = {
        Argument.SOURCE: ArgumentSpec(data),
        Argument.OUTPUT: ArgumentSpec(data),
    }
    handle = describe(data).value
    kind = (FORWARD_TRAINING if is_train else FORWARD_INFERENCE, _ACROSS_CHANNELS)
    arguments = (require().engine, *kind, handle, handle, *window.arguments)
    return build("lrn_forward", arguments, requested, threads)


@cache
def lrn_backward(data: TensorSpec, window: ChannelWindow, threads: int) -> Primitive:
    """Prepare SOURCE, OUTPUT_GRAD and the forward pass's WORKSPACE → SOURCE_GRAD."""
    forward = lrn_forward(data, window, threads)
    requested: dict[int, ArgumentSpec] = {
        Argument.SOURCE_GRAD: ArgumentSpec(data),
        Argument.OUTPUT_GRAD: ArgumentSpec(data),
        Argument.SOURCE: ArgumentSpec(data),
    }
    handles = [describe(data).value] * 3
    arguments = (
        *(require().engine, _ACROSS_CHANNELS, *handles, *window.arguments),
        forward.descriptor.value,
    )
    return build("lrn_backward", arguments, requested, threads)
