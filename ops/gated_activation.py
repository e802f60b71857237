"""gated_activation: product of one half of the channels and an activation of the other half."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.dtype import BFLOAT16, FLOAT32, item_size
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, PartialShape, Shape, TensorSpec
from mxrun.codegen.arguments import Integer, Table
from mxrun.codegen.intrinsics import integer, run_map, share
from mxrun.codegen.jit import native
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Scratch, Slot, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes, Precision
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import MapKernel
from mxrun.operator.shape import ShapeContradiction, show, unify
from mxrun.ops.gelu import silu_gradient
from mxrun.ops.leaky_relu.operator import gelu_gradient
from mxrun.ops.map_block import BLOCK_WORDS, WORD_BYTES, MapBlocks, own_block

T = TypeVar("T")
# Scalar functions run on numbers, arrays and symbolic values.
Scalar = Any
Array = npt.NDArray[Any]


class Gate(NamedTuple):
    """Activation of a gate and its gradient, (grad, gate) -> gradient of the gate."""

    activation: Callable[[Scalar], Scalar]
    gradient: Callable[[Scalar, Scalar], Scalar]


def sigmoid_gradient(g: Scalar, x: Scalar) -> Scalar:
    """Return g * s * (1 - s), s = sigmoid(x)."""
    step = scalar.sigmoid(x)
    return g * (step * (1 - step))


GATES = {
    "gelu": Gate(lambda x: scalar.gelu(x), gelu_gradient),
    "silu": Gate(lambda x: x * scalar.sigmoid(x), silu_gradient),
    "sigmoid": Gate(lambda x: scalar.sigmoid(x), sigmoid_gradient),
}


def _output(gate: Gate) -> MapKernel:
    return scalar.compile(lambda x, value: gate.activation(x) * value)


def _gradients(gate: Gate) -> MapKernel:
    return scalar.compile(lambda g, x, value: (gate.gradient(g * value, x), g * gate.activation(x)))


_OUTPUTS = {name: _output(gate) for name, gate in GATES.items()}
_GRADIENTS = {name: _gradients(gate) for name, gate in GATES.items()}


class GatedActivationParameters(Parameters):
    """Parameters of gated_activation."""

    act_type: Literal["gelu", "silu", "sigmoid"] = Field(
        default="gelu", description="Activation of the gate: GEGLU, SwiGLU or GLU."
    )


@register(
    "gated_activation",
    foreign={
        "gated_activation: {act_type: sigmoid}, whose first half is the gate": "glu",
    },
)
class GatedActivationProperty(OperatorProperty[GatedActivationParameters]):
    """output = act(data[..., :C]) * data[..., C:].

    data [..., 2 C], output [..., C]. Backward reads the output's gradient and data.
    """

    type_string = "gated_activation"
    family = OperatorFamily.ACTIVATION
    parameter_type = GatedActivationParameters
    precision = Precision.INHERIT
    is_floating = True

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer data and output from each other."""
        data, output = inputs[0], outputs[0]
        if output is not None:
            last = None if output[-1] is None else 2 * output[-1]
            data = unify("data", data, (*output[:-1], last), "output")
        result: PartialShape = output
        if data is not None:
            if not data or (data[-1] or 0) % 2:
                raise ShapeContradiction("data", show(data), "an even last axis", "gate and value")
            half = None if data[-1] is None else data[-1] // 2
            result = unify("output", output, (*data[:-1], half), "data")
        return PartialInference([data], [result], [])

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of data, unless it is the channels'."""
        return shared_axis(sequences.axes, len(sequences.shapes[0]) - 1)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and data."""
        return [out_grad[0], in_data[0]]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair data with its gradient."""
        return [(in_data[0], in_grad[0])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per element of the output: activation and product."""
        return 2 * math.prod(out_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return GatedActivation(GATES[self.parameters.act_type])


class GatedActivation(Operator):
    """NumPy body."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def forward(self, call: ForwardCall) -> None:
        """output = act(gate) * value."""
        gate, value = np.split(call.inputs.data, 2, axis=-1)
        call.store(output=self.gate.activation(gate) * value)

    def backward(self, call: BackwardCall) -> None:
        """Gradients of gate and value, side by side."""
        gate, value = np.split(call.inputs.data, 2, axis=-1)
        gradient = call.output_gradients.output
        halves = self.gate.gradient(gradient * value, gate), gradient * self.gate.activation(gate)
        call.store(data=np.concatenate(halves, axis=-1))


class RowMaps(MapBlocks):
    """Map of `columns` elements of each of `rows` rows.

    tensors, strides: addresses of outputs and operands, and bytes from row to row.
    """

    rows: Integer
    columns: Integer
    tensor_count: Integer
    tensors: Table
    strides: Table


@native
def row_maps_loop(call: RowMaps) -> None:
    """Run the map for each row."""
    own = own_block(call)
    call.words[own] = call.columns
    # share() splits at multiples of 16, so each row counts as 16 elements.
    begin, end = share(call.rows * 16)
    for row in range(begin // 16, end // 16):
        for index in range(call.tensor_count):
            address = integer(call.tensors, index) + row * integer(call.strides, index)
            call.words[own + 1 + index] = address
        run_map(call, 0, call.words, own)


@implement("gated_activation", backend="jit")
class CompiledGatedActivation(Implementation):
    """A map's code, row by row, for float32 or bfloat16 tensors."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the output, in one pass."""
        data, output = request.inputs[0].with_layout(PLAIN), request.outputs[0]
        served = data.dtype in (FLOAT32, BFLOAT16) and output.dtype == data.dtype
        if not served or not data.elements or OpReqType.ADD in request.requests:
            return None
        half = item_size(data.dtype) * output.shape[-1]
        places = [(target(0), half), (source(0), 2 * half), (_moved(source(0), half), 2 * half)]
        kernel = _OUTPUTS[prop.parameters.act_type]
        return native_kernel(
            self.name,
            [_rows(kernel, places, 1, output.with_layout(PLAIN), request)],
            (data,),
            (output.with_layout(PLAIN),),
            request.requests,
            request.device,
            flops=2 * output.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradients of both halves, in one pass."""
        data = request.in_grad[0].with_layout(PLAIN)
        gradient = request.out_grad[0]
        assert gradient is not None
        gradient = gradient.with_layout(PLAIN)
        if OpReqType.ADD in request.requests and data.dtype != FLOAT32:
            return None
        half = item_size(data.dtype) * gradient.shape[-1]
        places = [
            *((slot, 2 * half) for slot in (target(0), _moved(target(0), half))),
            (source(0), half),
            *((slot, 2 * half) for slot in (source(1), _moved(source(1), half))),
        ]
        kernel = _GRADIENTS[prop.parameters.act_type]
        return native_kernel(
            self.name,
            [_rows(kernel, places, 2, gradient, request)],
            (gradient, data, None),
            (data,),
            request.requests,
            request.device,
            flops=4 * gradient.elements,
        )


def _moved(slot: Slot, nbytes: int) -> Slot:
    return Slot(slot.group, slot.index, nbytes)


def _rows(
    kernel: MapKernel,
    places: Sequence[tuple[Slot, int]],
    outputs: int,
    spec: TensorSpec,
    request: ForwardRequest | BackwardRequest,
) -> LoopPart:
    """Return the map over the rows of tensors like `spec`; places: slots and bytes of a row."""
    columns, device = spec.shape[-1], request.device
    slots = [slot for slot, _ in places]
    part = kernel.multi_output_part(
        slots[:outputs],
        slots[outputs:],
        columns,
        device=device,
        requests=[OpReqType.WRITE] * outputs,
        stored=[spec.dtype] * len(places),
    )
    tasks = request.device.tasks_for_elements(spec.elements)
    scratch = WORD_BYTES * BLOCK_WORDS * device.workers(tasks)
    arguments = RowMaps(
        rows=spec.elements // columns,
        columns=columns,
        tensor_count=len(places),
        tensors=tuple(slots),
        strides=tuple(stride for _, stride in places),
        words_per_worker=BLOCK_WORDS,
        words=Scratch(),
    )
    return LoopPart(row_maps_loop.with_maps(scalar.map_of(part)), arguments, tasks, scratch)
