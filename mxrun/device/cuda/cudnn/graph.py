"""Graphs of cuDNN's operations as frozen values, and their descriptors.

Sums are float32. The text of a graph (`repr`) says everything that a plan for it depends on, beside
the card and the library's version.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum, IntEnum
from typing import TypeAlias

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import Shape, TensorSpec, strides_of
from mxrun.device.cuda.cudnn.constants import (
    CROSS_CORRELATION,
    POINTWISE_ADD,
    POINTWISE_IDENTITY,
    Attribute,
    DataType,
    DescriptorKind,
)
from mxrun.device.cuda.cudnn.descriptor import Descriptor, Value, describe

DATA_TYPES = {FLOAT32: DataType.FLOAT, BFLOAT16: DataType.BFLOAT16}
# Bytes of the engines' widest accesses, at multiples of which blocks of a plan begin.
_WIDEST = 16


class Role(IntEnum):
    """Unique identifiers of a graph's tensors: factors, output, bias, sum before the bias."""

    FIRST = 1
    SECOND = 2
    OUTPUT = 3
    BIAS = 4
    PRODUCT = 5


@dataclass(frozen=True)
class GraphTensor:
    """Tensor of a graph: sizes, and strides in elements; a virtual one is in no memory."""

    role: Role
    dtype: str
    sizes: Shape
    strides: Shape
    alignment: int = _WIDEST
    is_virtual: bool = False

    @staticmethod
    def of(role: Role, spec: TensorSpec) -> GraphTensor:
        """Return the tensor with a spec's axes; one spatial axis becomes the row of a plane.

        cuDNN has more engines for two spatial axes than for one.
        """
        sizes, strides = spec.shape, strides_of(spec.shape, spec.layout)
        if len(sizes) == len("NCW"):
            plane = sizes[-1] * strides[-1]
            sizes, strides = (*sizes[:-1], 1, sizes[-1]), (*strides[:-1], plane, strides[-1])
        return GraphTensor(role, spec.dtype, sizes, strides, alignment_of(spec.nbytes))

    def descriptor(self) -> Descriptor:
        """Return the tensor's descriptor."""
        return describe(
            DescriptorKind.TENSOR,
            {
                Attribute.TENSOR_UNIQUE_ID: self.role,
                Attribute.TENSOR_DATA_TYPE: DATA_TYPES[self.dtype],
                Attribute.TENSOR_DIMENSIONS: self.sizes,
                Attribute.TENSOR_STRIDES: self.strides,
                Attribute.TENSOR_BYTE_ALIGNMENT: self.alignment,
                Attribute.TENSOR_IS_VIRTUAL: self.is_virtual,
            },
        )


def alignment_of(*steps: int) -> int:
    """Return the alignment of a tensor that is so many bytes away from a block's beginning, or
    multiples of them.

    In a loop it is a row of a larger tensor, and its size is such a step.
    """
    return math.gcd(_WIDEST, *steps)


class ConvolutionDirection(Enum):
    """Which of the three tensors a convolution computes from the other two."""

    WINDOWS = DescriptorKind.OPERATION_CONVOLUTION_FORWARD
    IMAGES = DescriptorKind.OPERATION_CONVOLUTION_BACKWARD_DATA
    WEIGHT = DescriptorKind.OPERATION_CONVOLUTION_BACKWARD_FILTER


_CONVOLUTION_ATTRIBUTES = {
    ConvolutionDirection.WINDOWS: (
        Attribute.OPERATION_CONVOLUTION_FORWARD_X,
        Attribute.OPERATION_CONVOLUTION_FORWARD_W,
        Attribute.OPERATION_CONVOLUTION_FORWARD_Y,
        Attribute.OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        Attribute.OPERATION_CONVOLUTION_FORWARD_ALPHA,
        Attribute.OPERATION_CONVOLUTION_FORWARD_BETA,
    ),
    ConvolutionDirection.IMAGES: (
        Attribute.OPERATION_CONVOLUTION_BWD_DATA_DX,
        Attribute.OPERATION_CONVOLUTION_BWD_DATA_W,
        Attribute.OPERATION_CONVOLUTION_BWD_DATA_DY,
        Attribute.OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        Attribute.OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        Attribute.OPERATION_CONVOLUTION_BWD_DATA_BETA,
    ),
    ConvolutionDirection.WEIGHT: (
        Attribute.OPERATION_CONVOLUTION_BWD_FILTER_X,
        Attribute.OPERATION_CONVOLUTION_BWD_FILTER_DW,
        Attribute.OPERATION_CONVOLUTION_BWD_FILTER_DY,
        Attribute.OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
        Attribute.OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        Attribute.OPERATION_CONVOLUTION_BWD_FILTER_BETA,
    ),
}


