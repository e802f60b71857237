"""Permutations of axes by oneDNN's reorders."""

from __future__ import annotations

from mxrun.base.tensor import PLAIN, Shape, TensorSpec, unpacked
from mxrun.device.cpu.onednn import movement
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart, onednn_serves
from mxrun.device.cpu.onednn.primitive import Argument
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.transpose.operator import PermutationProperty, inverse


@implement("transpose", "SwapAxis", backend="onednn")
class OnednnPermutation(Implementation):
    """One reorder between strided tensors; data may be channels-last, the output is plain."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the reorder from data's layout to the plain layout."""
        (data,) = request.inputs
        if not onednn_serves(data):
            return None
        output = request.outputs[0].with_layout(PLAIN)
        assert isinstance(prop, PermutationProperty)
        axes = prop.axes(len(data.shape))
        return _kernel(request, (unpacked(data),), output, axes)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the reorder from the gradient's layout to the one that data had."""
        (gradient,), (data,) = request.out_grad, request.forward.inputs
        assert gradient is not None
        assert data is not None
        assert isinstance(prop, PermutationProperty)
        axes = inverse(prop.axes(len(data.shape)))
        return _kernel(request, (unpacked(gradient), None, None), data, axes)


def _kernel(
    request: ForwardRequest | BackwardRequest,
    inputs: tuple[TensorSpec | None, ...],
    output: TensorSpec,
    axes: Shape,
) -> Kernel:
    """Return the kernel that permutes the axes of the first input."""
    data = inputs[0]
    assert data is not None
    cut = request.device.cut_for_elements(data.elements)
    primitive = movement.transpose(data, output, axes, cut)
    return native_kernel(
        f"onednn:{primitive.implementation}",
        [PrimitivePart(primitive, {Argument.SOURCE: source(0), Argument.OUTPUT: target(0)})],
        inputs,
        (output,),
        request.requests,
        request.device,
    )
