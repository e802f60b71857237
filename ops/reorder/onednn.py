"""Reorders by oneDNN, and between plain tensors and the layouts that oneDNN packs."""

from __future__ import annotations

import math
from functools import cache

from mxrun.base.blocked import panels_of
from mxrun.base.device import CPU, CUDA, DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32, item_size
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.device.cpu.onednn import library, operations
from mxrun.device.cpu.onednn.descriptor import IDENTITY, blocked, view_of
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart
from mxrun.device.cpu.onednn.primitive import Argument, Unsupported
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.reorder.packing import Lines, moving_part

_FLOAT = 4


@implement("_reorder", backend="packing", before="jit", devices=(CPU, CUDA))
class CompiledPacking(Implementation):
    """Reorders between a plain tensor and a packed layout for matrix products."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare a reorder in tiles; returns None for other layouts."""
        (data,), (output,) = request.inputs, request.outputs
        part = _packing_part((source(0), data), (target(0), output), request.device)
        if part is None:
            return None
        return native_kernel(
            f"jit:{self.name}", [part], (data,), (output,), request.requests, request.device
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: reorders are inserted after differentiation."""
        return None


@implement("_reorder", backend="onednn", before="jit")
class OnednnReorder(Implementation):
    """oneDNN's reorder primitive."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the reorder; returns None if oneDNN does not support it."""
        if library.load() is None or any(map(panels_of, (*request.inputs, *request.outputs))):
            return None
        try:
            cut = request.device.cut_for_elements(request.inputs[0].elements)
            primitive = operations.reorder(request.inputs[0], request.outputs[0], cut)
        except Unsupported:
            return None
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, {Argument.SOURCE: source(0), Argument.OUTPUT: target(0)})],
            request.inputs,
            request.outputs,
            request.requests,
            request.device,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: reorders are inserted after differentiation."""
        return None


def _packing_part(
    data: tuple[Slot, TensorSpec], output: tuple[Slot, TensorSpec], device: DeviceDescription
) -> LoopPart | None:
    """Return output = data, one of them plain; None for unsupported layouts and dtypes."""
    packs = data[1].layout == PLAIN
    (_, plain), (_, packed) = (data, output) if packs else (output, data)
    types = (FLOAT32, BFLOAT16) if packs else (FLOAT32,)
    if plain.layout != PLAIN or plain.dtype != FLOAT32 or packed.dtype not in types:
        return None
    if packed.layout.nbytes is None or len(plain.shape) < 2:
        return None
    lines = _lines_of(packed)
    if lines is None:
        return None
    if packed.nbytes * lines.word != lines.elements * math.prod(plain.shape[2:]) * _FLOAT:
        return None
    return moving_part(lines, plain.shape, data[0], output[0], packs, device)


@cache
def _lines_of(packed: TensorSpec) -> Lines | None:
    """Return the cached result of `Lines.of` for a packed tensor; equal layers share a layout."""
    layout = panels_of(packed)
    if layout is None and view_of(packed) == IDENTITY:
        layout = blocked(packed)
    return None if layout is None else Lines.of(layout, _FLOAT // item_size(packed.dtype))
