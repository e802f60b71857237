"""Convolution and Deconvolution with oneDNN, channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.device import Cut, DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, Layout, TensorSpec
from mxrun.device.cpu.onednn.backward_convolution import (
    backward_data,
    backward_weights,
    weight_gradient_is_sound,
)
from mxrun.device.cpu.onednn.cut import Cuttable
from mxrun.device.cpu.onednn.descriptor import ANY
from mxrun.device.cpu.onednn.kernel_part import onednn_serves
from mxrun.device.cpu.onednn.operations import (
    SlidingWindow,
    convolution_forward,
    sums_of_weights,
)
from mxrun.device.cpu.onednn.primitive import (
    Argument,
    Clip,
    PostOperation,
    Sum,
)
from mxrun.operator.constraints import UNCONSTRAINED, ImplementationConstraints
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import KernelPart, Slot, source, target
from mxrun.operator.register import AnyProperty, implement
from mxrun.ops.convolution.base import WindowProductProperty
from mxrun.ops.convolution.library import LibraryWindowProduct
from mxrun.ops.copy_part import copy_part
from mxrun.ops.dense_product import (
    MatrixProduct,
    StoredMatrices,
    dense_product_serves,
)
from mxrun.ops.onednn import OnednnProduct


@dataclass(frozen=True)
class OnednnWindowProducts:
    """The three products of a grouped convolution by oneDNN, as `WindowProducts` are by NumPy.

    images and windows have channels last, weight any layout. after: post-operations of the
    convolution.
    """

    images: TensorSpec
    weight: TensorSpec
    windows: TensorSpec
    window: SlidingWindow
    device: DeviceDescription
    cut: Cut
    scratch_bytes: int
    is_transposed: bool
    is_train: bool
    after: tuple[PostOperation, ...]

    def of_windows(
        self, images: Slot, weight: Slot, windows: Slot, bias: Slot | None = None
    ) -> OnednnProduct:
        """Return the convolution, to which the bias is added, followed by `after`."""
        specs = (self.images, self.weight, self.windows, self.window, self.cut)
        further = (self.is_train, self.after)

        def prepare(constraints: ImplementationConstraints) -> Cuttable:
            return convolution_forward(*specs, bias is not None, *further, constraints)

        slots = {Argument.SOURCE: images, Argument.WEIGHTS: weight, Argument.OUTPUT: windows}
        if bias is not None:
            slots[Argument.BIAS] = bias
        return OnednnProduct(prepare, slots, self.scratch_bytes)

    def of_images(self, images: Slot, weight: Slot, windows: Slot) -> OnednnProduct:
        """Return the transposed convolution: the data gradient of the convolution."""
        specs = (self.images, self.weight, self.windows, self.window, self.cut)
        slots = {
            Argument.SOURCE_GRAD: images,
            Argument.WEIGHTS: weight,
            Argument.OUTPUT_GRAD: windows,
        }
        return OnednnProduct(partial(backward_data, *specs), slots, self.scratch_bytes)

    def of_weight(self, images: Slot, weight: Slot, windows: Slot) -> OnednnProduct | MatrixProduct:
        """Return the weight's gradient, in float32 whatever the factors are."""
        matrices = None if self.is_transposed else self._matrices(images, weight, windows)
        return matrices or self._weight_primitive(images, weight, windows)

    def _weight_primitive(self, images: Slot, weight: Slot, windows: Slot) -> OnednnProduct:
        product = replace(self.weight, dtype=FLOAT32)
        specs = (self.images, product, self.windows, self.window, self.cut)
        slots = {
            Argument.SOURCE: images,
            Argument.WEIGHTS_GRAD: weight,
            Argument.OUTPUT_GRAD: windows,
        }
        return OnednnProduct(partial(backward_weights, *specs), slots, self.scratch_bytes)

    def _matrices(self, images: Slot, weight: Slot, windows: Slot) -> MatrixProduct | None:
        """Return the gradient of a weight for single pixels as windows^T x images, or None.

        It is one where the weight is so large that the sums of parts of the images would take
        longer than those of our own tiles.
        """
        sizes, strides = self.weight.shape[2:], self.window.stride
        is_pixel = {*sizes, *strides, self.window.groups} == {1} and not any(
            (*self.window.pad_begin, *self.window.pad_end)
        )
        total = replace(self.weight, dtype=FLOAT32)
        if not is_pixel or not dense_product_serves(self.images.dtype, self.device):
            return None
        if sums_of_weights(self.images, total, self.windows, self.cut) > 1:
            return None
        outputs, channels = self.weight.shape[:2]
        pixels = self.images.elements // channels
        dtype = self.images.dtype
        return MatrixProduct(
            StoredMatrices(TensorSpec((pixels, outputs), dtype), windows, is_turned=True),
            StoredMatrices(TensorSpec((pixels, channels), dtype), images),
            StoredMatrices(TensorSpec((outputs, channels)), weight),
        )

    def have_gradients(self) -> bool:
        """Return whether oneDNN computes the gradients correctly, in bfloat16 without reference
        code.

        float32 is faster than bfloat16 reference code.
        """
        kernel = self.weight.shape[2:]
        if not weight_gradient_is_sound(self.images, kernel, self.windows, self.window):
            return False
        if self.images.dtype != BFLOAT16:
            return True
        slots = (source(0), source(1), source(2))
        products = (self.of_images(*slots), self._weight_primitive(*slots))
        return not any(product.prepare(UNCONSTRAINED).is_reference for product in products)


