"""FullyConnected by oneDNN: in bfloat16 too, and with packed weights."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.dtype import BFLOAT16
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.device.cpu.onednn.descriptor import ANY
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart, onednn_serves
from mxrun.device.cpu.onednn.primitive import Argument, Unsupported
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.register import AnyProperty, implement
from mxrun.ops.onednn import OnednnLinear, OnednnProduct, matrix_product

_WEIGHT = 1


@implement("FullyConnected", backend="onednn")
class OnednnFullyConnected(OnednnLinear):
    """oneDNN's matrix products with the plain weight, or a packed one if the weight is fixed.

    A packed weight makes a product up to three times faster if there are few rows, but the reorder
    costs more than it saves. The same holds in bfloat16: one plain copy serves forward and
    backward.
    """

    layout = PLAIN

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare output = data x weight^T + bias as one primitive, in the output's dtype."""
        if not onednn_serves(*request.inputs, low=True):
            return None
        given, weight, *bias = (spec.with_layout(PLAIN) for spec in request.inputs)
        output = request.outputs[0]
        data, weight = (replace(spec, dtype=output.dtype) for spec in (given, weight))
        hidden, features = weight.shape
        if _WEIGHT in request.fixed:
            weight = weight.with_layout(ANY)
        left, output = _matrix(data, features), _matrix(output, hidden)
        flops = 2 * output.elements * features
        team = request.device.team_for_flops(flops)
        product = matrix_product(
            (left, source(0)),
            (weight, source(1)),
            (output, target(0)),
            team,
            transposed=(False, True),
            bias=source(2) if bias else None,
        )
        try:
            primitive = product.prepared("output", request.choices)
        except Unsupported:
            return None
        if output.dtype == BFLOAT16 and primitive.is_reference:
            # float32 is faster than the bfloat16 reference.
            return None
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, product.slots)],
            (data, primitive.specs[Argument.WEIGHTS], *bias),
            request.outputs,
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
    ) -> tuple[OnednnProduct, OnednnProduct]:
        """data: grad x weight; weight: grad^T x data."""
        hidden, features = weight.shape
        gradient, data = _matrix(gradient, hidden), _matrix(data, features)
        team = request.device.team_for_flops(request.forward.flops)
        results = [_matrix(spec, features) for spec in request.in_grad[:2]]
        return (
            matrix_product(
                (gradient, source(0)),
                (weight.with_layout(PLAIN), source(2)),
                (results[0], target(0)),
                team,
            ),
            matrix_product(
                (gradient, source(0)),
                (data, source(1)),
                (results[1], target(1)),
                team,
                transposed=(True, False),
            ),
        )


def _matrix(spec: TensorSpec, columns: int) -> TensorSpec:
    """Return the same plain memory as rows of `columns` elements."""
    return TensorSpec((spec.elements // columns, columns), spec.dtype)
