"""LRN by oneDNN, channels last."""

from __future__ import annotations

from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.device.cpu.onednn import normalization
from mxrun.device.cpu.onednn.cut import Cuttable
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart, onednn_serves
from mxrun.device.cpu.onednn.primitive import Argument, Unsupported
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    KernelPart,
    LoopPart,
    Slot,
    extra,
    native_kernel,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.lrn.operator import LRNParameters, WindowNorm, norm_loop


@implement("LRN", backend="onednn")
class OnednnLRN(Implementation):
    """oneDNN's LRN on channels-last data, where it has optimised code: mostly for beta 0.75.

    The NumPy body handles the cases in which oneDNN 3.2 is wrong: its backward crashes for windows
    below 3, and its results are wrong for windows of 7 or more if the number of channels is not a
    multiple of its vectors of 16.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare one primitive, with a workspace for backward in training, and the norm loop."""
        data = request.inputs[0].with_layout(CHANNELS_LAST)
        primitive = _forward(prop.parameters, data, request.device, request.has_backward)
        if primitive is None:
            return None
        parts: list[KernelPart] = []
        extra_outputs: tuple[TensorSpec, ...] = ()
        if request.requests[0] is not OpReqType.NULL:
            slots: dict[Argument, Slot] = {Argument.SOURCE: source(0), Argument.OUTPUT: target(0)}
            workspace = primitive.specs.get(Argument.WORKSPACE)
            if workspace is not None:
                slots[Argument.WORKSPACE] = extra(0)
                extra_outputs = (workspace,)
            parts.append(PrimitivePart(primitive, slots))
        if request.requests[1] is not OpReqType.NULL:
            parts.append(_norm_part(prop.parameters, data, request.device))
        return native_kernel(
            f"onednn:{primitive.implementation}",
            parts,
            (data,),
            (data, data),
            request.requests,
            request.device,
            extra_outputs=extra_outputs,
            flops=prop.flops([data.shape], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare one primitive on data, the gradient and forward's workspace."""
        data = request.in_grad[0].with_layout(CHANNELS_LAST)
        cut = request.device.cut_for_elements(data.elements)
        primitive = normalization.lrn_backward(data, _window(prop.parameters), cut)
        slots: dict[Argument, Slot] = {
            Argument.OUTPUT_GRAD: source(0),
            Argument.SOURCE: source(2),
            Argument.SOURCE_GRAD: target(0),
        }
        workspace = request.forward.extra_outputs
        if workspace:
            slots[Argument.WORKSPACE] = source(5)
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, slots)],
            (data, None, data, None, None, *workspace),
            (data,),
            request.requests,
            request.device,
            flops=2 * request.forward.flops,
        )


def _forward(
    p: LRNParameters, data: TensorSpec, device: DeviceDescription, is_train: bool
) -> Cuttable | None:
    """Return the primitive, or None if oneDNN is wrong here or has only its slow reference."""
    right = 3 <= p.nsize <= 6 or (p.nsize > 6 and data.shape[1] % 16 == 0)
    if not (right and onednn_serves(data)):
        return None
    cut = device.cut_for_elements(data.elements)
    try:
        primitive = normalization.lrn_forward(data, _window(p), cut, is_train)
    except Unsupported:
        return None
    return None if primitive.is_reference else primitive


def _window(p: LRNParameters) -> normalization.ChannelWindow:
    return normalization.ChannelWindow(p.nsize, float(p.alpha), float(p.beta), float(p.knorm))


def _norm_part(p: LRNParameters, data: TensorSpec, device: DeviceDescription) -> LoopPart:
    channels = data.shape[1]
    norm = WindowNorm(
        rows=data.elements // channels,
        channels=channels,
        reach=p.reach,
        k=float(p.knorm),
        weight=float(p.alpha / p.nsize),
        data=source(0),
        norm=target(1),
    )
    return LoopPart(norm_loop, norm, device.tasks_for_elements(data.elements))
