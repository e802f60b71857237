"""Products of matrices and windows by cuDNN.

float32 is in plain layout: engines without tensor cores want it, and others would copy all tensors
to workspaces of their size. bfloat16 has channels last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import ClassVar

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32, item_size
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Layout, Shape, TensorSpec
from mxrun.device.cuda.cudnn import library
from mxrun.device.cuda.cudnn.graph import (
    ConvolutionDirection,
    ConvolutionOperation,
    GraphTensor,
    MatrixMultiplication,
    Operation,
    OperationGraph,
    Pointwise,
    Role,
    alignment_of,
)
from mxrun.device.cuda.cudnn.launch import PlanPart
from mxrun.device.cuda.cudnn.plan import plan_of
from mxrun.operator.choices import Choices
from mxrun.operator.constraints import Unsupported
from mxrun.operator.native_kernel import JoinedPart, Scratch, Slot, source
from mxrun.ops.dense_product import MatrixProduct, StoredMatrices
from mxrun.ops.library_product import (
    LibraryProduct,
    MatrixLibrary,
    PreparedProduct,
    are_supported,
    bias_part,
)
from mxrun.ops.window import Window


def layout_of(dtype: str, is_tf32: bool) -> Layout:
    """Return the layout of images in which cuDNN convolves a dtype."""
    return CHANNELS_LAST if dtype == BFLOAT16 or is_tf32 else PLAIN


@dataclass(frozen=True)
class CudnnProduct(LibraryProduct):
    """Product by cuDNN, whose output is the tensor of role OUTPUT.

    operation: None where cuDNN has none for it. tensors: spec and slot by role. bias: float32, for
    the channels of the output, which are its axis 1. scratch_bytes: limit of the workspace, if any.
    """

    operation: Operation | None
    tensors: Mapping[Role, tuple[TensorSpec, Slot]]
    device: DeviceDescription
    is_tf32: bool = False
    bias: Slot | None = None
    scratch_bytes: int | None = None

    def prepared(self, part: str, choices: Choices) -> PreparedProduct:
        """Prepare the plan as `part` of a kernel; raises Unsupported.

        A bias is added by an engine that cuDNN recommends for that, or in a pass of its own.
        """
        if self.operation is None:
            raise Unsupported("cuDNN has no operation for the product")
        if isinstance(self.operation, ConvolutionOperation) and not self.operation.is_added:
            output = self.operation.output
            is_widened = output.dtype == FLOAT32 and OperationGraph((self.operation,)).is_low
            bias = None if self.bias is None else bias_of(output)
            if bias is not None or is_widened:
                # For float32 gradients of bfloat16 weights there are engines on every card if a
                # copy follows the convolution; without, on the H100 alone, there also for groups.
                with suppress(Unsupported):
                    places = {} if self.bias is None else {Role.BIAS: self.bias}
                    return self._planned(part, choices, followed(self.operation, bias), places)
        made = self._planned(part, choices, (self.operation,), {})
        if self.bias is None:
            return made
        addition = bias_part(*self.tensors[Role.OUTPUT], self.bias, self.device)
        return replace(made, part=JoinedPart((made.part, addition)))

    def _planned(
        self,
        part: str,
        choices: Choices,
        operations: tuple[Operation, ...],
        further: Mapping[Role, Slot],
    ) -> PreparedProduct:
        graph = OperationGraph(operations, self.is_tf32)
        plan = choices.prepare(part, partial(plan_of, graph, self.device.card), self.scratch_bytes)
        specs = {slot: spec for spec, slot in self.tensors.values()}
        slots = {role: slot for role, (_, slot) in self.tensors.items()}
        return PreparedProduct(plan.engine, specs, PlanPart(plan, {**slots, **further}))


class CudnnMatrices(MatrixLibrary):
    """cuDNN's products of matrices.

    is_tf32: whether float32 may be rounded for tensor cores.
    """

    is_tf32: ClassVar[bool] = False

    def serves(self, device: DeviceDescription, *specs: TensorSpec) -> bool:
        """Return whether cuDNN plans for the card and all specs are float32 or bfloat16."""
        return cudnn_serves(device, *specs)

    def matrix_product(self, product: MatrixProduct, device: DeviceDescription) -> CudnnProduct:
        """Return the product by cuDNN, as a convolution with windows of one pixel if it is one.

        For these cuDNN has engines that are compiled already, and in float32 the only ones without
        tensor cores. Weight gradients in float32 of bfloat16 factors are products.
        """
        matrices = product.left, product.right, product.output
        roles = Role.FIRST, Role.SECOND, Role.OUTPUT
        tensors = {
            role: (stored.spec, stored.slot) for role, stored in zip(roles, matrices, strict=True)
        }
        operation: Operation | None = None
        if product.factor == 1 and not product.is_added:
            operation = _pixels(*matrices) or _multiplication(*matrices)
        return CudnnProduct(operation, tensors, device, self.is_tf32, product.bias)

    def have_gradients(self, products: Iterable[MatrixProduct], device: DeviceDescription) -> bool:
        """Return whether cuDNN has engines for all products."""
        return are_supported(self.matrix_product(each, device) for each in products)


def cudnn_serves(device: DeviceDescription, *specs: TensorSpec, low: bool = True) -> bool:
    """Return whether cuDNN is available, knows the card and supports the specs.

    Every tensor must be float32 (with `low`: or bfloat16) and not empty.
    """
    types = (FLOAT32, BFLOAT16) if low else (FLOAT32,)
    known = bool(device.card) and library.load() is not None
    return known and all(spec.dtype in types and spec.elements for spec in specs)


def bias_of(output: GraphTensor) -> GraphTensor:
    """Return the bias of a convolution's output: a number for each channel."""
    channels, rest = output.sizes[1], len(output.sizes) - 2
    sizes, strides = (1, channels, *(1,) * rest), (channels, 1, *(channels,) * rest)
    return GraphTensor(Role.BIAS, FLOAT32, sizes, strides)


