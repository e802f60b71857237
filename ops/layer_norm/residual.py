"""Fusion of a sum with the normalisation of its rows, as in the blocks of transformers.

The sum is read by a later sum too, so it is an output. Fused, it is written while its rows are
normalised: one pass over memory less forward, and backward adds the later sum's gradient without a
pass of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import PLAIN, Shape
from mxrun.operator.fusion import fusion
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, native_kernel, source
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, create, implement, register
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.copy_part import copy_part
from mxrun.ops.layer_norm.kernels import RowLayout, gradient_parts, requested_slots
from mxrun.ops.layer_norm.loops import RowGradients, RowNormalization, normalize_rows_loop
from mxrun.ops.layer_norm.operator import (
    LayerNormParameters,
    LayerNormProperty,
    RMSNormParameters,
    RMSNormProperty,
    RowNorm,
    RowNormProperty,
)
from mxrun.ops.rows import zero_part

T = TypeVar("T")
Array = npt.NDArray[Any]

# Indices of arguments and outputs.
LHS, RHS, GAMMA, BETA = range(4)
OUTPUT, SUM, STATISTICS = range(3)


class AddNormProperty(OperatorProperty[RMSNormParameters]):
    """Common part: normalisation of lhs + rhs, with the sum as the second output.

    Backward reads the gradients of output and sum, the sum, gamma and the statistics. Those of lhs
    and rhs are equal: the gradient of the normalisation's data, rounded, plus that of the sum. The
    results equal those of the separate operators bit for bit.
    """

    is_internal = True
    is_floating = True
    norm: ClassVar[type[RowNormProperty]]

    @property
    def inner(self) -> RowNormProperty:
        """The normalisation."""
        return self.norm(self.parameters)

    def list_arguments(self) -> tuple[str, ...]:
        """lhs and rhs, then the scale and the shift."""
        return ("lhs", "rhs", *self.inner.list_arguments()[1:])

    def list_outputs(self) -> tuple[str, ...]:
        """The output, the sum and the statistics."""
        output, *statistics = self.inner.list_outputs()
        return (output, "sum", *statistics)

    @property
    def num_visible_outputs(self) -> int:
        """2: the statistics are hidden."""
        return 2

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer as the normalisation; lhs, rhs and sum have data's shape."""
        names = ("lhs", "rhs", "sum")
        data, *_ = same_shape(names, [inputs[LHS], inputs[RHS], outputs[SUM]], "elementwise sum")
        found = self.inner.infer_shape(
            [data, *inputs[GAMMA:]], [outputs[OUTPUT], *outputs[STATISTICS:]]
        )
        data = found.inputs[0]
        output, *statistics = found.outputs
        return PartialInference([data, data, *found.inputs[1:]], [output, data, *statistics], [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """All are computed."""
        return (GradientKind.COMPUTES,) * len(self.list_arguments())

    def list_equal_gradients(self) -> dict[int, int]:
        """That of rhs is that of lhs."""
        return {RHS: LHS}

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return both gradients, gamma, the sum and the statistics."""
        return [*out_grad[:STATISTICS], in_data[GAMMA], *out_data[SUM:]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair lhs or rhs with the sum."""
        return [(in_data[LHS], out_data[SUM]), (in_data[RHS], out_data[SUM])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair either gradient with that of lhs."""
        return [(out_grad[OUTPUT], in_grad[LHS]), (out_grad[SUM], in_grad[LHS])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Those of the normalisation, and one addition per element."""
        return self.inner.flops(in_shapes, out_shapes) * 9 // 8

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return AddNorm(RowNorm(self.parameters, self.norm.is_centered))


@register("_add_layer_norm")
class AddLayerNormProperty(AddNormProperty):
    """sum = lhs + rhs; output = LayerNorm(sum)."""

    type_string = "_add_layer_norm"
    parameter_type = LayerNormParameters
    norm = LayerNormProperty


@register("_add_rms_norm")
class AddRMSNormProperty(AddNormProperty):
    """sum = lhs + rhs; output = RMSNorm(sum)."""

    type_string = "_add_rms_norm"
    parameter_type = RMSNormParameters
    norm = RMSNormProperty


class AddNorm(Operator):
    """NumPy body: the sum, then the normalisation's body."""

    def __init__(self, inner: RowNorm) -> None:
        self.inner = inner

    def forward(self, call: ForwardCall) -> None:
        """Sum, output and statistics."""
        lhs, rhs, *scales = call.inputs
        total = lhs + rhs
        output, *statistics = self.inner.results(total, *scales)
        call.store(output, total, *statistics)

    def backward(self, call: BackwardCall) -> None:
        """Gradients of all arguments."""
        total = call.outputs[SUM]
        statistics = [call.outputs[index] for index in range(STATISTICS, len(call.outputs))]
        gradients = call.output_gradients
        gradient = gradients.output if "output" in gradients else np.zeros_like(total)
        found = self.inner.gradients(total, gradient, call.inputs.gamma, *statistics)
        data = found.pop("data")
        if "sum" in gradients:
            data = data + gradients.sum
        zeros = {
            name: call.input_gradients[name] * 0
            for name in ("gamma", "beta")
            if name in call.requests
        }
        call.store(lhs=data, rhs=data, **{**zeros, **found})


@implement("_add_layer_norm", "_add_rms_norm", backend="jit")
class CompiledAddNorm(Implementation):
    """The normalisation's loops, which add while they read, in float32 along the last axis."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare sum, statistics and output, row by row."""
        assert isinstance(prop, AddNormProperty)
        inputs = tuple(spec.with_layout(PLAIN) for spec in request.inputs)
        data, outputs = inputs[LHS], tuple(spec.with_layout(PLAIN) for spec in request.outputs)
        rows = RowLayout(data, prop.parameters.axis % len(data.shape), request.device)
        plain = all(spec.dtype == FLOAT32 for spec in (*inputs, *outputs))
        if not plain or not data.elements or rows.is_transposed:
            return None
        output, total, *statistics = requested_slots(request.requests)
        if total is None and request.requests[OUTPUT] is OpReqType.WRITE:
            # Nobody reads the sum, as after the last block: it is normalised where it is written.
            total = output
        elif request.requests[SUM] is not OpReqType.WRITE:
            return None
        centered = prop.norm.is_centered
        arguments = RowNormalization(
            rows=rows.rows,
            columns=rows.columns,
            data=total,
            gamma=source(GAMMA),
            beta=source(BETA) if centered else None,
            left=source(LHS),
            right=source(RHS),
            output=output,
            mean=statistics[0] if centered else None,
            deviation=statistics[-1],
            epsilon=float(prop.parameters.eps),
            is_centered=int(centered),
        )
        return native_kernel(
            self.name,
            [LoopPart(normalize_rows_loop, arguments, rows.tasks)],
            inputs,
            outputs,
            request.requests,
            request.device,
            flops=prop.flops([data.shape], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient of lhs, its copy for rhs, and those of gamma and beta."""
        assert isinstance(prop, AddNormProperty)
        grad, residual = request.out_grad[:STATISTICS]
        if grad is None:
            return self._passed(request)
        lhs, rhs, *scales = (spec.with_layout(PLAIN) for spec in request.in_grad)
        rows = RowLayout(lhs, prop.parameters.axis % len(lhs.shape), request.device)
        lhs_grad, rhs_grad, *scale_grads = requested_slots(request.requests)
        first, centered = len(request.out_grad), prop.norm.is_centered
        second = first + len(request.in_data)
        gradients = RowGradients(
            rows=rows.rows,
            columns=rows.columns,
            data=source(second + SUM),
            gamma=source(first + GAMMA),
            mean=source(second + STATISTICS) if centered else None,
            deviation=source(second + len(request.out_data) - 1),
            grad=source(OUTPUT),
            residual=None if residual is None else source(SUM),
            data_grad=lhs_grad or rhs_grad,
            is_added=0,
            sums=None,
            running=None,
            blocks=rows.blocks.count,
            rows_per_block=rows.blocks.rows_per_block,
        )
        parts = gradient_parts(gradients, scale_grads, rows, between(0))
        if lhs_grad is not None and rhs_grad is not None:
            parts.append(copy_part(lhs_grad, rhs_grad, lhs.elements, request.device))
        heads = (lhs, None if residual is None else lhs, *(None for _ in request.out_grad[2:]))
        statistics = request.forward.outputs[STATISTICS:]
        shifts = (None,) * len(scales[1:])
        return native_kernel(
            self.name,
            [ChainPart(tuple(parts), (rows.blocks.sums_bytes,) if any(scale_grads) else ())],
            (*heads, None, None, scales[0], *shifts, None, lhs, *statistics),
            (lhs, rhs, *scales),
            request.requests,
            request.device,
            flops=2 * prop.flops([lhs.shape], []),
        )

    def _passed(self, request: BackwardRequest) -> Kernel:
        """Prepare the gradients where nothing reads the output: that of the sum, and zeros."""
        device = request.device
        in_grad = tuple(spec.with_layout(PLAIN) for spec in request.in_grad)
        parts = [
            copy_part(source(SUM), slot, in_grad[LHS].elements, device)
            if index in (LHS, RHS)
            else zero_part(slot, in_grad[index].elements, device)
            for index, slot in enumerate(requested_slots(request.requests))
            if slot is not None
        ]
        unread = len(request.in_data) + len(request.out_data) + len(request.out_grad[STATISTICS:])
        given = (None, in_grad[LHS], *(None,) * unread)
        return native_kernel(self.name, parts, given, in_grad, request.requests, device)


@fusion("sum and layer norm", "elemwise_add", "LayerNorm", keeps=True)
def add_layer_norm(addition: AnyProperty, norm: AnyProperty) -> AnyProperty | None:
    """Return LayerNorm(lhs + rhs) along the last axis."""
    p = norm.parameters
    return None if p.axis != -1 or p.output_mean_var else create("_add_layer_norm", p.model_dump())


@fusion("sum and RMS norm", "elemwise_add", "RMSNorm", keeps=True)
def add_rms_norm(addition: AnyProperty, norm: AnyProperty) -> AnyProperty | None:
    """Return RMSNorm(lhs + rhs) along the last axis."""
    p = norm.parameters
    return create("_add_rms_norm", p.model_dump()) if p.axis == -1 else None
