"""oneDNN primitives of mxrun, each prepared once per specs and cut.

Every function takes the specs of its tensors, with layout `ANY` (or a packed layout) if oneDNN may
choose, and returns a `Primitive` whose `specs` contain the chosen layouts. All raise `Unsupported`
if oneDNN has no admissible implementation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import IntEnum
from functools import cache, partial
from itertools import pairwise

from mxrun.base.dataclass import dataclass
from mxrun.base.device import Cut
from mxrun.base.tensor import CHANNELS_LAST, Shape, TensorSpec
from mxrun.device.cpu.onednn.cut import Cuttable, Slice, Specs, along_axes, by_images, in_slices
from mxrun.device.cpu.onednn.descriptor import (
    IDENTITY,
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
from mxrun.operator.constraints import UNCONSTRAINED, ImplementationConstraints, Unsupported

_CONVOLUTION_DIRECT = 1
# Sums of a weight's gradient: they are fewer, but not fewer than these, where they take more bytes.
_LEAST_SUMS = 4
_SUMS_BYTES = 4 << 20
# Pixels of the output in a part of one image.
_LEAST_PIXELS = 96


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

    @property
    def is_possible(self) -> bool:
        """Return whether oneDNN takes it: no negative padding but less than a stride at the end."""
        ends = zip(self.pad_end, self.stride, strict=True)
        return min(self.pad_begin) >= 0 and all(pad > -stride for pad, stride in ends)

    def arguments(self) -> tuple[object, ...]:
        """Return strides, dilations (oneDNN counts the gaps), padding_l, padding_r."""
        gaps = tuple(step - 1 for step in self.dilation)
        return tuple(
            dimensions(values) for values in (self.stride, gaps, self.pad_begin, self.pad_end)
        )

    def over_rows(
        self, begin: int, end: int, size: int, kernel: int
    ) -> tuple[int, int, SlidingWindow]:
        """Return begin and end of the rows that some output rows read, and the window on these.

        Rows are along the first spatial axis, on which data have `size`, and the window `kernel`.
        """
        first = begin * self.stride[0] - self.pad_begin[0]
        last = (end - 1) * self.stride[0] - self.pad_begin[0] + (kernel - 1) * self.dilation[0] + 1
        inside = max(first, 0), min(last, size)
        pads = (inside[0] - first, last - inside[1])
        window = replace(
            self,
            pad_begin=(pads[0], *self.pad_begin[1:]),
            pad_end=(pads[1], *self.pad_end[1:]),
        )
        return *inside, window

    def under_rows(
        self, begin: int, end: int, size: int, kernel: int
    ) -> tuple[int, int, SlidingWindow]:
        """Return begin and end of the rows that read some data rows, and the window on these.

        The output has `size` rows along the first spatial axis, and the window `kernel`.
        """
        stride, extent = self.stride[0], (kernel - 1) * self.dilation[0] + 1
        low, high = begin + self.pad_begin[0], end - 1 + self.pad_begin[0]
        first = max(0, -((extent - 1 - low) // stride))
        last = min(size, high // stride + 1)
        pad = low - first * stride
        beyond = (last - first - 1) * stride + extent - pad - (end - begin)
        window = replace(
            self, pad_begin=(pad, *self.pad_begin[1:]), pad_end=(beyond, *self.pad_end[1:])
        )
        return first, last, window

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
    cut: Cut,
    bias: bool = False,
    is_train: bool = True,
    after: tuple[PostOperation, ...] = (),
    constraints: ImplementationConstraints = UNCONSTRAINED,
) -> Cuttable:
    """Prepare SOURCE (N,C,...) * WEIGHTS (O,C/groups,...) + BIAS (O) → OUTPUT (N,O,...).

    after: post-operations on the output, in order. The bias is float32, whatever the factors are.
    """
    data_view, weights_view, _ = window.convolution()
    views = {
        Argument.SOURCE: data_view,
        Argument.WEIGHTS: weights_view,
        Argument.BIAS: IDENTITY,
        Argument.OUTPUT: data_view,
    }
    kind = (FORWARD_TRAINING if is_train else FORWARD_INFERENCE, _CONVOLUTION_DIRECT)
    specs = {Argument.SOURCE: source, Argument.WEIGHTS: weights, Argument.OUTPUT: output}
    if bias:
        specs[Argument.BIAS] = TensorSpec(weights.shape[:1])

    def prepare(specs: Specs, window: SlidingWindow = window) -> Primitive:
        requested = _requested(specs, views)
        geometry = window.convolution()[-1]
        arguments = (require().engine, *kind, *_handles(requested, *views), *geometry)
        return build("convolution_forward", arguments, requested, after, constraints)

    if source.shape[0] == 1:
        read = partial(window.over_rows, size=source.shape[2], kernel=weights.shape[2])
        rows = (Argument.OUTPUT, Argument.SOURCE)
        return _by_rows(specs, rows, read, window, prepare, cut, constraints.scratch_bytes)
    batched = (Argument.SOURCE, Argument.OUTPUT)
    return by_images(specs, batched, prepare, cut, constraints.scratch_bytes)


def _by_rows(
    specs: Specs,
    rows: tuple[Argument, Argument],
    others: Callable[[int, int], tuple[int, int, SlidingWindow]],
    window: SlidingWindow,
    prepare: Callable[[Specs, SlidingWindow], Primitive],
    cut: Cut,
    scratch_bytes: int | None = None,
    summed: Argument | None = None,
) -> Cuttable:
    """Return a computation on one image with channels last, cut into rows.

    rows: the argument whose rows are divided, and that of which a part needs others. others: begin
    and end of these for those of a part, and the window on both. Parts have at least
    `_LEAST_PIXELS`, unless there are two, because each reads all weights.
    """
    divided = specs[rows[0]]
    count, pixels = divided.shape[2], math.prod(divided.shape[2:])
    tasks = min(cut.tasks, count, max(pixels // _LEAST_PIXELS, 2))
    is_image = {specs[each].layout for each in rows} == {CHANNELS_LAST} and len(divided.shape) == 4
    if tasks < 2 or not is_image:
        return prepare(specs, window)
    ends = [part * count // tasks for part in range(tasks + 1)]
    parts = [others(*each) for each in pairwise(ends)]
    if not all(begin < end and part.is_possible for begin, end, part in parts):
        return prepare(specs, window)
    slices: list[Slice] = [
        {rows[0]: own, rows[1]: (begin, end)}
        for own, (begin, end, _) in zip(pairwise(ends), parts, strict=True)
    ]

    def prepared(part: Specs, number: int) -> Primitive:
        return prepare(part, parts[number][2])

    axes = dict.fromkeys(rows, 2)
    try:
        found = in_slices(specs, axes, slices, prepared, cut.threads, scratch_bytes, summed)
    except Unsupported:
        found = None
    return prepare(specs, window) if found is None or found.is_reference else found


@cache
def convolution_backward_data(
    source_grad: TensorSpec,
    weights: TensorSpec,
    output_grad: TensorSpec,
    window: SlidingWindow,
    cut: Cut,
    constraints: ImplementationConstraints = UNCONSTRAINED,
) -> Cuttable:
    """Prepare OUTPUT_GRAD and WEIGHTS → SOURCE_GRAD."""
    data_view, weights_view, _ = window.convolution()
    views = {
        Argument.SOURCE_GRAD: data_view,
        Argument.WEIGHTS: weights_view,
        Argument.OUTPUT_GRAD: data_view,
    }

    def prepare(specs: Specs, window: SlidingWindow = window) -> Primitive:
        requested = _requested(specs, views)
        handles, geometry = _handles(requested, *views), window.convolution()[-1]
        arguments = (require().engine, _CONVOLUTION_DIRECT, *handles, *geometry, None)
        return build("convolution_backward_data", arguments, requested, constraints=constraints)

    specs = dict(zip(views, (source_grad, weights, output_grad), strict=True))
    if source_grad.shape[0] == 1:
        readers = partial(window.under_rows, size=output_grad.shape[2], kernel=weights.shape[2])
        rows = (Argument.SOURCE_GRAD, Argument.OUTPUT_GRAD)
        return _by_rows(specs, rows, readers, window, prepare, cut, constraints.scratch_bytes)
    batched = (Argument.SOURCE_GRAD, Argument.OUTPUT_GRAD)
    return by_images(specs, batched, prepare, cut, constraints.scratch_bytes)


def sums_of_weights(
    source: TensorSpec, weights_grad: TensorSpec, output_grad: TensorSpec, cut: Cut
) -> int:
    """Return of how many partial sums a weight's gradient is made; 1 if several take too long.

    The images of a batch are not divided; one image is, by rows.
    """
    images, nbytes, tasks = source.shape[0], 4 * weights_grad.elements, cut.tasks
    most = (2 * output_grad.nbytes + 7 * source.nbytes) // 4
    if images > 1:
        tasks = min(tasks, images)
    while tasks > _LEAST_SUMS and tasks * nbytes > min(most, _SUMS_BYTES):
        tasks //= 2
    return tasks if tasks * nbytes <= most else 1


@cache
def convolution_backward_weights(
    source: TensorSpec,
    weights_grad: TensorSpec,
    output_grad: TensorSpec,
    window: SlidingWindow,
    cut: Cut,
    constraints: ImplementationConstraints = UNCONSTRAINED,
) -> Cuttable:
    """Prepare SOURCE and OUTPUT_GRAD → WEIGHTS_GRAD.

    It is cut into parts of the images or of one image's rows, whose sums are added: two, if more
    take more memory traffic than they save.
    """
    data_view, weights_view, _ = window.convolution()
    views = {
        Argument.SOURCE: data_view,
        Argument.WEIGHTS_GRAD: weights_view,
        Argument.OUTPUT_GRAD: data_view,
    }

    def prepare(specs: Specs, window: SlidingWindow = window) -> Primitive:
        requested, geometry = _requested(specs, views), window.convolution()[-1]
        source_handle, weights_handle, output_handle = _handles(requested, *views)
        # Without the bias: its gradient as a column sum is faster.
        handles = (source_handle, weights_handle, None, output_handle)
        arguments = (require().engine, _CONVOLUTION_DIRECT, *handles, *geometry, None)
        name = "convolution_backward_weights"
        return build(name, arguments, requested, constraints=constraints)

    specs = dict(zip(views, (source, weights_grad, output_grad), strict=True))
    fewest = min(cut.tasks, 2)
    tasks = max(sums_of_weights(source, weights_grad, output_grad, cut), fewest)
    given, scratch = replace(cut, tasks=tasks), constraints.scratch_bytes
    if source.shape[0] == 1:
        read = partial(window.over_rows, size=source.shape[2], kernel=weights_grad.shape[2])
        rows, total = (Argument.OUTPUT_GRAD, Argument.SOURCE), Argument.WEIGHTS_GRAD
        return _by_rows(specs, rows, read, window, prepare, given, scratch, total)
    batched = (Argument.SOURCE, Argument.OUTPUT_GRAD)
    return by_images(specs, batched, prepare, given, scratch, Argument.WEIGHTS_GRAD)


@cache
def matmul(
    left: TensorSpec,
    right: TensorSpec,
    output: TensorSpec,
    cut: Cut,
    transpose_left: bool = False,
    transpose_right: bool = False,
    bias: bool = False,
    constraints: ImplementationConstraints = UNCONSTRAINED,
    after: tuple[PostOperation, ...] = (),
) -> Cuttable:
    """Prepare SOURCE (M,K) · WEIGHTS (K,N) + BIAS (N) → OUTPUT (M,N).

    `left` and `right` are the matrices as stored; a transposed one is read through its strides. All
    may have leading axes, over which the product is batched. The bias is float32, whatever the
    factors are. after: post-operations on the output, in order. The product is cut along its first
    axis.
    """
    specs = {Argument.SOURCE: left, Argument.WEIGHTS: right, Argument.OUTPUT: output}
    is_batched = len(output.shape) > len("MN")
    axes = {Argument.SOURCE: 0, Argument.OUTPUT: 0}
    views = {
        Argument.SOURCE: DescriptorView(transposed=transpose_left),
        Argument.WEIGHTS: DescriptorView(transposed=transpose_right),
        Argument.OUTPUT: IDENTITY,
    }
    if is_batched:
        axes[Argument.WEIGHTS] = 0
    elif transpose_left:
        axes[Argument.SOURCE] = 1
        views[Argument.SOURCE] = DescriptorView(transposed=True, within=left.shape)
    if bias:
        specs[Argument.BIAS] = TensorSpec(output.shape[-1:])
        views[Argument.BIAS] = DescriptorView(rank=len(output.shape))
    order = (Argument.SOURCE, Argument.WEIGHTS, Argument.BIAS, Argument.OUTPUT)

    def prepare(specs: Specs) -> Primitive:
        requested = _requested(specs, views)
        arguments = (require().engine, *_handles(requested, *order))
        return build("matmul", arguments, requested, after, constraints)

    return along_axes(specs, axes, prepare, cut, constraints.scratch_bytes)


@cache
def pooling_forward(
    source: TensorSpec,
    output: TensorSpec,
    pool_type: PoolType,
    kernel: Shape,
    window: SlidingWindow,
    cut: Cut,
    is_train: bool = True,
) -> Cuttable:
    """Prepare SOURCE → OUTPUT and, for a maximum in training, WORKSPACE (their indices)."""
    kind = (FORWARD_TRAINING if is_train else FORWARD_INFERENCE, pool_type)

    def prepare(specs: Specs, window: SlidingWindow = window) -> Primitive:
        requested = _requested(specs)
        arguments = (
            *(require().engine, *kind, *_handles(requested, *requested)),
            *_pooling_arguments(kernel, window),
        )
        return build("pooling_forward", arguments, requested)

    specs = {Argument.SOURCE: source, Argument.OUTPUT: output}
    if source.shape[0] == 1 and not is_train:
        read = partial(window.over_rows, size=source.shape[2], kernel=kernel[0])
        rows = (Argument.OUTPUT, Argument.SOURCE)
        return _by_rows(specs, rows, read, window, prepare, cut)
    return by_images(specs, tuple(specs), prepare, cut)


@cache
def pooling_backward(
    source_grad: TensorSpec,
    output_grad: TensorSpec,
    pool_type: PoolType,
    kernel: Shape,
    window: SlidingWindow,
    cut: Cut,
) -> Cuttable:
    """Prepare OUTPUT_GRAD and, for a maximum, the forward pass's WORKSPACE → SOURCE_GRAD."""

    def prepare(specs: Specs) -> Primitive:
        source, output = specs[Argument.SOURCE_GRAD], specs[Argument.OUTPUT_GRAD]
        forward = pooling_forward(source, output, pool_type, kernel, window, Cut(1, 1))
        assert isinstance(forward, Primitive)
        requested = _requested(specs)
        arguments = (
            *(require().engine, pool_type, *_handles(requested, *requested)),
            *_pooling_arguments(kernel, window),
            forward.descriptor.value,
        )
        return build("pooling_backward", arguments, requested)

    specs = {Argument.SOURCE_GRAD: source_grad, Argument.OUTPUT_GRAD: output_grad}
    return by_images(specs, tuple(specs), prepare, cut)


