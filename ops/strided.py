"""Axes of strided tensors: their order in memory, and which of them tensors repeat along.

Loops see tensors with as few axes as possible: axes that lie one behind the other in every operand
become one, so that tensors of one shape and layout are one run of elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mxrun.backend.onednn.descriptor import strides_of
from mxrun.base.tensor import PLAIN, Shape, TensorSpec, unpacked

# (size, the operands' strides) of each axis, the innermost last.
Axes = list[tuple[int, Shape]]


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
