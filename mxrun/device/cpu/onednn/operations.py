"""oneDNN primitives of mxrun, each prepared once per specs and team size.

Every function takes the specs of its tensors, with layout `ANY` (or a packed layout) if oneDNN may
choose, and returns a `Primitive` whose `specs` contain the chosen layouts. All raise `Unsupported`
if oneDNN has no admissible implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache

from mxrun.base.tensor import Shape, TensorSpec
from mxrun.device.cpu.onednn.descriptor import (
    DescriptorView,
    describe,
    dimensions,
    view_of,
)
from mxrun.device.cpu.onednn.library import require
from mxrun.device.cpu.onednn.primitive import (
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    Argument,
    ArgumentSpec,
    PostOperation,
    Primitive,
    build,
)
from mxrun.operator.constraints import UNCONSTRAINED, ImplementationConstraints

_CONVOLUTION_DIRECT = 1


@dataclass(frozen=True)
class SlidingWindow:
    """Window of a convolution or pooling.

    Per spatial axis: stride, dilation (1: dense), and padding at the beginning and the end.
    """

    stride: Shape
    dilation: Shape
    pad_begin: Shape
    pad_end: Shape
    groups: int = 1

    def arguments(self) -> tuple[object, ...]:
        """Return strides, dilations (oneDNN counts the gaps), padding_l, padding_r."""
        gaps = tuple(step - 1 for step in self.dilation)
        return tuple(
            dimensions(values) for values in (self.stride, gaps, self.pad_begin, self.pad_end)
        )

    def convolution(self) -> tuple[DescriptorView, DescriptorView, tuple[object, ...]]:
        """Return the views on data and weights of a convolution, and its arguments.

        A convolution over one axis becomes one over a plane of one row: up to 20 times faster if
        depthwise.
        """
        row = len(self.stride) == 1
        plane = self
        if row:
            plane = SlidingWindow(
                stride=(1, *self.stride),
                dilation=(1, *self.dilation),
                pad_begin=(0, *self.pad_begin),
                pad_end=(0, *self.pad_end),
            )
        return DescriptorView(row=row), DescriptorView(self.groups, row=row), plane.arguments()


class PoolType(IntEnum):
    """Kinds of pooling; averages include or exclude padding."""

    MAX = 0x1FF
    AVERAGE_WITH_PADDING = 0x2FF
    AVERAGE_WITHOUT_PADDING = 0x3FF


@cache
def convolution_forward(
    source: TensorSpec,
    weights: TensorSpec,
    output: TensorSpec,
    window: SlidingWindow,
    threads: int,
    bias: bool = False,
    is_train: bool = True,
    after: tuple[PostOperation, ...] = (),
    constraints: ImplementationConstraints = UNCONSTRAINED,
) -> Primitive:
    """Prepare SOURCE (N,C,...) * WEIGHTS (O,C/groups,...) + BIAS (O) → OUTPUT (N,O,...).

    after: post-operations on the output, in order. The bias is float32, whatever the factors are.
    """
    data_view, weights_view, geometry = window.convolution()
    requested: dict[int, ArgumentSpec] = {
        Argument.SOURCE: ArgumentSpec(source, data_view),
        Argument.WEIGHTS: ArgumentSpec(weights, weights_view),
        Argument.OUTPUT: ArgumentSpec(output, data_view),
    }
    if bias:
        requested[Argument.BIAS] = ArgumentSpec(TensorSpec(weights.shape[:1]))
    handles = _handles(requested, Argument.SOURCE, Argument.WEIGHTS, Argument.BIAS, Argument.OUTPUT)
    kind = (FORWARD_TRAINING if is_train else FORWARD_INFERENCE, _CONVOLUTION_DIRECT)
    arguments = (require().engine, *kind, *handles, *geometry)
    return build("convolution_forward", arguments, requested, threads, after, constraints)


@cache
def convolution_backward_data(
    source_grad: TensorSpec,
    weights: TensorSpec,
    output_grad: TensorSpec,
    window: SlidingWindow,
    threads: int,
    constraints: ImplementationConstraints = UNCONSTRAINED,
) -> Primitive:
    """Prepare OUTPUT_GRAD and WEIGHTS → SOURCE_GRAD."""
    data_view, weights_view, geometry = window.convolution()
    requested: dict[int, ArgumentSpec] = {
        Argument.SOURCE_GRAD: ArgumentSpec(source_grad, data_view),
        Argument.WEIGHTS: ArgumentSpec(weights, weights_view),
        Argument.OUTPUT_GRAD: ArgumentSpec(output_grad, data_view),
    }
    handles = _handles(requested, *requested)
    arguments = (require().engine, _CONVOLUTION_DIRECT, *handles, *geometry, None)
    return build(
        "convolution_backward_data", arguments, requested, threads, constraints=constraints
    )


@cache
def convolution_backward_weights(
    source: TensorSpec,
    weights_grad: TensorSpec,
    output_grad: TensorSpec,
    window: SlidingWindow,
    threads: int,
    constraints: ImplementationConstraints = UNCONSTRAINED,
) -> Primitive:
    """Prepare SOURCE and OUTPUT_GRAD → WEIGHTS_GRAD."""
    data_view, weights_view, geometry = window.convolution()
    requested: dict[int, ArgumentSpec] = {
        Argument.SOURCE: ArgumentSpec(source, data_view),
        Argument.WEIGHTS_GRAD: ArgumentSpec(weights_grad, weights_view),
        Argument.OUTPUT_GRAD: ArgumentSpec(output_grad, data_view),
    }
    source_handle, weights_handle, output_handle = _handles(requested, *requested)
    # Without the bias: its gradient as a column sum is faster.
    handles = (source_handle, weights_handle, None, output_handle)
    arguments = (require().engine, _CONVOLUTION_DIRECT, *handles, *geometry, None)
    return build(
        "convolution_backward_weights", arguments, requested, threads, constraints=constraints
    )


@cache
def matmul(
    left: TensorSpec,
    right: TensorSpec,
    output: TensorSpec,
    threads: int,
    transpose_left: bool = False,
    transpose_right: bool = False,
    bias: bool = False,
    constraints: ImplementationConstraints = UNCONSTRAINED,
    after: tuple[PostOperation, ...] = (),
    pitches: tuple[int, int] = (0, 0),
) -> Primitive:
    """Prepare SOURCE (M,K) · WEIGHTS (K,N) + BIAS (N) → OUTPUT (M,N).

    `left` and `right` are the matrices as stored; a transposed one is read through its strides. All
    may have leading axes, over which the product is batched. The bias is float32, whatever the
    factors are. after: post-operations on the output, in order. pitches: elements from row to row
    of left and right; 0 if they have no gaps.
    """
    views = (
        DescriptorView(transposed=transposed, pitch=pitch)
        for transposed, pitch in zip((transpose_left, transpose_right), pitches, strict=True)
    )
    requested: dict[int, ArgumentSpec] = {
        Argument.SOURCE: ArgumentSpec(left, next(views)),
        Argument.WEIGHTS: ArgumentSpec(right, next(views)),
        Argument.OUTPUT: ArgumentSpec(output),
    }
    if bias:
        requested[Argument.BIAS] = ArgumentSpec(
            TensorSpec(output.shape[-1:]), DescriptorView(rank=len(output.shape))
        )
    handles = _handles(requested, Argument.SOURCE, Argument.WEIGHTS, Argument.BIAS, Argument.OUTPUT)
    arguments = (require().engine, *handles)
    return build("matmul", arguments, requested, threads, after, constraints)


@cache
def pooling_forward(
    source: TensorSpec,
    output: TensorSpec,
    pool_type: PoolType,
    kernel: Shape,
    window: SlidingWindow,
    threads: int,
    is_train: bool = True,
) -> Primitive:
    """Prepare SOURCE → OUTPUT and, for a maximum in training, WORKSPACE (their indices)."""
    requested: dict[int, ArgumentSpec] = {
        Argument.SOURCE: ArgumentSpec(source),
        Argument.OUTPUT: ArgumentSpec(output),
    }
    kind = (FORWARD_TRAINING if is_train else FORWARD_INFERENCE, pool_type)
    arguments = (
        *(require().engine, *kind, *_handles(requested, *requested)),
        *_pooling_arguments(kernel, window),
    )
    return build("pooling_forward", arguments, requested, threads)


@cache
def pooling_backward(
    source_grad: TensorSpec,
    output_grad: TensorSpec,
    pool_type: PoolType,
    kernel: Shape,
    window: SlidingWindow,
    threads: int,
) -> Primitive:
    """Prepare OUTPUT_GRAD and, for a maximum, the forward pass's WORKSPACE → SOURCE_GRAD."""
    forward = pooling_forward(source_grad, output_grad, pool_type, kernel, window, threads)
    requested: dict[int, ArgumentSpec] = {
        Argument.SOURCE_GRAD: ArgumentSpec(source_grad),
        Argument.OUTPUT_GRAD: ArgumentSpec(output_grad),
    }
    arguments = (
        *(require().engine, pool_type, *_handles(requested, *requested)),
        *_pooling_arguments(kernel, window),
        forward.descriptor.value,
    )
    return build("pooling_backward", arguments, requested, threads)


@cache
def reorder(source: TensorSpec, output: TensorSpec, threads: int) -> Primitive:
    """Prepare SOURCE → OUTPUT: the same tensor in another layout."""
    view = view_of(output) if output.layout.nbytes is not None else view_of(source)
    engine = require().engine
    requested: dict[int, ArgumentSpec] = {
        Argument.SOURCE: ArgumentSpec(source, view),
        Argument.OUTPUT: ArgumentSpec(output, view),
    }
    from_handle, to_handle = (describe(spec, view).value for spec in (source, output))
    return build("reorder", (from_handle, engine, to_handle, engine), requested, threads)


def _handles(requested: dict[int, ArgumentSpec], *order: int) -> tuple[int | None, ...]:
    return tuple(
        requested[argument].handle if argument in requested else None for argument in order
    )


def _pooling_arguments(kernel: Shape, window: SlidingWindow) -> tuple[object, ...]:
    stride, gaps, pad_begin, pad_end = window.arguments()
    return stride, dimensions(kernel), gaps, pad_begin, pad_end
