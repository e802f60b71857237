"""Convolution and Deconvolution with oneDNN, channels last."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mxrun.base.device import Cut, DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.device.cpu.onednn.backward_convolution import (
    backward_data,
    backward_weights,
    weight_gradient_is_sound,
)
from mxrun.device.cpu.onednn.cut import Cuttable
from mxrun.device.cpu.onednn.descriptor import ANY
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart, onednn_serves
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
    Unsupported,
)
from mxrun.operator.constraints import UNCONSTRAINED, ImplementationConstraints
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, Slot, native_kernel, source, target
from mxrun.operator.property import Precision
from mxrun.operator.register import AnyProperty, implement
from mxrun.ops.convolution.base import WindowProductProperty
from mxrun.ops.copy_part import COPY, copy_part
from mxrun.ops.dense_product import (
    MatrixProduct,
    StoredMatrices,
    dense_product_serves,
)
from mxrun.ops.linear import GradientProduct, LinearImplementation
from mxrun.ops.onednn import OnednnProduct
from mxrun.ops.strided_map import strided_part


@dataclass(frozen=True)
class OnednnWindowProducts:
    """The three products of a grouped convolution by oneDNN, as `WindowProducts` are by NumPy.

    images and windows have channels last, weight any layout. Each method takes the slots of images,
    weight and windows.
    """

    images: TensorSpec
    weight: TensorSpec
    windows: TensorSpec
    window: SlidingWindow
    cut: Cut
    scratch_bytes: int

    def of_windows(
        self,
        images: Slot,
        weight: Slot,
        windows: Slot,
        bias: Slot | None = None,
        is_train: bool = True,
        after: tuple[PostOperation, ...] = (),
    ) -> OnednnProduct:
        """Return the convolution, to which the bias is added, followed by `after`."""
        specs = (self.images, self.weight, self.windows, self.window, self.cut)

        def prepare(constraints: ImplementationConstraints) -> Cuttable:
            return convolution_forward(*specs, bias is not None, is_train, after, constraints)

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

    def of_weight(self, images: Slot, weight: Slot, windows: Slot) -> OnednnProduct:
        """Return the weight's gradient, in float32 whatever the factors are."""
        product = replace(self.weight, dtype=FLOAT32)
        specs = (self.images, product, self.windows, self.window, self.cut)
        slots = {
            Argument.SOURCE: images,
            Argument.WEIGHTS_GRAD: weight,
            Argument.OUTPUT_GRAD: windows,
        }
        return OnednnProduct(partial(backward_weights, *specs), slots, self.scratch_bytes)

    def matrices_of_weight(
        self, images: Slot, weight: Slot, windows: Slot, device: DeviceDescription
    ) -> MatrixProduct | None:
        """Return the gradient of a weight for single pixels as windows^T x images, or None.

        It is one where the weight is so large that the sums of parts of the images would take
        longer than those of our own tiles.
        """
        sizes, strides = self.weight.shape[2:], self.window.stride
        is_pixel = {*sizes, *strides, self.window.groups} == {1} and not any(
            (*self.window.pad_begin, *self.window.pad_end)
        )
        total = replace(self.weight, dtype=FLOAT32)
        if not is_pixel or not dense_product_serves(self.images.dtype, device):
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
        products = (self.of_images(*slots), self.of_weight(*slots))
        return not any(product.prepare(UNCONSTRAINED).is_reference for product in products)


def window_products(
    prop: WindowProductProperty[Any],
    data: TensorSpec,
    weight: TensorSpec,
    output: TensorSpec,
    cut: Cut,
) -> OnednnWindowProducts:
    """Return the products for an operator's data, weight and output, in any layout."""
    p = prop.parameters
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
        cut,
        p.workspace_bytes,
    )


