"""Permutation of axes as one reorder primitive."""

from __future__ import annotations

from functools import cache

from mxrun.base.dataclass import dataclass
from mxrun.base.device import Cut
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.device.cpu.onednn.cut import Cuttable, Specs, along_axes
from mxrun.device.cpu.onednn.descriptor import DescriptorView
from mxrun.device.cpu.onednn.library import require
from mxrun.device.cpu.onednn.primitive import Argument, ArgumentSpec, Primitive, build


@dataclass(frozen=True)
class Permuted(DescriptorView):
    """View of a tensor with its axes permuted: axis i is the tensor's axis `order[i]`."""

    order: Shape = ()

    def apply(self, sizes: Shape, strides: Shape) -> tuple[Shape, Shape]:
        """Return sizes and strides in that order."""
        return tuple(sizes[axis] for axis in self.order), tuple(strides[i] for i in self.order)


@cache
def transpose(source: TensorSpec, output: TensorSpec, axes: Shape, cut: Cut) -> Cuttable:
    """Prepare SOURCE → OUTPUT, whose axis i is SOURCE's axis `axes[i]`.

    Either tensor may be plain or channels-last.
    """
    engine = require().engine
    permuted = Permuted(order=axes, within=source.shape)

    def prepare(specs: Specs) -> Primitive:
        requested: dict[int, ArgumentSpec] = {
            Argument.SOURCE: ArgumentSpec(specs[Argument.SOURCE], permuted),
            Argument.OUTPUT: ArgumentSpec(specs[Argument.OUTPUT]),
        }
        origin, target = requested[Argument.SOURCE].handle, requested[Argument.OUTPUT].handle
        return build("reorder", (origin, engine, target, engine), requested)

    specs = {Argument.SOURCE: source, Argument.OUTPUT: output}
    if not axes:
        return prepare(specs)
    return along_axes(specs, {Argument.SOURCE: axes[0], Argument.OUTPUT: 0}, prepare, cut)
