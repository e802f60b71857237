"""Backward convolutions that avoid oneDNN's slow reference code.

Two cases would use reference code. First, stride combined with dilation, and dilation in depth: the
dilated kernel is expanded to a dense one with zeros between its taps. Second, many sizes that are
not multiples of the stride: the data gradient is computed for such a multiple and then cropped. On
a 2-core machine the gradients of 64 channels of 28 x 28 under stride and dilation 2 take 1.3 ms
each instead of 55, the data gradient of 64 channels of 256 under stride 3 takes 0.5 instead of 180.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import ClassVar

from mxrun.base.dataclass import dataclass
from mxrun.base.device import ONE_THREAD, Cut
from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import PLAIN, Shape, TensorSpec, align
from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.jit import native
from mxrun.codegen.loops import elements_of_task
from mxrun.device.cpu.call import ALONE_WORKER, NativeCall, TaskThreads, loop_call
from mxrun.device.cpu.onednn import operations
from mxrun.device.cpu.onednn.cut import Cuttable
from mxrun.device.cpu.onednn.descriptor import ANY
from mxrun.device.cpu.onednn.operations import SlidingWindow
from mxrun.device.cpu.onednn.primitive import Argument, Primitive
from mxrun.operator.constraints import UNCONSTRAINED, ImplementationConstraints

_AXES = 3


class Dilation(Arguments):
    """Arguments of `spread_loop` and `gather_loop`.

    taps [kernels, depth, height, width]: the kernels without zeros. dense: the same with zeros
    between the taps, which are step_z, step_y and step_x apart.
    """

    kernels: Integer
    depth: Integer
    height: Integer
    width: Integer
    step_z: Integer
    step_y: Integer
    step_x: Integer
    taps: Float32s
    dense: Float32s


@native
def spread_loop(call: Dilation) -> None:
    """Expand taps to dense kernels with zeros between them, kernel by kernel."""
    rows, columns = (call.height - 1) * call.step_y + 1, (call.width - 1) * call.step_x + 1
    planes = (call.depth - 1) * call.step_z + 1
    for i in range(call.kernels * planes * rows * columns):
        call.dense[i] = 0
    tap = 0
    for kernel in range(call.kernels):
        for z in range(call.depth):
            for y in range(call.height):
                row = (kernel * planes + z * call.step_z) * rows + y * call.step_y
                for x in range(call.width):
                    call.dense[row * columns + x * call.step_x] = call.taps[tap]
                    tap += 1


@native
def gather_loop(call: Dilation) -> None:
    """Extract the taps from dense kernels, the inverse of `spread_loop`."""
    rows, columns = (call.height - 1) * call.step_y + 1, (call.width - 1) * call.step_x + 1
    planes = (call.depth - 1) * call.step_z + 1
    tap = 0
    for kernel in range(call.kernels):
        for z in range(call.depth):
            for y in range(call.height):
                row = (kernel * planes + z * call.step_z) * rows + y * call.step_y
                for x in range(call.width):
                    call.taps[tap] = call.dense[row * columns + x * call.step_x]
                    tap += 1


@dataclass(frozen=True)
class _WrappedConvolution:
    """Convolution by a primitive, or what replaces one, with further calls around it."""

    primitive: Cuttable | DenseKernelConvolution

    is_reference: ClassVar[bool] = False

    @property
    def implementation(self) -> str:
        """Name of the primitive's implementation."""
        return self.primitive.implementation

    def alternatives(self) -> tuple[str, ...]:
        """Return the names of the primitive's alternatives."""
        return self.primitive.alternatives()


@dataclass(frozen=True)
class DenseKernelConvolution(_WrappedConvolution):
    """Convolution that replaces a dilated kernel by a dense one.

    argument: the dense primitive's argument that is the kernel, which is in plain layout here. The
    scratchpad contains the dense kernel in plain and packed layout, then the primitives'
    scratchpads.
    """

    primitive: Cuttable
    argument: Argument
    taps: TensorSpec
    dense: TensorSpec
    dilation: Shape

    @property
    def specs(self) -> dict[int, TensorSpec]:
        """Specs of the dense primitive, except for the kernel."""
        return {**self.primitive.specs, self.argument: self.taps}

    @property
    def scratchpad_bytes(self) -> int:
        """Size of both dense kernels and the larger scratchpad."""
        scratchpads = (self.primitive.scratchpad_bytes, self._reorder.scratchpad_bytes)
        return align(self.dense.nbytes) + align(self._packed.nbytes) + max(scratchpads)

    def bind(
        self, addresses: Mapping[int, int], scratchpad: int = 0, workers: TaskThreads = ALONE_WORKER
    ) -> tuple[NativeCall, ...]:
        """Return the calls, in order, for tensors at the given addresses."""
        dense = scratchpad
        packed = dense + align(self.dense.nbytes)
        rest = packed + align(self._packed.nbytes)
        compute = self.primitive.bind({**addresses, self.argument: packed}, rest, workers)
        start, end = (dense, packed) if self._reads_kernel else (packed, dense)
        reorder = self._reorder.bind({Argument.SOURCE: start, Argument.OUTPUT: end}, rest)
        axes = self.taps.shape[2:]
        filling = (1,) * (_AXES - len(axes))
        depth, height, width = *filling, *axes
        step_z, step_y, step_x = *filling, *self.dilation
        dilation = Dilation(
            kernels=math.prod(self.taps.shape[:2]),
            depth=depth,
            height=height,
            width=width,
            step_z=step_z,
            step_y=step_y,
            step_x=step_x,
            taps=addresses[self.argument],
            dense=dense,
        )
        if self._reads_kernel:
            return (loop_call(spread_loop, dilation), *reorder, *compute)
        return (*compute, *reorder, loop_call(gather_loop, dilation))

    @property
    def _reads_kernel(self) -> bool:
        return self.argument is Argument.WEIGHTS

    @property
    def _packed(self) -> TensorSpec:
        return self.primitive.specs[self.argument]

    @property
    def _reorder(self) -> Primitive:
        ends = (self.dense, self._packed) if self._reads_kernel else (self._packed, self.dense)
        reorder = operations.reorder(*ends, Cut(1, 1))
        assert isinstance(reorder, Primitive)
        return reorder


