"""Axes of strided tensors: their order in memory and broadcasting.

Loops receive as few axes as possible: axes that are contiguous with each other in every operand are
merged, so that tensors of one shape and layout become one run of elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mxrun.base.tensor import PLAIN, Shape, TensorSpec, strides_of, unpacked

# (size, the operands' strides) of each axis, innermost last.
Axes = list[tuple[int, Shape]]


def collapsed(axes: Iterable[tuple[int, Shape]]) -> Axes:
    """Drop axes of size 1, and merge adjacent axes if the strides of every operand allow it."""
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
    """Return the output's axes in memory order, merged, with the strides of the operands."""
    return collapsed(_in_memory(output, operands, output.shape))


def _in_memory(order: TensorSpec, specs: Sequence[TensorSpec], shape: Shape) -> Axes:
    """Return `shape`'s axes in the memory order of one tensor, with every tensor's strides.

    A stride of 0 means that the tensor is broadcast along the axis.
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
    """Return whether the axes left by a reduction over `axes` are in order in memory."""
    ranked = strides_of(spec.shape, spec.layout)
    remaining = [
        ranked[axis] for axis, size in enumerate(spec.shape) if axis not in axes and size > 1
    ]
    return remaining == sorted(remaining, reverse=True)


def broadcast_axes(spec: TensorSpec, shape: Shape) -> tuple[int, ...]:
    """Return the axes of `shape` along which a tensor of `spec` is broadcast."""
    missing = len(shape) - len(spec.shape)
    return tuple(
        axis
        for axis, size in enumerate(shape)
        if size != 1 and (axis < missing or spec.shape[axis - missing] == 1)
    )


def joint_layout(output: TensorSpec, operands: Sequence[TensorSpec]) -> TensorSpec:
    """Return the output in the layout of the first operand of its shape, else in the plain layout.

    The layout is also plain if an operand has a lower rank, because a layout refers to axes by
    number.
    """
    if all(len(operand.shape) == len(output.shape) for operand in operands):
        for operand in operands:
            if operand.shape == output.shape:
                return output.with_layout(unpacked(operand).layout)
    return output.with_layout(PLAIN)
