"""Softmax of rows by oneDNN."""

from __future__ import annotations

from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import PLAIN, TensorSpec, strides_of, unpacked
from mxrun.device.cpu.onednn import operations
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart, onednn_serves
from mxrun.device.cpu.onednn.primitive import Argument
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, Slot, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.softmax.operator import SoftmaxProperty
from mxrun.ops.strided_map import permuted_part

_QUOTIENT = scalar.compile(lambda data, divisor: data / divisor, parameters=("divisor",))


@implement("softmax", "log_softmax", backend="onednn")
class OnednnSoftmax(Implementation):
    """oneDNN's softmax of rows; another axis is transposed to the last one in memory and back.

    oneDNN's code for other axes is a slow reference: 3.3 against 0.1 ms for 8 x 16 x 20 x 20.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare data / temperature in rows, then their softmax in place."""
        assert isinstance(prop, SoftmaxProperty)
        if not onednn_serves(*request.inputs) or OpReqType.NULL in request.requests:
            return None
        data, permutation = _rows(request.inputs[0], prop.parameters.axis)
        rows = _matrix(data, prop.parameters.axis)
        team = request.device.team_for_elements(data.elements)
        softmax = operations.softmax_forward(rows, 1, team, prop.logarithm)
        temperature = prop.parameters.temperature or 1.0
        parts: list[KernelPart] = []
        place, read = target(0), source(0)
        if permutation:
            place = read = between(0)
            parts.append(permuted_part(place, source(0), data.shape, permutation, request.device))
        if temperature != 1:
            parts.append(_divided(place, read, data, temperature, request.device))
            read = place
        parts.append(PrimitivePart(softmax, {Argument.SOURCE: read, Argument.OUTPUT: place}))
        if permutation:
            parts.append(_back(place, data, permutation, request.device))
        return native_kernel(
            f"onednn:{softmax.implementation}",
            [ChainPart(tuple(parts), (data.nbytes,) if permutation else ())],
            (data,),
            (data,),
            request.requests,
            request.device,
            flops=5 * data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient in rows, then its division by the temperature in place."""
        assert isinstance(prop, SoftmaxProperty)
        (given,) = request.out_data
        assert given is not None
        output, permutation = _rows(given, prop.parameters.axis)
        rows = _matrix(output, prop.parameters.axis)
        device = request.device
        softmax = operations.softmax_backward(
            rows, 1, device.team_for_elements(output.elements), prop.logarithm
        )
        temperature = prop.parameters.temperature or 1.0
        parts: list[KernelPart] = []
        place, gradient, read = target(0), source(0), source(2)
        if permutation:
            place, gradient, read = between(0), between(0), between(1)
            for slot, original in ((gradient, source(0)), (read, source(2))):
                parts.append(permuted_part(slot, original, output.shape, permutation, device))
        slots = {
            Argument.OUTPUT_GRAD: gradient,
            Argument.OUTPUT: read,
            Argument.SOURCE_GRAD: place,
        }
        parts.append(PrimitivePart(softmax, slots))
        if temperature != 1:
            parts.append(_divided(place, place, output, temperature, device))
        if permutation:
            parts.append(_back(place, output, permutation, device))
        return native_kernel(
            f"onednn:{softmax.implementation}",
            [ChainPart(tuple(parts), (output.nbytes,) * 2 if permutation else ())],
            (output, None, output),
            (output,),
            request.requests,
            device,
            flops=4 * output.elements,
        )


def _rows(spec: TensorSpec, axis: int) -> tuple[TensorSpec, tuple[int, ...]]:
    """Return the spec to read and the order of axes that makes `axis` the last in memory.

    The order is empty if `axis` already is the last.
    """
    spec = unpacked(spec)
    axis %= len(spec.shape)
    for candidate in (spec, spec.with_layout(PLAIN)):
        if strides_of(candidate.shape, candidate.layout)[axis] == 1:
            return candidate, ()
    others = tuple(other for other in range(len(spec.shape)) if other != axis)
    return spec.with_layout(PLAIN), (*others, axis)


def _matrix(spec: TensorSpec, axis: int) -> TensorSpec:
    classes = spec.shape[axis]
    return TensorSpec((spec.elements // classes, classes))


def _divided(
    output: Slot, data: Slot, spec: TensorSpec, temperature: float, device: DeviceDescription
) -> KernelPart:
    """Return output = data / temperature, both in one layout."""
    return _QUOTIENT.part(output, [data], spec.elements, [temperature], device=device)


def _back(
    rows: Slot, spec: TensorSpec, permutation: tuple[int, ...], device: DeviceDescription
) -> KernelPart:
    """Return output = rows with their axes in the original order."""
    shape = tuple(spec.shape[axis] for axis in permutation)
    order = [permutation.index(axis) for axis in range(len(shape))]
    return permuted_part(target(0), rows, shape, order, device)
