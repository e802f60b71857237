"""Matrix products by oneDNN."""

from __future__ import annotations

from mxrun.base.dtype import BFLOAT16
from mxrun.base.tensor import PLAIN
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart, onednn_serves
from mxrun.device.cpu.onednn.primitive import Unsupported
from mxrun.operator.constraints import UNCONSTRAINED
from mxrun.operator.gradient_parts import GradientParts
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.dot.operator import MatrixProductProperty
from mxrun.ops.dot.products import gradient_products, output_product, read_specs
from mxrun.ops.linear import add_gradients
from mxrun.ops.onednn import onednn_product


@implement("dot", "batch_dot", backend="onednn")
class OnednnDot(Implementation):
    """oneDNN's matrix products of plain tensors; transposed operands are read with strides.

    All operands have the output's dtype, float32 or bfloat16; gradients are computed from them.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare one product."""
        assert isinstance(prop, MatrixProductProperty)
        given = (*request.inputs, *request.outputs)
        if not onednn_serves(*given, low=True) or OpReqType.NULL in request.requests:
            return None
        product = output_product(prop, request)
        found = onednn_product(product, request.device)
        try:
            primitive = found.prepare(UNCONSTRAINED)
        except Unsupported:
            return None
        if product.output.spec.dtype == BFLOAT16 and primitive.is_reference:
            # float32 is faster than the bfloat16 reference.
            return None
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, found.slots)],
            read_specs(request),
            (request.outputs[0].with_layout(PLAIN),),
            request.requests,
            request.device,
            flops=product.flops,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare one product per requested gradient."""
        assert isinstance(prop, MatrixProductProperty)
        parts, products = GradientParts(request), gradient_products(prop, request)
        by_onednn = {
            name: onednn_product(product, request.device) for name, product in products.items()
        }
        return parts.kernel(self.name, add_gradients(parts, by_onednn, request))