def followed(convolution: ConvolutionOperation, bias: GraphTensor | None) -> tuple[Operation, ...]:
    """Return a convolution into float32 that is in no memory, and its sum with a bias, if any."""
    output = convolution.output
    product = GraphTensor(Role.PRODUCT, FLOAT32, output.sizes, output.strides, is_virtual=True)
    return convolution.into(product), Pointwise(product, bias, output)


# Which of its tensors, images, weight and windows, are factors and output of a convolution.
_ROLES = {
    ConvolutionDirection.WINDOWS: (Role.FIRST, Role.SECOND, Role.OUTPUT),
    ConvolutionDirection.IMAGES: (Role.OUTPUT, Role.FIRST, Role.SECOND),
    ConvolutionDirection.WEIGHT: (Role.FIRST, Role.OUTPUT, Role.SECOND),
}


@dataclass(frozen=True)
class CudnnWindowProducts:
    """The three products of a grouped convolution by cuDNN, as `WindowProducts` are by NumPy.

    is_added: whether the convolution is added to what is in the windows.
    """

    images: TensorSpec
    weight: TensorSpec
    windows: TensorSpec
    window: Window
    device: DeviceDescription
    scratch_bytes: int
    is_tf32: bool
    is_added: bool

    def of_windows(
        self, images: Slot, weight: Slot, windows: Slot, bias: Slot | None = None
    ) -> CudnnProduct:
        """Return the convolution, to which the bias is added."""
        return self._product(ConvolutionDirection.WINDOWS, (images, weight, windows), bias)

    def of_images(self, images: Slot, weight: Slot, windows: Slot) -> CudnnProduct:
        """Return the transposed convolution: the data gradient of the convolution."""
        return self._product(ConvolutionDirection.IMAGES, (images, weight, windows))

    def of_weight(self, images: Slot, weight: Slot, windows: Slot) -> CudnnProduct:
        """Return the weight's gradient, in float32 whatever the factors are."""
        return self._product(ConvolutionDirection.WEIGHT, (images, weight, windows))

    def have_gradients(self) -> bool:
        """Return whether cuDNN has engines for both gradients.

        It has few for float32 gradients of bfloat16: none where channels are no multiples of 8.
        """
        slots = (source(0), source(1), source(2))
        return are_supported((self.of_images(*slots), self.of_weight(*slots)))

    def _product(
        self,
        direction: ConvolutionDirection,
        slots: tuple[Slot, Slot, Slot],
        bias: Slot | None = None,
    ) -> CudnnProduct:
        weight = self.weight
        if direction is ConvolutionDirection.WEIGHT:
            weight = replace(weight, dtype=FLOAT32)
        specs, roles = (self.images, weight, self.windows), _ROLES[direction]
        images, weights, windows = map(GraphTensor.of, roles, specs)
        plane = (1,) * (len(self.window.stride) == 1)
        operation = ConvolutionOperation(
            direction,
            images,
            weights,
            windows,
            stride=(*plane, *self.window.stride),
            dilation=(*plane, *self.window.dilate),
            pad=(*(0 for _ in plane), *self.window.pad),
            is_added=self.is_added and direction is ConvolutionDirection.WINDOWS,
        )
        places = dict(zip(roles, zip(specs, slots, strict=True), strict=True))
        return CudnnProduct(operation, places, self.device, self.is_tf32, bias, self.scratch_bytes)


