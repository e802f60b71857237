"""Compiled loops over strided tensors: elementwise maps with broadcasting.

They see their tensors with as few axes as possible: axes that lie one behind the other in every
operand become one, so that tensors of one shape and layout are one run of elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum

import numpy as np

from mxrun.backend.jit import Block, arithmetic, float32s, integer, native, real, share
from mxrun.backend.onednn.descriptor import strides_of
from mxrun.backend.team import team_for_elements
from mxrun.base.tensor import PLAIN, Shape, TensorSpec, unpacked
from mxrun.operator.native_kernel import LoopPart, Slot

# (size, the operands' strides) of each axis, the innermost last.
Axes = list[tuple[int, Shape]]


class Map(IntEnum):
    """What `map_part` computes of up to three operands x, y and z."""

    ADD = 0
    SUBTRACT = 1
    MULTIPLY = 2
    DIVIDE = 3
    SCALE = 4  # x * factor
    QUOTIENT_GRADIENT = 5  # -x * y / z^2
    WHERE_EQUAL = 6  # x where y = z, else 0


@native
def map_loop(block: Block) -> None:
    """output = map(x, y, z), in the order of the output's memory; it may lie over an operand.

    Slots: the map, elements, elements of an innermost run, output, x, y, z, factor, steps of x, y
    and z within a run (0 or 1; any for SCALE), count of outer axes, then of each, the innermost
    first: size and the strides of x, y and z.
    """
    kind, inner = integer(block, 0), integer(block, 2)
    output, factor = float32s(block, 3), real(block, 7)
    x, y, z = float32s(block, 4), float32s(block, 5), float32s(block, 6)
    step_x, step_y, step_z = integer(block, 8), integer(block, 9), integer(block, 10)
    over_x = integer(block, 3) == integer(block, 4)
    over_y = integer(block, 3) == integer(block, 5)
    at, end = share(block, integer(block, 1))
    while at < end:
        row = at // inner
        first = at - row * inner
        count = min(end - at, inner - first)
        a, b, c = first * step_x, first * step_y, first * step_z
        for axis in range(12, 12 + 4 * integer(block, 11), 4):
            position = row % integer(block, axis)
            row = row // integer(block, axis)
            a += position * integer(block, axis + 1)
            b += position * integer(block, axis + 2)
            c += position * integer(block, axis + 3)
        # One loop per case of steps and overlap: so each becomes vector code.
        if kind == 4:
            for i in range(count):
                output[at + i] = x[a + i * step_x] * factor
        elif kind == 5:
            for i in range(count):
                divisor = z[c + i * step_z]
                output[at + i] = -x[a + i] * y[b + i * step_y] / (divisor * divisor)
        elif kind == 6:
            for i in range(count):
                equal = y[b + i] == z[c + i * step_z]
                output[at + i] = x[a + i * step_x] if equal else np.float32(0)
        elif over_x and step_y == 1:
            for i in range(count):
                output[at + i] = arithmetic(kind, output[at + i], y[b + i])
        elif over_y and step_x == 1:
            for i in range(count):
                output[at + i] = arithmetic(kind, x[a + i], output[at + i])
        elif step_y == 1:
            for i in range(count):
                output[at + i] = arithmetic(kind, x[a + i * step_x], y[b + i])
        else:
            for i in range(count):
                output[at + i] = arithmetic(kind, x[a + i], y[b])
        at += count


def map_part(
    kind: Map,
    output: tuple[Slot, TensorSpec],
    operands: Sequence[tuple[Slot, TensorSpec]],
    threads: int,
    factor: float = 1.0,
) -> LoopPart:
    """output = map of the operands, which broadcast to its shape; all in one unpacked layout."""
    slot, spec = output
    slots = [operand for operand, _ in operands]
    axes = common_axes(spec, [operand for _, operand in operands])
    if axes and kind in (Map.ADD, Map.MULTIPLY) and axes[-1][1][0] == 0:
        # The loop keeps y in a register along a run, not x; the two may change places.
        slots.reverse()
        axes = [(size, strides[::-1]) for size, strides in axes]
    return _map_part(kind, spec.elements, slot, slots, axes, threads, factor)


def permuted_part(
    output: Slot, data: Slot, shape: Shape, order: Sequence[int], threads: int
) -> LoopPart:
    """output = plain data of `shape`, its axes in another order."""
    strides = strides_of(shape, PLAIN)
    axes = collapsed((shape[axis], (strides[axis],)) for axis in order)
    return _map_part(Map.SCALE, math.prod(shape), output, [data], axes, threads, 1.0)


def _map_part(
    kind: Map,
    elements: int,
    output: Slot,
    operands: Sequence[Slot],
    axes: Axes,
    threads: int,
    factor: float,
) -> LoopPart:
    """The loop over `axes`, the output's in its memory, with the operands' strides."""
    absent = (0,) * (3 - len(operands))
    inner, steps = axes[-1] if axes else (1, (1,) * len(operands))
    outer = [number for size, strides in axes[-2::-1] for number in (size, *strides, *absent)]
    arguments: list[Slot | int | float] = [int(kind), elements, inner, output, *operands, *absent]
    arguments += [factor, *steps, *absent, max(len(axes) - 1, 0), *outer]
    return LoopPart(map_loop, tuple(arguments), team_for_elements(elements, threads))


def collapsed(axes: Iterable[tuple[int, Shape]]) -> Axes:
    """The axes without those of one element, neighbours joined where every operand allows it."""
    result: Axes = []
    for size, strides in axes:
        if size == 1:
            continue
        if result:
            before, outer = result[-1]
            if all(o == size * s for o, s in zip(outer, strides, strict=True)):
                result[-1] = (before * size, strides)
                continue
        result.append((size, strides))
    return result


def common_axes(output: TensorSpec, operands: Sequence[TensorSpec]) -> Axes:
    """The output's axes in its memory, as few as can be, with the strides of the operands."""
    return collapsed(_in_memory(output, operands, output.shape))


