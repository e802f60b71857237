"""Softmax and its logarithm in compiled loops over rows, in float32."""

from __future__ import annotations

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import PLAIN, TensorSpec, strides_of, unpacked
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, Slot, native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.row_blocks import row_part
from mxrun.ops.softmax.blocks import softmax_block, softmax_gradient_block
from mxrun.ops.softmax.loops import (
    SoftmaxRowGradients,
    SoftmaxRows,
    softmax_gradient_rows_loop,
    softmax_loop,
)
from mxrun.ops.softmax.operator import SoftmaxProperty
from mxrun.ops.strided_map import permuted_part

_QUOTIENT = scalar.compile(lambda data, divisor: data / divisor, parameters=("divisor",))


@implement("softmax", "log_softmax", backend="jit")
class CompiledSoftmax(Implementation):
    """Softmax of rows; another axis is transposed to the last one in memory and back."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare data / temperature in rows, then their softmax in place."""
        assert isinstance(prop, SoftmaxProperty)
        (given,) = request.inputs
        is_served = given.dtype == FLOAT32 and given.elements > 0
        if not is_served or OpReqType.NULL in request.requests:
            return None
        data, permutation = _rows(given, prop.parameters.axis)
        columns = data.shape[prop.parameters.axis]
        temperature = prop.parameters.temperature or 1.0
        parts: list[KernelPart] = []
        place, read = target(0), source(0)
        if permutation:
            place = read = between(0)
            parts.append(permuted_part(place, source(0), data.shape, permutation, request.device))
        if temperature != 1:
            parts.append(_divided(place, read, data, temperature, request.device))
            read = place
        parts.append(
            row_part(
                *(softmax_loop, softmax_block, SoftmaxRows),
                *(data.elements // columns, columns, request.device),
                data=read,
                output=place,
                is_logarithm=int(prop.logarithm),
            )
        )
        if permutation:
            parts.append(_back(place, data, permutation, request.device))
        return native_kernel(
            self.name,
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
        columns, device = output.shape[prop.parameters.axis], request.device
        temperature = prop.parameters.temperature or 1.0
        parts: list[KernelPart] = []
        place, gradient, read = target(0), source(0), source(2)
        if permutation:
            place, gradient, read = between(0), between(0), between(1)
            for slot, original in ((gradient, source(0)), (read, source(2))):
                parts.append(permuted_part(slot, original, output.shape, permutation, device))
        parts.append(
            row_part(
                *(softmax_gradient_rows_loop, softmax_gradient_block, SoftmaxRowGradients),
                *(output.elements // columns, columns, device),
                output=read,
                grad=gradient,
                data_grad=place,
                is_logarithm=int(prop.logarithm),
            )
        )
        if temperature != 1:
            parts.append(_divided(place, place, output, temperature, device))
        if permutation:
            parts.append(_back(place, output, permutation, device))
        return native_kernel(
            self.name,
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
