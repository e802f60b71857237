"""FullyConnected by a library."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator.constraints import Unsupported
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import native_kernel, source
from mxrun.operator.register import AnyProperty
from mxrun.ops.fully_connected.products import gradient_products, output_product
from mxrun.ops.library_product import LibraryProduct, MatrixLibrary
from mxrun.ops.linear import LinearImplementation

_WEIGHT = 1


class LibraryFullyConnected(MatrixLibrary, LinearImplementation):
    """A library's matrix products with the plain weight, or a packed one if the weight is fixed."""

    def fixed(self, weight: TensorSpec) -> TensorSpec:
        """Return the spec in which the library takes a weight that does not change."""
        return weight

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare output = data x weight^T + bias as one product, in the output's dtype."""
        if not self.serves(request.device, *request.inputs):
            return None
        given, weight, *bias = (spec.with_layout(PLAIN) for spec in request.inputs)
        output = request.outputs[0]
        data, weight = (replace(spec, dtype=output.dtype) for spec in (given, weight))
        if _WEIGHT in request.fixed:
            weight = self.fixed(weight)
        bias = [replace(spec, dtype=FLOAT32) for spec in bias]
        product = output_product(data, weight, output, has_bias=bool(bias))
        try:
            made = self.matrix_product(product, request.device).prepared("output", request.choices)
        except Unsupported:
            return None
        if output.dtype == BFLOAT16 and made.is_reference:
            # float32 is faster than the bfloat16 reference.
            return None
        gradients = gradient_products(output, data, weight, (data, replace(weight, dtype=FLOAT32)))
        if request.has_backward and not self.have_gradients(gradients, request.device):
            return None
        return native_kernel(
            f"{self.name}:{made.implementation}",
            [made.part],
            (data, made.specs[source(_WEIGHT)], *bias),
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
    ) -> tuple[LibraryProduct, LibraryProduct]:
        """data: grad x weight; weight: grad^T x data."""
        products = gradient_products(gradient, data, weight, request.in_grad)
        first, second = (self.matrix_product(product, request.device) for product in products)
        return first, second
