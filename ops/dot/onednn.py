"""Matrix products by oneDNN."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.dtype import BFLOAT16
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.device.cpu.onednn.kernel_part import GradientParts, PrimitivePart, onednn_serves
from mxrun.device.cpu.onednn.primitive import Unsupported
from mxrun.operator.constraints import UNCONSTRAINED
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.dot.operator import MatrixProductProperty, gradients
from mxrun.ops.onednn import matrix_product


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
        dtype = request.outputs[0].dtype
        inputs = tuple(replace(spec.with_layout(PLAIN), dtype=dtype) for spec in request.inputs)
        left, right = prop.stored(inputs[0].shape, inputs[1].shape)
        p = prop.parameters
        flops = prop.flops([spec.shape for spec in inputs], [request.outputs[0].shape])
        team = request.device.team_for_flops(flops)
        output = prop.output_of(left, right)
        product = matrix_product(
            (TensorSpec(left, dtype), source(0)),
            (TensorSpec(right, dtype), source(1)),
            (TensorSpec(output, dtype), target(0)),
            team,
            (p.transpose_a, p.transpose_b),
        )
        try:
            primitive = product.prepare(UNCONSTRAINED)
        except Unsupported:
            return None
        if dtype == BFLOAT16 and primitive.is_reference:
            # float32 is faster than the bfloat16 reference.
            return None
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, product.slots)],
            inputs,
            (request.outputs[0].with_layout(PLAIN),),
            request.requests,
            request.device,
            flops=flops,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare one product per requested gradient."""
        assert isinstance(prop, MatrixProductProperty)
        read = request.forward.inputs[0]
        assert read is not None
        shapes = prop.stored(request.in_grad[0].shape, request.in_grad[1].shape)
        matrices = (prop.output_of(*shapes), *shapes)
        team = request.device.team_for_flops(request.forward.flops)
        parts, count = GradientParts(request), 0
        for side, (one, other) in enumerate(gradients(prop.parameters)):
            if parts.is_requested(side):
                product = matrix_product(
                    (TensorSpec(matrices[one.position], read.dtype), source(one.position)),
                    (TensorSpec(matrices[other.position], read.dtype), source(other.position)),
                    (TensorSpec(shapes[side], request.in_grad[side].dtype), target(side)),
                    team,
                    (one.transposed, other.transposed),
                )
                parts.add_primitive(product.prepare(UNCONSTRAINED), product.slots)
                count += 1
        return parts.kernel(count * request.forward.flops)
