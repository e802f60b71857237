"""FullyConnected in compiled loops over tiles of its products."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.blocked import in_panels
from mxrun.base.device import CPU
from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import native_kernel
from mxrun.operator.register import AnyProperty, implement
from mxrun.ops.dense_product import MatrixProduct, dense_product, dense_product_serves
from mxrun.ops.fully_connected.products import gradient_products, output_product
from mxrun.ops.linear import LinearImplementation

_WEIGHT = 1
# Rows of data below which a fixed weight is packed once, because packing it in every call takes
# more than a fiftieth of the time.
_ROWS_IN_PANELS = 384


@implement("FullyConnected", backend="jit", before="onednn")
class CompiledFullyConnected(LinearImplementation):
    """Products in float32 or, where processors multiply it, bfloat16.

    The weight is plain; a fixed one beside few rows is in panels, which gives the same bits.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare output = data x weight^T + bias, in the output's dtype."""
        output = request.outputs[0].with_layout(PLAIN)
        data, weight, *bias = (spec.with_layout(PLAIN) for spec in request.inputs)
        data, weight = (replace(spec, dtype=output.dtype) for spec in (data, weight))
        is_served = dense_product_serves(output.dtype, request.device)
        if not is_served or not all(spec.elements for spec in (data, weight, output)):
            return None
        rows = output.elements // weight.shape[0]
        is_packed = _WEIGHT in request.fixed and request.device.family == CPU
        if is_packed and rows < _ROWS_IN_PANELS:
            weight = in_panels(weight)
        bias = [replace(spec, dtype=FLOAT32) for spec in bias]
        product = output_product(data, weight, output, has_bias=bool(bias))
        return native_kernel(
            self.name,
            [dense_product(product, request.device)],
            (data, weight, *bias),
            (output,),
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
    ) -> tuple[MatrixProduct, MatrixProduct]:
        """data: grad x weight; weight: grad^T x data."""
        return gradient_products(gradient, data, weight, request.in_grad)
