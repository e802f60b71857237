"""Matrix products by oneDNN."""

from __future__ import annotations

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
    """oneDNN's matrix products of plain tensors; transposed operands are read with strides."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare one product."""
        assert isinstance(prop, MatrixProductProperty)
        if not onednn_serves(*request.inputs) or OpReqType.NULL in request.requests:
            return None
        inputs = tuple(spec.with_layout(PLAIN) for spec in request.inputs)
        left, right = prop.stored(inputs[0].shape, inputs[1].shape)
        p = prop.parameters
        flops = prop.flops([spec.shape for spec in inputs], [request.outputs[0].shape])
        team = request.device.team_for_flops(flops)
        output = prop.output_of(left, right)
        product = matrix_product(
            (TensorSpec(left), source(0)),
            (TensorSpec(right), source(1)),
            (TensorSpec(output), target(0)),
            team,
            (p.transpose_a, p.transpose_b),
        )
        try:
            primitive = product.prepare(UNCONSTRAINED)
        except Unsupported:
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
        (gradient,) = request.out_grad
        assert gradient is not None
        shapes = prop.stored(request.in_grad[0].shape, request.in_grad[1].shape)
        matrices = (prop.output_of(*shapes), *shapes)
        team = request.device.team_for_flops(request.forward.flops)
        parts, count = GradientParts(request), 0
        for side, (one, other) in enumerate(gradients(prop.parameters)):
            if parts.is_requested(side):
                product = matrix_product(
                    (TensorSpec(matrices[one.position]), source(one.position)),
                    (TensorSpec(matrices[other.position]), source(other.position)),
                    (TensorSpec(shapes[side]), target(side)),
                    team,
                    (one.transposed, other.transposed),
                )
                parts.add_primitive(product.prepare(UNCONSTRAINED), product.slots)
                count += 1
        return parts.kernel(count * request.forward.flops)