@implement("Convolution", "Deconvolution", backend="onednn")
class OnednnWindowProduct(LinearImplementation):
    """oneDNN's convolutions on channels-last data, each with the weight layout it prefers.

    Deconvolution is a convolution's data gradient, and its weight needs no transposition. oneDNN's
    own deconvolutions wrap the same code; their only advantage is a cheaper bias.
    """

    layout = CHANNELS_LAST

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the product in the output's dtype, float32 or, for Convolution, bfloat16."""
        return self.prepare_with(prop, request)

    def prepare_with(
        self,
        prop: AnyProperty,
        request: ForwardRequest,
        residual: int | None = None,
        after: tuple[PostOperation, ...] = (),
    ) -> Kernel | None:
        """Prepare the product, then the addition of input `residual`, then `after`."""
        assert isinstance(prop, WindowProductProperty)
        data, weight, *bias = request.inputs[:residual]
        low = prop.precision is Precision.BFLOAT16
        if not onednn_serves(*request.inputs, *request.outputs, low=low):
            return None
        output = request.outputs[0]
        data, weight = (replace(spec, dtype=output.dtype) for spec in (data, weight))
        flops = prop.flops([data.shape, weight.shape], [output.shape])
        products = window_products(prop, data, weight, output, request.device.cut_for_flops(flops))
        if prop.transposed:
            product = products.of_images(target(0), source(1), source(0))
        else:
            steps = after if residual is None else (Sum(), *after)
            slots = (source(0), source(1), target(0), source(2) if bias else None)
            product = products.of_windows(*slots, request.has_backward, steps)
        try:
            primitive = product.prepared("output", request.choices)
            if primitive.is_reference or (request.has_backward and not products.have_gradients()):
                return None
        except Unsupported:
            return None
        specs = {slot: primitive.specs[argument] for argument, slot in product.slots.items()}
        output = specs[target(0)]
        parts: list[KernelPart] = [PrimitivePart(primitive, product.slots)]
        if prop.transposed and bias:
            parts.append(_bias_part(output, request.device))
        if residual is not None:
            # The primitive adds to the content of the output's memory.
            words = -(-output.nbytes // 4)
            parts.insert(0, copy_part(source(residual), target(0), words, request.device))
        added = () if residual is None else (output,)
        return native_kernel(
            f"onednn:{primitive.implementation}",
            parts,
            (specs[source(0)], specs[source(1)], *bias, *added),
            (output,),
            request.requests,
            request.device,
            flops=flops,
        )

    def gradient_products(
        self,
        prop: AnyProperty,
        request: BackwardRequest,
        gradient: TensorSpec,
        data: TensorSpec,
        weight: TensorSpec,
    ) -> tuple[GradientProduct, GradientProduct]:
        """data: the opposite product of grad; weight: the product of images and windows."""
        assert isinstance(prop, WindowProductProperty)
        cut = request.device.cut_for_flops(request.forward.flops)
        products = window_products(prop, data, weight, gradient, cut)
        if prop.transposed:
            data_grad = products.of_windows(source(0), source(2), target(0))
            return data_grad, products.of_weight(source(0), target(1), source(1))
        data_grad = products.of_images(target(0), source(2), source(0))
        matrices = products.matrices_of_weight(source(1), target(1), source(0), request.device)
        return data_grad, matrices or products.of_weight(source(1), target(1), source(0))


@implement("_convolution_fused", backend="onednn")
class OnednnConvolutionFused(OnednnWindowProduct):
    """oneDNN's convolutions with post-ops."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare Convolution's primitive with a sum post-op, which adds to the output's memory."""
        p = prop.parameters
        limits = () if math.isinf(p.low) and math.isinf(p.high) else (Clip(p.low, p.high),)
        residual = len(request.inputs) - 1 if p.residual else None
        return self.prepare_with(prop, request, residual, limits)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: the operator has no gradient."""
        return None


def _bias_part(output: TensorSpec, device: DeviceDescription) -> KernelPart:
    """Return output += bias, which is the kernel's input 2; channels are innermost in memory."""
    channels = output.shape[1]
    rows = TensorSpec((output.elements // channels, channels))
    addend = [(source(2), TensorSpec((channels,)))]
    return strided_part(COPY, [target(0)], rows, addend, device, requests=[OpReqType.ADD])
