"""LayerNorm and RMSNorm in compiled loops, for float32 or bfloat16 tensors.

If the axis is not the last one, the loops work on transposed copies in scratch space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.codegen.jit import NativeFunction
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType, adding
from mxrun.operator.native_kernel import (
    KernelPart,
    LoopPart,
    Scratch,
    Slot,
    native_kernel,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.operator.scalar import without_add_requests
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.column_sum import RowBlocks
from mxrun.ops.layer_norm.blocks import normalize_rows_block
from mxrun.ops.layer_norm.loops import (
    RowGradients,
    RowNormalization,
    normalize_rows_loop,
    row_gradients_loop,
)
from mxrun.ops.layer_norm.operator import BETA, DATA, GAMMA, STATISTICS, RowNormProperty
from mxrun.ops.row_blocks import row_part
from mxrun.ops.strided_map import permuted_part


@dataclass(frozen=True)
class RowLayout:
    """Data as rows along an axis: in place if it is the last one, else in a transposed copy."""

    data: TensorSpec
    axis: int
    device: DeviceDescription

    @property
    def columns(self) -> int:
        return self.data.shape[self.axis]

    @property
    def rows(self) -> int:
        return self.data.elements // self.columns

    @property
    def blocks(self) -> RowBlocks:
        """Blocks of rows whose sums are [blocks, 2, columns], for gamma and beta."""
        return RowBlocks(self.rows, 2 * self.columns)

    @property
    def tasks(self) -> int:
        return self.device.tasks_for_elements(self.data.elements)

    @property
    def is_transposed(self) -> bool:
        return math.prod(self.data.shape[self.axis + 1 :]) > 1

    @property
    def _shape(self) -> Shape:
        """Sizes before the axis, on it and behind it."""
        shape, axis = self.data.shape, self.axis
        return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])

    def to_rows(self, output: Slot, data: Slot) -> KernelPart:
        """Return output = data with the axis last."""
        return permuted_part(output, data, self._shape, (0, 2, 1), self.device)

    def from_rows(self, output: Slot, rows: Slot) -> KernelPart:
        """Return output = rows with the axis in its place."""
        before, columns, after = self._shape
        return permuted_part(output, rows, (before, after, columns), (0, 2, 1), self.device)

    def of(self, loop: NativeFunction) -> NativeFunction:
        """Return the loop for tensors of the data's dtype."""
        return loop.bfloat16 if self.data.dtype == BFLOAT16 else loop


