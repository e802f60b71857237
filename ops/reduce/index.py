"""Indices of extremes along an axis: argmax, argmin and argmax_channel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.dataclass import dataclass
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, PartialShape, Shape
from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.intrinsics import find_rows, reduced_run, share
from mxrun.codegen.jit import native
from mxrun.operator.family import OperatorFamily
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import GradientKind, OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import unify
from mxrun.ops.reduce.loops import ReductionKind
from mxrun.ops.reduce.operator import chosen_axes
from mxrun.ops.rows import zero_part

T = TypeVar("T")
Array = npt.NDArray[Any]


class IndexParameters(Parameters):
    """Parameters of argmax and argmin (MXNet's)."""

    axis: int | None = Field(
        default=None,
        description="Axis to search, negative from the end; default: all elements are one row.",
    )
    keepdims: bool = Field(default=False, description="Retain the searched axes with size 1.")


class ChannelParameters(Parameters):
    """Parameters of argmax_channel: none."""


@dataclass(frozen=True)
class IndexSearch:
    """Axis to search (None: all elements as one row), and whether it remains."""

    axis: int | None
    keepdims: bool = False

    def views(self, shape: Shape) -> tuple[int, int, int]:
        """Return the sizes before, along and after the axis; raises ShapeContradiction."""
        if self.axis is None:
            return 1, math.prod(shape), 1
        (axis,) = chosen_axes([self.axis], len(shape))
        return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])

    def output(self, data: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return the output's shape for data's shape; raises ShapeContradiction."""
        rank = len(data)
        searched = range(rank) if self.axis is None else chosen_axes([self.axis], rank)
        shape = tuple(
            1 if axis in searched else size
            for axis, size in enumerate(data)
            if self.keepdims or axis not in searched
        )
        return shape or (1,)


class IndexProperty(OperatorProperty[Any]):
    """output = index of the extreme along an axis, in data's dtype.

    If several elements are equal, the index of the first; with NaN, that of the first NaN. The
    gradient is zero.
    """

    family = OperatorFamily.REDUCTION
    formula: ClassVar[Callable[..., Any]]
    compiled: ClassVar[ReductionKind]

    @property
    def search(self) -> IndexSearch:
        """Searched axis."""
        return IndexSearch(self.parameters.axis, self.parameters.keepdims)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer the output from data, and data's remaining axes from the output."""
        data, output = inputs[0], outputs[0]
        if data is None:
            return PartialInference([data], [output], [])
        output = unify("output", output, self.search.output(data), "data and axis")
        return PartialInference([self._back(data, output)], [output], [])

    def _back(self, data: tuple[int | None, ...], output: PartialShape) -> PartialShape:
        axis, rank = self.search.axis, len(data)
        if axis is None or output is None or (rank == 1 and not self.search.keepdims):
            return data
        (axis,) = chosen_axes([axis], rank)
        behind = output[axis + 1 :] if self.search.keepdims else output[axis:]
        return unify("data", data, (*output[:axis], None, *behind), "output")

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """The gradient is zero: an index is piecewise constant."""
        return (GradientKind.ZERO,)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return an empty list."""
        return []

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One comparison per element of data."""
        return math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Index(self.search, type(self).formula)


class Index(Operator):
    """NumPy body: np.argmax or np.argmin."""

    def __init__(self, search: IndexSearch, formula: Callable[..., Any]) -> None:
        self.search, self.formula = search, formula

    def forward(self, call: ForwardCall) -> None:
        """output = index of the extreme."""
        data = call.inputs.data
        found: Array = self.formula(data.reshape(self.search.views(data.shape)), axis=1)
        call.store(output=found.reshape(call.outputs.output.shape).astype(data.dtype))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: zero."""
        call.store(data=0)


@register("argmax")
class ArgmaxProperty(IndexProperty):
    """output = index of the first maximum along the axis. NaN counts as the maximum. The gradient
    is zero; backward reads nothing.
    """

    type_string = "argmax"
    parameter_type = IndexParameters
    formula: ClassVar[Callable[..., Any]] = staticmethod(np.argmax)
    compiled = ReductionKind.MAXIMUM


@register("argmin")
class ArgminProperty(IndexProperty):
    """output = index of the first minimum along the axis. NaN counts as the minimum. The gradient
    is zero; backward reads nothing.
    """

    type_string = "argmin"
    parameter_type = IndexParameters
    formula: ClassVar[Callable[..., Any]] = staticmethod(np.argmin)
    compiled = ReductionKind.MINIMUM


@register("argmax_channel")
class ArgmaxChannelProperty(IndexProperty):
    """output = index of the first maximum along axis 1. NaN counts as the maximum. The gradient is
    zero; backward reads nothing.
    """

    type_string = "argmax_channel"
    parameter_type = ChannelParameters
    formula: ClassVar[Callable[..., Any]] = staticmethod(np.argmax)
    compiled = ReductionKind.MAXIMUM

    @property
    def search(self) -> IndexSearch:
        """Axis 1, which is removed."""
        return IndexSearch(1)


class ExtremeSearch(Arguments):
    """Arguments of `index_loop`: data [o, r, k] and output [o, k].

    kind: `ReductionKind`; outputs: elements of the output; size, behind: sizes of r and k.
    """

    kind: Integer
    outputs: Integer
    size: Integer
    behind: Integer
    output: Float32s
    data: Float32s


@native
def index_loop(call: ExtremeSearch) -> None:
    """output[o, k] = first r where data[o, r, k] is the extreme over r, or NaN."""
    kind, size, behind = call.kind, call.size, call.behind
    output, data = call.output, call.data
    k, end = share(call.outputs)
    while k < end:
        before = k // behind
        first = k - before * behind
        base = before * size * behind + first
        if behind > 1:
            count = min(end - k, behind - first)
            find_rows(kind, output, k, count, data, base, 1, behind, size)
        elif size < 32:
            count = end - k
            find_rows(kind, output, k, count, data, base, size, 1, size)
        else:
            count, r = 1, 0
            start = data[base] + 0.0 * 1.0
            extreme = reduced_run(kind, start, data, base, size, data[base], 0)
            while data[base + r] != extreme and data[base + r] == data[base + r]:
                r += 1
            output[k] = r
        k += count


@implement("argmax", "argmin", "argmax_channel", backend="jit")
class CompiledIndex(Implementation):
    """One pass in float32; for the last axis two: the extreme, then the search for it."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the search; each output is found by one thread."""
        assert isinstance(prop, IndexProperty)
        data, output = request.inputs[0], request.outputs[0]
        if data.dtype != "float32" or not data.elements:
            return None
        _, size, behind = prop.search.views(data.shape)
        arguments = ExtremeSearch(
            kind=int(prop.compiled),
            outputs=output.elements,
            size=size,
            behind=behind,
            output=target(0),
            data=source(0),
        )
        tasks = request.device.tasks_for_elements(data.elements) if output.elements > 1 else 1
        return native_kernel(
            self.name,
            [LoopPart(index_loop, arguments, tasks)],
            (data.with_layout(PLAIN),),
            (output.with_layout(PLAIN),),
            request.requests,
            request.device,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare a zero gradient."""
        (data,) = request.in_grad
        return native_kernel(
            self.name,
            [zero_part(target(0), data.elements, request.device)],
            (None, None, None),
            (data.with_layout(PLAIN),),
            request.requests,
            request.device,
        )
