"""oneDNN's local response normalisation across channels (LRN)."""

from __future__ import annotations

from functools import cache

from mxrun.base.dataclass import dataclass
from mxrun.base.device import Cut
from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.onednn.cut import Cuttable, Specs, by_images
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
    data: TensorSpec, window: ChannelWindow, cut: Cut, is_train: bool = True
) -> Cuttable:
    """Prepare SOURCE → OUTPUT and, in training if the implementation needs it, WORKSPACE."""
    kind = (FORWARD_TRAINING if is_train else FORWARD_INFERENCE, _ACROSS_CHANNELS)

    def prepare(specs: Specs) -> Primitive:
        requested: dict[int, ArgumentSpec] = {
            argument: ArgumentSpec(spec) for argument, spec in specs.items()
        }
        handle = describe(specs[Argument.SOURCE]).value
        arguments = (require().engine, *kind, handle, handle, *window.arguments)
        return build("lrn_forward", arguments, requested)

    specs = {Argument.SOURCE: data, Argument.OUTPUT: data}
    return by_images(specs, tuple(specs), prepare, cut)


@cache
def lrn_backward(data: TensorSpec, window: ChannelWindow, cut: Cut) -> Cuttable:
    """Prepare SOURCE, OUTPUT_GRAD and the forward pass's WORKSPACE → SOURCE_GRAD."""

    def prepare(specs: Specs) -> Primitive:
        requested: dict[int, ArgumentSpec] = {
            argument: ArgumentSpec(spec) for argument, spec in specs.items()
        }
        forward = lrn_forward(specs[Argument.SOURCE], window, Cut(1, 1))
        assert isinstance(forward, Primitive)
        handles = [describe(specs[Argument.SOURCE]).value] * 3
        arguments = (
            *(require().engine, _ACROSS_CHANNELS, *handles, *window.arguments),
            forward.descriptor.value,
        )
        return build("lrn_backward", arguments, requested)

    specs = dict.fromkeys((Argument.SOURCE_GRAD, Argument.OUTPUT_GRAD, Argument.SOURCE), data)
    return by_images(specs, tuple(specs), prepare, cut)
