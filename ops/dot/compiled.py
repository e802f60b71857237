"""dot and batch_dot in compiled loops over tiles of their products."""

from __future__ import annotations

from mxrun.base.tensor import PLAIN
from mxrun.operator.gradient_parts import GradientParts
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import native_kernel
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.dense_product import dense_product, dense_product_serves
from mxrun.ops.dot.operator import MatrixProductProperty
from mxrun.ops.dot.products import gradient_products, output_product, read_specs
from mxrun.ops.linear import add_gradients


@implement("dot", "batch_dot", backend="jit", before="onednn")
class CompiledDot(Implementation):
    """Products of plain tensors, in float32 or, where processors multiply it, bfloat16."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare one product."""
        assert isinstance(prop, MatrixProductProperty)
        output = request.outputs[0].with_layout(PLAIN)
        if not all(spec.elements for spec in (*request.inputs, output)):
            return None
        if not dense_product_serves(output.dtype, request.device):
            return None
        product = output_product(prop, request)
        return native_kernel(
            self.name,
            [dense_product(product, request.device)],
            read_specs(request),
            (output,),
            request.requests,
            request.device,
            flops=product.flops,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare one product for each requested gradient."""
        assert isinstance(prop, MatrixProductProperty)
        parts = GradientParts(request)
        return parts.kernel(
            self.name, add_gradients(parts, gradient_products(prop, request), request)
        )
