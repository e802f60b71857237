"""Convolution and Deconvolution by a library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator.constraints import Unsupported
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import KernelPart, Slot, native_kernel, source, target
from mxrun.operator.property import Precision
from mxrun.operator.register import AnyProperty
from mxrun.ops.convolution.base import WindowProductProperty
from mxrun.ops.library_product import LibraryProduct, bias_part
from mxrun.ops.linear import GradientProduct, LinearImplementation
from mxrun.ops.reduce.loops import ReductionKind, reduce_part


class LibraryWindowProducts(Protocol):
    """The three products of a grouped convolution by a library, as `WindowProducts` are by NumPy.

    Each method takes the slots of images, weight and windows.
    """

    def of_windows(
        self, images: Slot, weight: Slot, windows: Slot, bias: Slot | None = None
    ) -> LibraryProduct:
        """Return the convolution, to which the bias is added."""

    def of_images(self, images: Slot, weight: Slot, windows: Slot) -> LibraryProduct:
        """Return the transposed convolution: the data gradient of the convolution."""

    def of_weight(self, images: Slot, weight: Slot, windows: Slot) -> GradientProduct:
        """Return the weight's gradient, in float32 whatever the factors are."""

    def have_gradients(self) -> bool:
        """Return whether the library computes both gradients correctly, and fast enough."""


class LibraryWindowProduct(LinearImplementation):
    """A library's convolutions, in the layouts that it prefers.

    Deconvolution is a convolution's data gradient, and its weight needs no transposition.
    """

    @abstractmethod
    def serves(self, device: DeviceDescription, low: bool, *specs: TensorSpec) -> bool:
        """Return whether the library is available and supports the specs' types.

        low: whether they may be bfloat16.
        """

    @abstractmethod
    def products(
        self,
        prop: WindowProductProperty[Any],
        tensors: Sequence[TensorSpec],
        device: DeviceDescription,
        flops: int,
        is_train: bool = True,
    ) -> LibraryWindowProducts:
        """Return the products for an operator's data, weight and output, in any layout."""

    def surroundings(
        self, prop: WindowProductProperty[Any], request: ForwardRequest, output: TensorSpec
    ) -> tuple[Sequence[KernelPart], Sequence[KernelPart]]:
        """Return what the kernel does before and after the product."""
        has_bias = prop.transposed and len(request.inputs) > len(("data", "weight"))
        return (), [bias_part(output, target(0), source(2), request.device)] if has_bias else []

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the product in the output's dtype, float32 or, for Convolution, bfloat16."""
        assert isinstance(prop, WindowProductProperty)
        count = 2 if prop.parameters.no_bias else 3
        data, weight, *bias = request.inputs[:count]
        low = prop.precision is Precision.BFLOAT16
        if not self.serves(request.device, low, *request.inputs, *request.outputs):
            return None
        output = request.outputs[0]
        data, weight = (replace(spec, dtype=output.dtype) for spec in (data, weight))
        bias = [replace(spec, dtype=FLOAT32) for spec in bias]
        flops = prop.flops([data.shape, weight.shape], [output.shape])
        tensors = (data, weight, output)
        products = self.products(prop, tensors, request.device, flops, request.has_backward)
        if prop.transposed:
            product = products.of_images(target(0), source(1), source(0))
        else:
            slots = (source(0), source(1), target(0), source(2) if bias else None)
            product = products.of_windows(*slots)
        try:
            made = product.prepared("output", request.choices)
            if made.is_reference or (request.has_backward and not products.have_gradients()):
                return None
        except Unsupported:
            return None
        output = made.specs[target(0)]
        before, after = self.surroundings(prop, request, output)
        return native_kernel(
            f"{self.name}:{made.implementation}",
            [*before, made.part, *after],
            (
                *(made.specs[source(0)], made.specs[source(1)], *bias),
                *[output] * len(request.inputs[count:]),
            ),
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
        tensors, flops = (data, weight, gradient), request.forward.flops
        products = self.products(prop, tensors, request.device, flops)
        if prop.transposed:
            data_grad = products.of_windows(source(0), source(2), target(0))
            return data_grad, products.of_weight(source(0), target(1), source(1))
        data_grad = products.of_images(target(0), source(2), source(0))
        return data_grad, products.of_weight(source(1), target(1), source(0))

    def bias_gradient(
        self, gradient: TensorSpec, columns: int, device: DeviceDescription
    ) -> KernelPart:
        """Return the sum over images and positions."""
        if gradient.layout != PLAIN:
            return super().bias_gradient(gradient, columns, device)
        axes = [0, *range(2, len(gradient.shape))]
        return reduce_part(ReductionKind.SUM, target(2), (source(0), gradient), axes, device)