class Cropping(Arguments):
    """Arguments of `cut_loop`; both tensors have channels last, and a row contains the channels.

    wide: [images, wide_depth, wide_height, wide_row]. narrow: [images, depth, height, row].
    """

    images: Integer
    depth: Integer
    height: Integer
    row: Integer
    wide_depth: Integer
    wide_height: Integer
    wide_row: Integer
    wide: Float32s
    narrow: Float32s


@native
def cut_loop(call: Cropping) -> None:
    """Crop wide to narrow, or extend it with zeros where it is smaller."""
    row = call.row
    for line in elements_of_task(call.images * call.depth * call.height):
        plane, y = line // call.height, line % call.height
        image, z = plane // call.depth, plane % call.depth
        is_inside = z < call.wide_depth and y < call.wide_height
        inside = min(row, call.wide_row) if is_inside else 0
        start = ((image * call.wide_depth + z) * call.wide_height + y) * call.wide_row
        for i in range(inside):
            call.narrow[line * row + i] = call.wide[start + i]
        for i in range(inside, row):
            call.narrow[line * row + i] = 0


@dataclass(frozen=True)
class CroppedConvolution(_WrappedConvolution):
    """Data gradient computed for other sizes and cropped to the requested ones.

    The scratchpad contains the computed gradient, then the convolution's scratchpad.
    """

    wide: TensorSpec
    narrow: TensorSpec

    @property
    def specs(self) -> dict[int, TensorSpec]:
        """Specs of the convolution, except for the data gradient."""
        return {**self.primitive.specs, Argument.SOURCE_GRAD: self.narrow}

    @property
    def scratchpad_bytes(self) -> int:
        """Size of the wide gradient and the convolution's scratchpad."""
        return align(self.wide.nbytes) + self.primitive.scratchpad_bytes

    def bind(
        self, addresses: Mapping[int, int], scratchpad: int = 0, workers: TaskThreads = ALONE_WORKER
    ) -> tuple[NativeCall, ...]:
        """Return the calls, in order, for tensors at the given addresses."""
        rest = scratchpad + align(self.wide.nbytes)
        bound = self.primitive.bind({**addresses, Argument.SOURCE_GRAD: scratchpad}, rest, workers)
        depth, height, row = _lines(self.narrow)
        wide_depth, wide_height, wide_row = _lines(self.wide)
        cropping = Cropping(
            images=self.narrow.shape[0],
            depth=depth,
            height=height,
            row=row,
            wide_depth=wide_depth,
            wide_height=wide_height,
            wide_row=wide_row,
            wide=scratchpad,
            narrow=addresses[Argument.SOURCE_GRAD],
        )
        tasks = ONE_THREAD.tasks_for_elements(self.narrow.elements)
        copy = loop_call(cut_loop, cropping, tasks, workers)
        return (*bound, copy)


# One primitive, or several calls equivalent to one.
Computation = Cuttable | DenseKernelConvolution | CroppedConvolution


