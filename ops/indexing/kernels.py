"""Kernels of operators whose output consists of data's rows at given indices."""

from __future__ import annotations

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, TensorSpec, align
from mxrun.codegen.jit import NativeFunction
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    LoopPart,
    Scratch,
    Slot,
    native_kernel,
    source,
    target,
)
from mxrun.operator.scalar import without_add_requests
from mxrun.ops.indexing.loops import (
    OrderedRows,
    RowGathering,
    RowScattering,
    RowSelection,
    RowSums,
    SumStoring,
    gather_rows_loop,
    order_rows_loop,
    scatter_rows_loop,
    store_sums_loop,
    sum_rows_loop,
)
from mxrun.ops.rows import RowZeroing, zero_rows_loop


def is_served(request: ForwardRequest) -> bool:
    """Return whether the loops support these tensors: floats, with int32 indices."""
    data, *indices = request.inputs
    return (
        data.dtype in (FLOAT32, BFLOAT16)
        and request.outputs[0].dtype == data.dtype
        and all(spec.dtype == "int32" for spec in indices)
        and data.elements > 0
        and request.outputs[0].elements > 0
    )


def of_dtype(loop: NativeFunction, spec: TensorSpec) -> NativeFunction:
    """Return the loop for the elements of a tensor."""
    return loop.bfloat16 if spec.dtype == BFLOAT16 else loop


def gather_kernel(name: str, selection: RowSelection, request: ForwardRequest) -> Kernel:
    """Prepare one copy of each row."""
    data, *indices = (spec.with_layout(PLAIN) for spec in request.inputs)
    output = request.outputs[0].with_layout(PLAIN)
    gathering = RowGathering(
        **vars(selection),
        indices=source(1) if indices else None,
        data=source(0),
        output=target(0),
        is_added=int(request.requests[0] is OpReqType.ADD),
    )
    tasks = request.device.tasks_for_elements(output.elements)
    return native_kernel(
        name,
        [LoopPart(of_dtype(gather_rows_loop, data), gathering, tasks)],
        (data, *indices),
        (output,),
        without_add_requests(request.requests),
        request.device,
        # Only the copied rows of data are read.
        bytes_moved=sum(spec.nbytes for spec in indices) + 2 * output.nbytes,
    )


def sum_parts(
    selection: RowSelection,
    grad: tuple[Slot, TensorSpec],
    indices: Slot,
    output: tuple[Slot, TensorSpec],
    device: DeviceDescription,
    request: OpReqType,
) -> list[LoopPart]:
    """Return output = sums of the rows of grad with each index, or added; for inner = 1."""
    tasks = device.tasks_for_elements(grad[1].elements + output[1].elements)
    sums_bytes = align(8 * device.workers(tasks) * align(selection.columns))
    ends = Scratch(sums_bytes + align(4 * selection.count))
    arguments = {
        **vars(selection),
        "indices": indices,
        "order": Scratch(sums_bytes),
        "ends": ends,
    }
    is_added, is_direct = request is OpReqType.ADD, output[1].dtype == FLOAT32
    sums = RowSums(
        **arguments,
        grad=grad[0],
        output=output[0],
        is_added=int(is_added),
        writes_zeros=int(not is_added and not is_direct),
        sums=Scratch(),
    )
    scratch = ends.offset + 4 * selection.size
    # One pass that only clears takes half as long for large tables as clearing row by row.
    is_cleared = is_direct and not is_added
    zeros = [_zeros(output[0], output[1].elements, device, 0)] if is_cleared else []
    return [
        *zeros,
        LoopPart(order_rows_loop, OrderedRows(**arguments), 1, scratch),
        LoopPart(of_dtype(sum_rows_loop, output[1]), sums, tasks, scratch),
    ]


def scatter_kernel(name: str, selection: RowSelection, request: BackwardRequest) -> Kernel:
    """Prepare the sums of each index's rows, or their additions to zeros if no two meet.

    The latter are made in float32 scratch space for bfloat16.
    """
    gradient, *others = request.out_grad[0], *request.in_data
    assert gradient is not None
    gradient, data = gradient.with_layout(PLAIN), request.in_grad[0].with_layout(PLAIN)
    indices = [spec and spec.with_layout(PLAIN) for spec in others[1:]]
    is_added = request.requests[0] is OpReqType.ADD
    if selection.count > 1:
        operands, written = (source(0), gradient), (target(0), data)
        return native_kernel(
            name,
            sum_parts(selection, operands, source(2), written, request.device, request.requests[0]),
            (gradient, None, *indices, None),
            (data, *(None for _ in indices)),
            without_add_requests(request.requests),
            request.device,
            flops=gradient.elements,
        )
    is_direct = data.dtype == FLOAT32
    sums, device = target(0) if is_direct else Scratch(), request.device
    scratch = 0 if is_direct else 4 * data.elements
    scattering = RowScattering(
        **vars(selection),
        indices=source(2) if indices else None,
        grad=source(0),
        sums=sums,
    )
    tasks = request.device.tasks_for_elements(gradient.elements)
    parts = [
        LoopPart(of_dtype(scatter_rows_loop, gradient), scattering, tasks, scratch),
    ]
    parts.insert(0, _zeros(sums, data.elements, device, scratch))
    requests = request.requests
    if not is_direct:
        storing = SumStoring(
            elements=data.elements, sums=sums, output=target(0), is_added=int(is_added)
        )
        tasks = request.device.tasks_for_elements(data.elements)
        parts.append(LoopPart(store_sums_loop.bfloat16, storing, tasks, scratch))
        requests = without_add_requests(requests)
    return native_kernel(
        name,
        parts,
        (gradient, None, *indices, None),
        (data, *(None for _ in indices)),
        requests,
        device,
        flops=gradient.elements,
    )


def _zeros(
    sums: Slot | Scratch, elements: int, device: DeviceDescription, scratch: int
) -> LoopPart:
    zeroing = RowZeroing(rows=1, columns=elements, target=sums, offset=0, stride=elements)
    return LoopPart(zero_rows_loop, zeroing, device.tasks_for_elements(elements), scratch)