@dataclass(frozen=True)
class ConvolutionOperation:
    """Convolution of images [N, C, spatial...] with a weight, or one of its gradients.

    The number of groups follows from the channels of images and weight. stride, dilation (1:
    dense) and padding at both ends for each spatial axis of the tensors. is_added: whether the
    result is added to what is there.
    """

    direction: ConvolutionDirection
    images: GraphTensor
    weight: GraphTensor
    windows: GraphTensor
    stride: Shape
    dilation: Shape
    pad: Shape
    is_added: bool = False

    @property
    def tensors(self) -> tuple[GraphTensor, ...]:
        """Images, weight and windows."""
        return self.images, self.weight, self.windows

    @property
    def output(self) -> GraphTensor:
        """Tensor that is computed."""
        of = {
            ConvolutionDirection.WINDOWS: self.windows,
            ConvolutionDirection.IMAGES: self.images,
            ConvolutionDirection.WEIGHT: self.weight,
        }
        return of[self.direction]

    def into(self, output: GraphTensor) -> ConvolutionOperation:
        """Return the operation with another output."""
        images, weight, windows = (output if each == self.output else each for each in self.tensors)
        return replace(self, images=images, weight=weight, windows=windows)

    def descriptor(self, tensors: dict[Role, Descriptor]) -> Descriptor:
        """Return the operation's descriptor."""
        geometry = describe(
            DescriptorKind.CONVOLUTION,
            {
                Attribute.CONVOLUTION_COMP_TYPE: DataType.FLOAT,
                Attribute.CONVOLUTION_CONV_MODE: CROSS_CORRELATION,
                Attribute.CONVOLUTION_SPATIAL_DIMS: len(self.stride),
                Attribute.CONVOLUTION_PRE_PADDINGS: self.pad,
                Attribute.CONVOLUTION_POST_PADDINGS: self.pad,
                Attribute.CONVOLUTION_DILATIONS: self.dilation,
                Attribute.CONVOLUTION_FILTER_STRIDES: self.stride,
            },
        )
        own = [tensors[each.role] for each in self.tensors]
        values: list[Value] = [*own, geometry, 1.0, float(self.is_added)]
        names = _CONVOLUTION_ATTRIBUTES[self.direction]
        return describe(self.direction.value, dict(zip(names, values, strict=True)))


@dataclass(frozen=True)
class MatrixMultiplication:
    """output [B, M, N] = left [B, M, K] x right [B, K, N]."""

    left: GraphTensor
    right: GraphTensor
    output: GraphTensor

    @property
    def tensors(self) -> tuple[GraphTensor, ...]:
        """Left and right factor and output."""
        return self.left, self.right, self.output

    def descriptor(self, tensors: dict[Role, Descriptor]) -> Descriptor:
        """Return the operation's descriptor."""
        precision = describe(DescriptorKind.MATMUL, {Attribute.MATMUL_COMP_TYPE: DataType.FLOAT})
        return describe(
            DescriptorKind.OPERATION_MATMUL,
            {
                Attribute.OPERATION_MATMUL_ADESC: tensors[self.left.role],
                Attribute.OPERATION_MATMUL_BDESC: tensors[self.right.role],
                Attribute.OPERATION_MATMUL_CDESC: tensors[self.output.role],
                Attribute.OPERATION_MATMUL_DESC: precision,
            },
        )


@dataclass(frozen=True)
class Pointwise:
    """output = data + addend, broadcast along axes of size 1, or a copy of data without one."""

    data: GraphTensor
    addend: GraphTensor | None
    output: GraphTensor

    @property
    def tensors(self) -> tuple[GraphTensor, ...]:
        """Operands and output."""
        operands = (self.data,) if self.addend is None else (self.data, self.addend)
        return (*operands, self.output)

    def descriptor(self, tensors: dict[Role, Descriptor]) -> Descriptor:
        """Return the operation's descriptor."""
        mode = POINTWISE_IDENTITY if self.addend is None else POINTWISE_ADD
        function = describe(
            DescriptorKind.POINTWISE,
            {Attribute.POINTWISE_MODE: mode, Attribute.POINTWISE_MATH_PREC: DataType.FLOAT},
        )
        attributes: dict[Attribute, Value] = {
            Attribute.OPERATION_POINTWISE_PW_DESCRIPTOR: function,
            Attribute.OPERATION_POINTWISE_XDESC: tensors[self.data.role],
            Attribute.OPERATION_POINTWISE_YDESC: tensors[self.output.role],
        }
        if self.addend is not None:
            attributes[Attribute.OPERATION_POINTWISE_BDESC] = tensors[self.addend.role]
        return describe(DescriptorKind.OPERATION_POINTWISE, attributes)


Operation: TypeAlias = ConvolutionOperation | MatrixMultiplication | Pointwise


@dataclass(frozen=True)
class OperationGraph:
    """Operations in order. is_tf32: whether float32 may be rounded to 10 bits for tensor cores."""

    operations: tuple[Operation, ...]
    is_tf32: bool = False

    @property
    def tensors(self) -> dict[Role, GraphTensor]:
        """The tensors by role."""
        return {each.role: each for operation in self.operations for each in operation.tensors}

    @property
    def is_low(self) -> bool:
        """Whether tensors are bfloat16."""
        return any(each.dtype == BFLOAT16 for each in self.tensors.values())

    def descriptor(self) -> Descriptor:
        """Return the graph's descriptor; raises Unsupported."""
        tensors = {role: each.descriptor() for role, each in self.tensors.items()}
        operations = [each.descriptor(tensors) for each in self.operations]
        return describe(DescriptorKind.OPERATIONGRAPH, {Attribute.OPERATIONGRAPH_OPS: operations})