@cache
def backward_data(
    source_grad: TensorSpec,
    weights: TensorSpec,
    output_grad: TensorSpec,
    window: SlidingWindow,
    cut: Cut,
    constraints: ImplementationConstraints = UNCONSTRAINED,
) -> Computation:
    """Prepare the data gradient in channels-last layout in the fastest form.

    It computes what `operations.convolution_backward_data` does. The form does not depend on
    `constraints.name`, which selects an implementation within that form.
    """

    def prepare(
        gradient: TensorSpec, window: SlidingWindow, constraints: ImplementationConstraints
    ) -> Cuttable | DenseKernelConvolution:
        return _spread(
            lambda kernel, window, constraints: operations.convolution_backward_data(
                gradient, kernel, output_grad, window, cut, constraints
            ),
            *(weights, window, Argument.WEIGHTS, constraints),
        )

    unnamed = replace(constraints, name=None)
    found = prepare(source_grad, window, unnamed)
    if found.is_reference and max(window.stride) > 1 and source_grad.dtype == FLOAT32:
        wide, wide_window = _multiple(source_grad, weights, output_grad, window)
        if not prepare(wide, wide_window, unnamed).is_reference:
            return CroppedConvolution(prepare(wide, wide_window, constraints), wide, source_grad)
    return prepare(source_grad, window, constraints)


@cache
def backward_weights(
    source: TensorSpec,
    weights_grad: TensorSpec,
    output_grad: TensorSpec,
    window: SlidingWindow,
    cut: Cut,
    constraints: ImplementationConstraints = UNCONSTRAINED,
) -> Cuttable | DenseKernelConvolution:
    """Prepare `operations.convolution_backward_weights` in the faster form."""
    return _spread(
        lambda kernel, window, constraints: operations.convolution_backward_weights(
            source, kernel, output_grad, window, cut, constraints
        ),
        *(weights_grad, window, Argument.WEIGHTS_GRAD, constraints),
    )


def weight_gradient_is_sound(
    source: TensorSpec, kernel: Shape, output: TensorSpec, window: SlidingWindow
) -> bool:
    """Return whether oneDNN computes these weight gradients correctly.

    kernel: taps along the spatial axes. oneDNN 3.2 leaves parts of the output unwritten, or writes
    out of bounds, in three cases:

    - 3-d: the depth is padded by more than a stride above 1, and the data is less than a stride
      deeper than the kernel;
    - 3-d bfloat16: the kernel is deeper than the data;
    - bfloat16: a tap covers padding only.
    """
    low, deep = source.dtype != FLOAT32, len(kernel) == _AXES
    for axis, taps in enumerate(kernel):
        size, count = source.shape[axis + 2], output.shape[axis + 2]
        stride, step, pad = window.stride[axis], window.dilation[axis], window.pad_begin[axis]
        extent = (taps - 1) * step + 1
        if deep and axis == 0 and pad > stride > 1 and size < extent + stride:
            return False
        if low and deep and axis == 0 and extent > size:
            return False
        places = [range(tap * step - pad, size, stride)[:count] for tap in range(taps)]
        if low and not all(any(place >= 0 for place in each) for each in places):
            return False
    return True


def _spread(
    prepare: Callable[[TensorSpec, SlidingWindow, ImplementationConstraints], Cuttable],
    kernel: TensorSpec,
    window: SlidingWindow,
    argument: Argument,
    constraints: ImplementationConstraints,
) -> Cuttable | DenseKernelConvolution:
    """Return the primitive, or its dense form if that avoids reference code.

    `constraints.name` applies to the form that is returned.
    """
    primitive = prepare(kernel, window, replace(constraints, name=None))
    if not primitive.is_reference:
        return prepare(kernel, window, constraints)
    if max(window.dilation) == 1 or kernel.dtype != FLOAT32:
        return primitive
    dense = TensorSpec((*kernel.shape[:2], *_extents(kernel, window)), kernel.dtype)
    ones = (1,) * len(window.dilation)
    spread = prepare(dense.with_layout(ANY), replace(window, dilation=ones), constraints)
    if spread.is_reference:
        return primitive
    taps = kernel.with_layout(PLAIN)
    return DenseKernelConvolution(spread, argument, taps, dense, window.dilation)


def _multiple(
    source: TensorSpec, kernel: TensorSpec, output: TensorSpec, window: SlidingWindow
) -> tuple[TensorSpec, SlidingWindow]:
    """Return `source` with sizes that are multiples of the strides, and the matching window.

    The window has the same number of positions. Elements that no position reaches are left out, so
    that less than a stride of padding is removed at the end, which oneDNN allows.
    """
    sizes, pads = [], []
    for axis, extent in enumerate(_extents(kernel, window)):
        stride = window.stride[axis]
        reached = (output.shape[axis + 2] - 1) * stride + extent - window.pad_begin[axis]
        size = -(-min(source.shape[axis + 2], reached) // stride) * stride
        sizes.append(size)
        pads.append(reached - size)
    wide = replace(source, shape=(*source.shape[:2], *sizes))
    return wide, replace(window, pad_end=tuple(pads))


def _extents(kernel: TensorSpec, window: SlidingWindow) -> Shape:
    return tuple(
        (size - 1) * step + 1 for size, step in zip(kernel.shape[2:], window.dilation, strict=True)
    )


def _lines(spec: TensorSpec) -> Shape:
    """Return the depth, the height, and the elements of a row with its channels."""
    *lines, row = spec.shape[2:]
    return (*(1,) * (_AXES - 1 - len(lines)), *lines, row * spec.shape[1])