@cache
def reorder(source: TensorSpec, output: TensorSpec, cut: Cut) -> Cuttable:
    """Prepare SOURCE → OUTPUT: the same tensor in another layout."""
    view = view_of(output) if output.layout.nbytes is not None else view_of(source)
    engine = require().engine

    def prepare(specs: Specs) -> Primitive:
        requested = _requested(specs, dict.fromkeys(specs, view))
        from_handle, to_handle = (describe(spec, view).value for spec in specs.values())
        return build("reorder", (from_handle, engine, to_handle, engine), requested)

    specs = {Argument.SOURCE: source, Argument.OUTPUT: output}
    if any(spec.layout.nbytes is not None for spec in (source, output)):
        return prepare(specs)
    return by_images(specs, tuple(specs), prepare, cut)


def _requested(
    specs: Specs, views: Mapping[Argument, DescriptorView] | None = None
) -> dict[int, ArgumentSpec]:
    return {
        argument: ArgumentSpec(spec, views[argument] if views else IDENTITY)
        for argument, spec in specs.items()
    }


def _handles(requested: dict[int, ArgumentSpec], *order: int) -> tuple[int | None, ...]:
    return tuple(
        requested[argument].handle if argument in requested else None for argument in order
    )


def _pooling_arguments(kernel: Shape, window: SlidingWindow) -> tuple[object, ...]:
    stride, gaps, pad_begin, pad_end = window.arguments()
    return stride, dimensions(kernel), gaps, pad_begin, pad_end