@implement("LayerNorm", "RMSNorm", backend="jit")
class CompiledRowNorm(Implementation):
    """One loop over rows that stay in the cache; others sum the gradients of gamma and beta."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare statistics and output, row by row."""
        assert isinstance(prop, RowNormProperty)
        rows = _served_rows(prop, request)
        if rows is None:
            return None
        output, *statistics = requested_slots(request.requests)
        read = source(DATA)
        parts: list[KernelPart] = []
        if rows.is_transposed:
            parts.append(rows.to_rows(between(0), read))
            read = between(0)
        normalization = row_part(
            *(rows.of(normalize_rows_loop), rows.of(normalize_rows_block), RowNormalization),
            *(rows.rows, rows.columns, request.device),
            data=read,
            gamma=source(GAMMA),
            beta=source(BETA) if prop.is_centered else None,
            left=None,
            right=None,
            output=between(0) if rows.is_transposed else output,
            mean=statistics[0] if prop.is_centered else None,
            deviation=statistics[-1],
            epsilon=float(prop.parameters.eps),
            is_centered=int(prop.is_centered),
        )
        parts.append(normalization)
        if rows.is_transposed and output is not None:
            parts.append(rows.from_rows(output, between(0)))
        plain = [spec.with_layout(PLAIN) for spec in request.outputs]
        return native_kernel(
            self.name,
            [ChainPart(tuple(parts), (rows.data.nbytes,) * rows.is_transposed)],
            (rows.data, *(spec.with_layout(PLAIN) for spec in request.inputs[GAMMA:])),
            tuple(plain),
            request.requests,
            request.device,
            flops=prop.flops([rows.data.shape], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare data's gradient and the blocks' sums, row by row, then the sums of the blocks."""
        assert isinstance(prop, RowNormProperty)
        data, *scales = (spec.with_layout(PLAIN) for spec in request.in_grad)
        rows = RowLayout(data, prop.parameters.axis % len(data.shape), request.device)
        requests, added = request.requests, {}
        if not rows.is_transposed:
            requests = (*without_add_requests(requests[:GAMMA]), *requests[GAMMA:])
            added = adding(partial(self.prepare_backward, prop), request, (DATA,))
        heads, shifts = (None,) * (len(request.out_grad) - 1), (None,) * len(scales[1:])
        statistics = request.forward.outputs[STATISTICS:]
        return native_kernel(
            self.name,
            [_gradients(prop, request, rows)],
            (data, *heads, data, scales[0], *shifts, None, *statistics),
            (data, *scales),
            requests,
            request.device,
            flops=2 * prop.flops([data.shape], []),
            adding=added,
        )


def _gradients(prop: RowNormProperty, request: BackwardRequest, rows: RowLayout) -> ChainPart:
    """Return the requested gradients; a transposed gradient of data is not added."""
    data_grad, *scale_grads = requested_slots(request.requests)
    first = len(request.out_grad)
    second, transposed = first + len(request.in_data), rows.is_transposed
    grad, read, written = source(0), source(first + DATA), data_grad
    parts: list[KernelPart] = []
    if transposed:
        parts += [rows.to_rows(between(0), grad), rows.to_rows(between(1), read)]
        grad, read = between(0), between(1)
        written = None if data_grad is None else between(0)
    gradients = RowGradients(
        rows=rows.rows,
        columns=rows.columns,
        data=read,
        gamma=source(first + GAMMA),
        mean=source(second + STATISTICS) if prop.is_centered else None,
        deviation=source(second + len(request.out_data) - 1),
        grad=grad,
        residual=None,
        data_grad=written,
        is_added=int(not transposed and request.requests[DATA] is OpReqType.ADD),
        sums=None,
        running=None,
        blocks=rows.blocks.count,
        rows_per_block=rows.blocks.rows_per_block,
    )
    sums = between(2 if transposed else 0)
    parts += gradient_parts(gradients, scale_grads, rows, sums)
    if transposed and data_grad is not None:
        parts.append(rows.from_rows(data_grad, between(0)))
    sizes = (*(rows.data.nbytes,) * 2 * transposed, rows.blocks.sums_bytes)
    return ChainPart(tuple(parts), sizes if any(scale_grads) else sizes[:-1])


def gradient_parts(
    gradients: RowGradients, scale_grads: Sequence[Slot | None], rows: RowLayout, sums: Slot
) -> list[KernelPart]:
    """Return the loop of the rows' gradients, and the sums for gamma and beta where requested.

    gradients: arguments without `sums` and `running`. scale_grads: of gamma and, if there is one,
    beta. sums: scratch tensor of the chain, in which the first loop leaves what those after it add.
    """
    if any(scale_grads):
        gradients = replace(gradients, sums=sums, running=Scratch())
    running_bytes = 4 * 2 * rows.columns * rows.device.workers(rows.tasks) * any(scale_grads)
    loop = rows.of(row_gradients_loop)
    parts: list[KernelPart] = [LoopPart(loop, gradients, rows.tasks, running_bytes)]
    for index, total in enumerate(scale_grads):
        if total is not None:
            columns = range(index * rows.columns, (index + 1) * rows.columns)
            parts.append(rows.blocks.total_part(sums, total, rows.device, columns))
    return parts


def _served_rows(prop: RowNormProperty, request: ForwardRequest) -> RowLayout | None:
    """Return data's rows; None if the loops do not support the tensors.

    Data and output share one dtype, the others are float32. Bfloat16 needs the last axis, and its
    output cannot be added to.
    """
    data = request.inputs[DATA].with_layout(PLAIN)
    rows = RowLayout(data, prop.parameters.axis % len(data.shape), request.device)
    others = (*request.inputs[GAMMA:], *request.outputs[STATISTICS:])
    if any(spec.dtype != FLOAT32 for spec in others) or not data.elements:
        return None
    if request.outputs[0].dtype != data.dtype or data.dtype not in (FLOAT32, BFLOAT16):
        return None
    is_low = data.dtype == BFLOAT16
    if is_low and (rows.is_transposed or request.requests[0] is OpReqType.ADD):
        return None
    return rows


def requested_slots(requests: tuple[OpReqType, ...]) -> list[Slot | None]:
    """Return the outputs' slots; None for a null request."""
    return [
        None if request is OpReqType.NULL else target(index)
        for index, request in enumerate(requests)
    ]