def _pixels(
    left: StoredMatrices, right: StoredMatrices, output: StoredMatrices
) -> ConvolutionOperation | None:
    """Return a product of two matrices as a convolution with windows of one pixel, if it is one."""
    matrices = (left, right, output)
    if any(len(each.spec.shape) > 2 or each.row for each in matrices):
        return None
    if output.spec.dtype != left.spec.dtype or (left.is_turned and right.is_turned):
        return None
    if left.is_turned:
        # output [O, C] = left [N, O]^T x right [N, C].
        direction, tensors = ConvolutionDirection.WEIGHT, (right, output, left)
        roles = (Role.SECOND, Role.OUTPUT, Role.FIRST)
    elif right.is_turned:
        # output [N, O] = left [N, C] x right [O, C]^T.
        direction, tensors = ConvolutionDirection.WINDOWS, (left, right, output)
        roles = (Role.FIRST, Role.SECOND, Role.OUTPUT)
    else:
        # output [N, C] = left [N, O] x right [O, C].
        direction, tensors = ConvolutionDirection.IMAGES, (output, right, left)
        roles = (Role.OUTPUT, Role.SECOND, Role.FIRST)
    specs = (
        TensorSpec((*each.spec.shape, 1, 1), each.spec.dtype, CHANNELS_LAST) for each in tensors
    )
    images, weight, windows = map(GraphTensor.of, roles, specs)
    return ConvolutionOperation(direction, images, weight, windows, (1, 1), (1, 1), (0, 0))


@dataclass(frozen=True)
class StackedMatrices:
    """Matrices in a tensor or in scratch space: sizes and strides of stack, rows and columns."""

    place: Slot | Scratch
    dtype: str
    sizes: Shape
    strides: Shape

    @property
    def turned(self) -> StackedMatrices:
        """The transposed matrices."""
        sizes, strides = ((*each[:-2], each[-1], each[-2]) for each in (self.sizes, self.strides))
        return replace(self, sizes=sizes, strides=strides)

    def tensor(self, role: Role) -> GraphTensor:
        """Return the tensor of a graph, which is aligned as far as its offset and its size are."""
        nbytes = self.sizes[0] * self.strides[0] * item_size(self.dtype)
        alignment = alignment_of(self.place.offset, nbytes)
        return GraphTensor(role, self.dtype, self.sizes, self.strides, alignment)


def stacked_product(
    left: StackedMatrices,
    right: StackedMatrices,
    output: StackedMatrices,
    device: DeviceDescription,
    workspace_at: int,
) -> PlanPart:
    """Return output = left x right; the plan's workspace is at this offset in scratch space.

    Raises Unsupported.
    """
    roles = (Role.FIRST, Role.SECOND, Role.OUTPUT)
    matrices = dict(zip(roles, (left, right, output), strict=True))
    tensors = (each.tensor(role) for role, each in matrices.items())
    plan = plan_of(OperationGraph((MatrixMultiplication(*tensors),)), device.card)
    places = {role: each.place for role, each in matrices.items()}
    return PlanPart(plan, places, workspace_at)


def _multiplication(
    left: StoredMatrices, right: StoredMatrices, output: StoredMatrices
) -> MatrixMultiplication:
    return MatrixMultiplication(
        _stacked(left).tensor(Role.FIRST),
        _stacked(right).tensor(Role.SECOND),
        _stacked(output).tensor(Role.OUTPUT),
    )


def _stacked(stored: StoredMatrices) -> StackedMatrices:
    """Return matrices as they are multiplied."""
    stack, row = stored.steps
    sizes = (stored.count, *stored.spec.shape[-2:])
    plain = StackedMatrices(stored.slot, stored.spec.dtype, sizes, (stack, row, 1))
    return plain.turned if stored.is_turned else plain
