"""Convolution and Deconvolution by cuDNN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from mxrun.base.device import CUDA, DeviceDescription
from mxrun.base.tensor import Layout, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, source, target
from mxrun.operator.register import AnyProperty, implement
from mxrun.ops.clip import clip
from mxrun.ops.convolution.base import WindowProductProperty
from mxrun.ops.convolution.library import LibraryWindowProduct
from mxrun.ops.copy_part import copy_part
from mxrun.ops.cudnn import CudnnWindowProducts, cudnn_serves, layout_of

_CLIP = scalar.compile(clip, parameters=("a_min", "a_max"))


@implement("Convolution", "Deconvolution", backend="cudnn", devices=(CUDA,), before="blocks")
class CudnnWindowProduct(LibraryWindowProduct):
    """cuDNN's convolutions, in the layout for the dtype.

    is_tf32: whether float32 may be rounded for tensor cores.
    """

    is_tf32: ClassVar[bool] = False

    def gradient_layout(self, gradient: TensorSpec) -> Layout:
        """Return the layout in which cuDNN convolves the gradient's dtype."""
        return layout_of(gradient.dtype, self.is_tf32)

    def serves(self, device: DeviceDescription, low: bool, *specs: TensorSpec) -> bool:
        """Return whether cuDNN is available, knows the card and supports the specs."""
        return cudnn_serves(device, *specs, low=low)

    def is_added(self, prop: WindowProductProperty[Any]) -> bool:
        """Return whether the convolution is added to what is in the output."""
        return False

    def products(
        self,
        prop: WindowProductProperty[Any],
        tensors: Sequence[TensorSpec],
        device: DeviceDescription,
        flops: int,
        is_train: bool = True,
    ) -> CudnnWindowProducts:
        """Return the products for an operator's data, weight and output, in any layout."""
        p, layout = prop.parameters, layout_of(tensors[0].dtype, self.is_tf32)
        data, weight, output = (spec.with_layout(layout) for spec in tensors)
        images, windows = (output, data) if prop.transposed else (data, output)
        window = p.window_over(data.shape[2:])
        options = p.workspace_bytes, self.is_tf32, self.is_added(prop)
        return CudnnWindowProducts(images, weight, windows, window, device, *options)


@implement("Convolution", "Deconvolution", backend="cudnn_tf32", devices=(CUDA,))
class RoundedCudnnWindowProduct(CudnnWindowProduct):
    """Convolutions of float32 by tensor cores, which round factors to 10 bits of fraction."""

    is_by_name = True
    is_tf32 = True


@implement("_convolution_fused", backend="cudnn", devices=(CUDA,))
class CudnnConvolutionFused(CudnnWindowProduct):
    """Convolution that adds to the content of the output's memory, and a pass for the limits."""

    def is_added(self, prop: WindowProductProperty[Any]) -> bool:
        """Return whether there is a residual."""
        return bool(prop.parameters.residual)

    def surroundings(
        self, prop: WindowProductProperty[Any], request: ForwardRequest, output: TensorSpec
    ) -> tuple[Sequence[KernelPart], Sequence[KernelPart]]:
        """Return the copy of the residual to the output, if it is elsewhere, and the limits."""
        p, device = prop.parameters, request.device
        copies: list[KernelPart] = []
        if p.residual:
            residual, words = source(len(request.inputs) - 1), -(-output.nbytes // 4)
            copies.append(copy_part(residual, target(0), words, device))
        limits = _CLIP.multi_output_part(
            [target(0)],
            [target(0)],
            output.elements,
            (p.low, p.high),
            device=device,
            requests=[OpReqType.INPLACE],
            stored=(output.dtype,) * 2,
        )
        return copies, [limits]

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Return None: the operator has no gradient."""
        return None
