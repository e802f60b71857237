"""FullyConnected of few rows in inference: dot products with the rows of the plain weight.

Such a product takes as long as it takes to read the weight, so it is read once, where it is: no
packed copy of it is stored. Each element is one sum in a fixed order, so a row's results depend
neither on the batch's other rows nor on the tasks.
"""

from __future__ import annotations

from typing import Any

from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import PLAIN
from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.loops import elements_of_task
from mxrun.codegen.vectors import LANES, add_lanes, lanes, load_lanes, multiply_lanes, sum_lanes
from mxrun.operator.kernel import ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, source, target
from mxrun.operator.register import AnyProperty, implement
from mxrun.ops.forward_only import ForwardOnlyImplementation

# FewRows up to which the weight's rows, in the cache, are multiplied one by one as fast as by a
# product of matrices, which needs a packed weight.
_MAX_ROWS = 2
# Bytes of the weight for each thread: one thread reads them in some 8 us, and wherever other
# processes run, waiting for a second one costs far more than it saves.
_BYTES_PER_TASK = 262_144


class FewRows(Arguments):
    """data [rows, columns] x weight^T [columns, outputs] + bias [outputs], if there is one."""

    rows: Integer
    columns: Integer
    outputs: Integer
    data: Float32s
    weight: Float32s
    bias: Float32s
    output: Float32s


@inlined
def product(call: FewRows, data: int, weight: int, count: int) -> Any:
    """Return a vector of products."""
    return multiply_lanes(
        load_lanes(call.data, data, count), load_lanes(call.weight, weight, count)
    )


@inlined
def dot(call: FewRows, data: int, weight: int) -> Any:
    """Return the dot product of a row of data and a row of the weight."""
    columns = call.columns
    steps, full = columns // (4 * LANES) * (4 * LANES), columns // LANES * LANES
    a, b, c, d = lanes(0.0), lanes(0.0), lanes(0.0), lanes(0.0)
    for j in range(0, steps, 4 * LANES):
        a = add_lanes(a, product(call, data + j, weight + j, LANES))
        b = add_lanes(b, product(call, data + j + LANES, weight + j + LANES, LANES))
        c = add_lanes(c, product(call, data + j + 2 * LANES, weight + j + 2 * LANES, LANES))
        d = add_lanes(d, product(call, data + j + 3 * LANES, weight + j + 3 * LANES, LANES))
    for j in range(steps, full, LANES):
        a = add_lanes(a, product(call, data + j, weight + j, LANES))
    if full < columns:
        a = add_lanes(a, product(call, data + full, weight + full, columns - full))
    return sum_lanes(add_lanes(add_lanes(a, b), add_lanes(c, d)), LANES)


@native
def few_rows_loop(call: FewRows) -> None:
    """output[r, o] = data[r] . weight[o] + bias[o], a row of the weight after the other."""
    for o in elements_of_task(call.outputs):
        for r in range(call.rows):
            value = dot(call, r * call.columns, o * call.columns)
            if call.bias is not None:
                value += call.bias[o]
            call.output[r * call.outputs + o] = value


@implement("FullyConnected", backend="few_rows", before="jit")
class FewRowsFullyConnected(ForwardOnlyImplementation):
    """One loop over the weight's rows, for one or two rows of float32 in inference."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the loop."""
        outputs, columns = request.inputs[1].shape
        rows = request.outputs[0].elements // max(outputs, 1)
        specs = (*request.inputs, *request.outputs)
        is_served = 0 < rows <= _MAX_ROWS and columns > 0
        if not is_served or request.has_backward or any(s.dtype != FLOAT32 for s in specs):
            return None
        loop = FewRows(
            rows=rows,
            columns=columns,
            outputs=outputs,
            data=source(0),
            weight=source(1),
            bias=source(2) if len(request.inputs) > 2 else None,
            output=target(0),
        )
        nbytes = request.inputs[1].with_layout(PLAIN).nbytes
        tasks = request.device.most_tasks(nbytes // _BYTES_PER_TASK)
        return self.plain_kernel(prop, request, [LoopPart(few_rows_loop, loop, tasks)])