@implement("Convolution", "Deconvolution", backend="onednn")
class OnednnWindowProduct(LibraryWindowProduct):
    """oneDNN's convolutions on channels-last data, each with the weight layout it prefers.

    oneDNN's own deconvolutions wrap the same code; their only advantage is a cheaper bias.
    """

    def gradient_layout(self, gradient: TensorSpec) -> Layout:
        """Channels last."""
        return CHANNELS_LAST

    def serves(self, device: DeviceDescription, low: bool, *specs: TensorSpec) -> bool:
        """Return whether oneDNN is available and supports the specs."""
        return onednn_serves(*specs, low=low)

    def after(self, prop: WindowProductProperty[Any]) -> tuple[PostOperation, ...]:
        """Return the post-operations of the convolution."""
        return ()

    def products(
        self,
        prop: WindowProductProperty[Any],
        tensors: Sequence[TensorSpec],
        device: DeviceDescription,
        flops: int,
        is_train: bool = True,
    ) -> OnednnWindowProducts:
        """Return the products for an operator's data, weight and output, in any layout."""
        p, (data, weight, output) = prop.parameters, tensors
        window = p.window_over(data.shape[2:])
        images, windows = (output, data) if prop.transposed else (data, output)
        return OnednnWindowProducts(
            images.with_layout(CHANNELS_LAST),
            weight.with_layout(ANY),
            windows.with_layout(CHANNELS_LAST),
            SlidingWindow(
                stride=window.stride,
                dilation=window.dilate,
                pad_begin=window.pad,
                pad_end=window.pad,
                groups=p.num_group,
            ),
            device,
            device.cut_for_flops(flops),
            p.workspace_bytes,
            prop.transposed,
            is_train,
            self.after(prop),
        )


@implement("_convolution_fused", backend="onednn")
class OnednnConvolutionFused(OnednnWindowProduct):
    """oneDNN's convolutions with post-ops: the sum adds to the content of the output's memory."""

    def after(self, prop: WindowProductProperty[Any]) -> tuple[PostOperation, ...]:
        """Return the sum and the limits."""
        p = prop.parameters
        limits = () if math.isinf(p.low) and math.isinf(p.high) else (Clip(p.low, p.high),)
        return (Sum(), *limits) if p.residual else limits

    def surroundings(
        self, prop: WindowProductProperty[Any], request: ForwardRequest, output: TensorSpec
    ) -> tuple[Sequence[KernelPart], Sequence[KernelPart]]:
        """Return the copy of the residual to the output, if it is elsewhere."""
        if not prop.parameters.residual:
            return (), ()
        residual, words = source(len(request.inputs) - 1), -(-output.nbytes // 4)
        return [copy_part(residual, target(0), words, request.device)], ()

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: the operator has no gradient."""
        return None
