"""Matrix products by a library."""

from __future__ import annotations

from mxrun.base.dtype import BFLOAT16
from mxrun.base.tensor import PLAIN
from mxrun.operator.choices import Choices
from mxrun.operator.constraints import Unsupported
from mxrun.operator.gradient_parts import GradientParts
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel
from mxrun.operator.register import AnyProperty, Implementation
from mxrun.ops.dot.operator import MatrixProductProperty
from mxrun.ops.dot.products import gradient_products, output_product, read_specs
from mxrun.ops.library_product import MatrixLibrary
from mxrun.ops.linear import add_gradients


class LibraryDot(MatrixLibrary, Implementation):
    """A library's products of plain tensors; transposed operands are read with strides.

    All operands have the output's dtype, float32 or bfloat16; gradients are computed from them.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare one product."""
        assert isinstance(prop, MatrixProductProperty)
        given = (*request.inputs, *request.outputs)
        if not self.serves(request.device, *given) or OpReqType.NULL in request.requests:
            return None
        product = output_product(prop, request)
        try:
            made = self.matrix_product(product, request.device).prepared("output", Choices())
        except Unsupported:
            return None
        if product.output.spec.dtype == BFLOAT16 and made.is_reference:
            # float32 is faster than the bfloat16 reference.
            return None
        return native_kernel(
            f"{self.name}:{made.implementation}",
            [made.part],
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
        by_library = {
            name: self.matrix_product(product, request.device) for name, product in products.items()
        }
        return parts.kernel(self.name, add_gradients(parts, by_library, request))
