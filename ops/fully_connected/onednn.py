"""FullyConnected by oneDNN: in bfloat16 too, and with packed weights."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.device.cpu.onednn.descriptor import ANY
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart, onednn_serves
from mxrun.device.cpu.onednn.primitive import Argument, Unsupported
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import native_kernel
from mxrun.operator.register import AnyProperty, implement
from mxrun.ops.fully_connected.products import gradient_products, output_product
from mxrun.ops.linear import LinearImplementation
from mxrun.ops.onednn import OnednnProduct, onednn_product

_WEIGHT = 1


@implement("FullyConnected", backend="onednn")
class OnednnFullyConnected(LinearImplementation):
    """oneDNN's matrix products with the plain weight, or a packed one if the weight is fixed.

    A packed weight makes a product up to three times faster if there are few rows, but the reorder
    costs more than it saves. The same holds in bfloat16: one plain copy serves forward and
    backward.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare output = data x weight^T + bias as one primitive, in the output's dtype."""
        if not onednn_serves(*request.inputs, low=True):
            return None
        given, weight, *bias = (spec.with_layout(PLAIN) for spec in request.inputs)
        output = request.outputs[0]
        data, weight = (replace(spec, dtype=output.dtype) for spec in (given, weight))
        if _WEIGHT in request.fixed:
            weight = weight.with_layout(ANY)
        bias = [replace(spec, dtype=FLOAT32) for spec in bias]
        product = output_product(data, weight, output, has_bias=bool(bias))
        primitive_product = onednn_product(product, request.device)
        try:
            primitive = primitive_product.prepared("output", request.choices)
        except Unsupported:
            return None
        if output.dtype == BFLOAT16 and primitive.is_reference:
            # float32 is faster than the bfloat16 reference.
            return None
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, primitive_product.slots)],
            (data, primitive.specs[Argument.WEIGHTS], *bias),
            request.outputs,
            request.requests,
            request.device,
            flops=product.flops,
        )

    def gradient_products(
        self,
        prop: AnyProperty,
        request: BackwardRequest,
        gradient: TensorSpec,
        data: TensorSpec,
        weight: TensorSpec,
    ) -> tuple[OnednnProduct, OnednnProduct]:
        """data: grad x weight; weight: grad^T x data."""
        products = gradient_products(gradient, data, weight, request.in_grad)
        first, second = (onednn_product(product, request.device) for product in products)
        return first, second
