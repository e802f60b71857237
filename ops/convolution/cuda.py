"""Convolution and Deconvolution on GPUs without a library, channels last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.device import CUDA
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Layout, TensorSpec
from mxrun.codegen.block_function import BlockFunction
from mxrun.operator.gradient_parts import GradientParts
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
from mxrun.operator.property import Precision
from mxrun.operator.register import AnyProperty, implement
from mxrun.ops.convolution.base import WindowProductProperty
from mxrun.ops.convolution.direct import (
    SIDE,
    THREADS,
    Direct,
    images_block,
    weight_block,
    windows_block,
)
from mxrun.ops.linear import LinearImplementation
from mxrun.ops.window import Window

_AXES = 3


@dataclass(frozen=True)
class DirectProduct:
    """One of the three products of images, weight and windows, and where its tensors are.

    images and windows have channels last. slots: of images, weight and windows, of which the kernel
    computes one.
    """

    kernel: BlockFunction
    images: TensorSpec
    weight: TensorSpec
    windows: TensorSpec
    window: Window
    groups: int
    slots: tuple[Slot, Slot, Slot]
    bias: Slot | None = None

    def part(self) -> LoopPart:
        """Return the kernel on the slots."""
        images, weight, windows = self.slots
        is_weight = self.kernel is weight_block
        arguments = Direct(
            images_count=self.images.shape[0],
            channels=self.images.shape[1],
            outputs=self.windows.shape[1],
            groups=self.groups,
            axes=self._axes(),
            images=images,
            weight=None if is_weight else weight,
            windows=windows,
            bias=self.bias,
            result=weight if is_weight else None,
        )
        is_low = self.images.dtype == BFLOAT16
        return LoopPart(self.kernel.bfloat16 if is_low else self.kernel, arguments, self._blocks())

    def add_to(
        self, parts: GradientParts, name: str, request: BackwardRequest, layout: Layout
    ) -> None:
        """Add the kernel to the parts of a backward kernel; the weight's gradient is float32."""
        images, weight, windows = self.slots
        parts.use(images, CHANNELS_LAST, self.images.dtype)
        parts.use(windows, CHANNELS_LAST, self.windows.dtype)
        is_result = self.kernel is weight_block
        parts.use(weight, PLAIN, FLOAT32 if is_result else self.weight.dtype)
        parts.add(name, self.part())

    def _axes(self) -> tuple[int, ...]:
        """Return the numbers of each axis; those before the first one have one element."""
        window = self.window
        sizes = (self.images.shape[2:], self.windows.shape[2:], window.kernel)
        numbers = [*zip(*sizes, window.stride, window.dilate, window.pad, strict=True)]
        missing = [(1, 1, 1, 1, 1, 0)] * (_AXES - len(numbers))
        return tuple(number for axis in (*missing, *numbers) for number in axis)

    def _blocks(self) -> int:
        if self.kernel is not weight_block:
            result = self.windows if self.kernel is windows_block else self.images
            return -(-result.elements // THREADS)
        outputs, channels = self.weight.shape[0] // self.groups, self.weight.shape[1]
        positions = self.weight.elements // (self.weight.shape[0] * channels)
        return self.groups * positions * -(-outputs // SIDE) * -(-channels // SIDE)


def _products(
    prop: WindowProductProperty[Any],
    tensors: tuple[TensorSpec, TensorSpec, TensorSpec],
    slots: tuple[Slot, Slot, Slot],
    bias: Slot | None = None,
) -> Mapping[BlockFunction, DirectProduct]:
    """Return the products by their kernels; tensors, slots: of data, weight and output."""
    p = prop.parameters
    window = p.window_over(tensors[0].shape[2:])
    order = (2, 1, 0) if prop.transposed else (0, 1, 2)
    images, weight, windows = (tensors[index] for index in order)
    places = slots[order[0]], slots[order[1]], slots[order[2]]
    return {
        kernel: DirectProduct(kernel, images, weight, windows, window, p.num_group, places, bias)
        for kernel in (windows_block, images_block, weight_block)
    }


@implement("Convolution", "Deconvolution", backend="blocks", devices=(CUDA,))
class BlockWindowProduct(LinearImplementation):
    """Block kernels on channels-last data and plain weights."""

    def gradient_layout(self, gradient: TensorSpec) -> Layout:
        """Channels last, as the windows of the products are."""
        return CHANNELS_LAST

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the product in the output's dtype, float32 or, for Convolution, bfloat16."""
        assert isinstance(prop, WindowProductProperty)
        specs = (*request.inputs, *request.outputs)
        served = (FLOAT32, BFLOAT16) if prop.precision is Precision.BFLOAT16 else (FLOAT32,)
        if not all(spec.dtype in served and spec.elements for spec in specs):
            return None
        output = request.outputs[0].with_layout(CHANNELS_LAST)
        data, weight, *bias = (replace(spec, dtype=output.dtype) for spec in request.inputs)
        data, weight = data.with_layout(CHANNELS_LAST), weight.with_layout(PLAIN)
        slots = (source(0), source(1), target(0))
        added = source(2) if bias else None
        products = _products(prop, (data, weight, output), slots, added)
        product = products[images_block if prop.transposed else windows_block]
        return native_kernel(
            self.name,
            [product.part()],
            (data, weight, *(replace(each, layout=PLAIN, dtype=FLOAT32) for each in bias)),
            (output,),
            request.requests,
            request.device,
            flops=prop.flops([data.shape, weight.shape], [output.shape]),
        )

    def gradient_products(
        self,
        prop: AnyProperty,
        request: BackwardRequest,
        gradient: TensorSpec,
        data: TensorSpec,
        weight: TensorSpec,
    ) -> tuple[DirectProduct, DirectProduct]:
        """data: the opposite product of grad; weight: the product of images and windows."""
        assert isinstance(prop, WindowProductProperty)
        tensors = (data, weight, gradient)
        of_data = _products(prop, tensors, (target(0), source(2), source(0)))
        of_weight = _products(prop, tensors, (source(1), target(1), source(0)))
        return of_data[windows_block if prop.transposed else images_block], of_weight[weight_block]
