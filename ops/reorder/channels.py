"""Reorders between the plain and the channels-last layout by a compiled loop.

Where a library has no kernels for them, such as on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Integer, Uint16s
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.loops import elements_of_task
from mxrun.operator.native_kernel import LoopPart, source, target


class WideTransposition(Arguments):
    """Arguments of `transpose_wide`: each of the matrices has `rows` and `columns`."""

    count: Integer
    rows: Integer
    columns: Integer
    source: Float32s
    target: Float32s


class NarrowTransposition(Arguments):
    """Arguments of `transpose_narrow`, of elements of 16 bits."""

    count: Integer
    rows: Integer
    columns: Integer
    source: Uint16s
    target: Uint16s


@inlined
def transposed(count: int, rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Yield the task's elements of transposed matrices, each with its place before."""
    size = rows * columns
    for i in elements_of_task(count):
        at = i % size
        yield i, i - at + at % rows * columns + at // rows


@native
def transpose_wide(call: WideTransposition) -> None:
    """Transpose matrices of 32-bit elements."""
    for i, before in transposed(call.count, call.rows, call.columns):
        call.target[i] = call.source[before]


@native
def transpose_narrow(call: NarrowTransposition) -> None:
    """Transpose matrices of 16-bit elements."""
    for i, before in transposed(call.count, call.rows, call.columns):
        call.target[i] = call.source[before]


_LOOPS = {
    FLOAT32: (transpose_wide, WideTransposition),
    BFLOAT16: (transpose_narrow, NarrowTransposition),
}


def layout_part(data: TensorSpec, output: TensorSpec, device: DeviceDescription) -> LoopPart | None:
    """Return the loop from one layout to the other; None for other layouts or another dtype."""
    layouts = (data.layout, output.layout)
    is_known = layouts in ((PLAIN, CHANNELS_LAST), (CHANNELS_LAST, PLAIN))
    if not is_known or data.dtype != output.dtype or data.dtype not in _LOOPS:
        return None
    channels, pixels = data.shape[1], math.prod(data.shape[2:])
    rows, columns = (channels, pixels) if data.layout == PLAIN else (pixels, channels)
    loop, arguments = _LOOPS[data.dtype]
    return LoopPart(
        loop,
        arguments(
            count=data.elements, rows=rows, columns=columns, source=source(0), target=target(0)
        ),
        device.tasks_for_elements(data.elements),
    )