def _in_memory(order: TensorSpec, specs: Sequence[TensorSpec], shape: Shape) -> Axes:
    """`shape`'s axes in the order of one tensor's memory, with every tensor's strides (0: it
    broadcasts along that axis).
    """
    ranked = strides_of(order.shape, order.layout)
    strides = [_strides(spec, shape) for spec in specs]
    axes = sorted(range(len(shape)), key=lambda axis: (-ranked[axis], axis))
    return [(shape[axis], tuple(one[axis] for one in strides)) for axis in axes]


def _strides(spec: TensorSpec, shape: Shape) -> Shape:
    missing = len(shape) - len(spec.shape)
    own = strides_of(spec.shape, spec.layout)
    moving = (0 if size == 1 else stride for size, stride in zip(spec.shape, own, strict=True))
    return (0,) * missing + tuple(moving)


def same_order(spec: TensorSpec, axes: Sequence[int]) -> bool:
    """Whether what a reduction over `axes` keeps lies in memory in the order of the axes."""
    ranked = strides_of(spec.shape, spec.layout)
    kept = [ranked[axis] for axis, size in enumerate(spec.shape) if axis not in axes and size > 1]
    return kept == sorted(kept, reverse=True)


def broadcast_axes(spec: TensorSpec, shape: Shape) -> tuple[int, ...]:
    """The axes of `shape` along which a tensor of `spec` is repeated."""
    missing = len(shape) - len(spec.shape)
    return tuple(
        axis
        for axis, size in enumerate(shape)
        if size != 1 and (axis < missing or spec.shape[axis - missing] == 1)
    )


def joint_layout(output: TensorSpec, operands: Sequence[TensorSpec]) -> TensorSpec:
    """The output in the layout of the first operand of its shape; plain where none has it, or
    where the axes of an operand of lower rank would not be those of the layout.
    """
    if all(len(operand.shape) == len(output.shape) for operand in operands):
        for operand in operands:
            if operand.shape == output.shape:
                return output.laid_out(unpacked(operand).layout)
    return output.laid_out(PLAIN)
