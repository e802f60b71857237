"""_unpack_rnn: the weights and biases in RNN's packed vector, as tensors of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.dtype import FLOAT32
from mxrun.base.params import Int32
from mxrun.base.tensor import PLAIN, Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import unify
from mxrun.ops.copy_part import copy_part
from mxrun.ops.rnn.layout import shifted
from mxrun.ops.rnn.parameters import PackedWeight, RNNParameters, packed_size, packed_weights
from mxrun.ops.rows import zero_part

T = TypeVar("T")


class UnpackRNNParameters(RNNParameters):
    """Parameters of _unpack_rnn: those of the RNN, and data's features."""

    features: Int32 = Field(ge=1, description="Features of data.", examples=[3])

    @property
    def weights(self) -> tuple[PackedWeight, ...]:
        """The parts of the vector."""
        return tuple(packed_weights(self, self.features))


@register("_unpack_rnn")
class UnpackRNNProperty(OperatorProperty[UnpackRNNParameters]):
    """Outputs: the weights and biases in `data`, one after the other.

    Backward reads the outputs' gradients, of which the gradient of data is the concatenation.
    """

    type_string = "_unpack_rnn"
    family = OperatorFamily.SHAPE
    parameter_type = UnpackRNNParameters
    is_internal = True
    reads_only_data = True

    def list_outputs(self) -> tuple[str, ...]:
        """The names of MXNet's unfused cells."""
        return tuple(weight.name for weight in self.parameters.weights)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """All shapes follow from the parameters."""
        p = self.parameters
        data = unify("data", inputs[0], (packed_size(p, p.features),), "the parameters")
        found: PartialShapes = [
            unify(weight.name, shape, weight.shape, "the parameters")
            for weight, shape in zip(p.weights, outputs, strict=True)
        ]
        return PartialInference([data], found, [])

    def example_shapes(self, sample: Shape) -> PartialShapes:
        """The vector has one size only."""
        return [(packed_size(self.parameters, self.parameters.features),)]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return the gradients."""
        return [*out_grad]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return 0: nothing is computed."""
        return 0

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return UnpackRNN(self.parameters)


class UnpackRNN(Operator):
    """NumPy body."""

    def __init__(self, parameters: UnpackRNNParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """Copy each part."""
        for weight in self.parameters.weights:
            call.store(**{weight.name: weight.of(call.inputs.data)})

    def backward(self, call: BackwardCall) -> None:
        """Join the gradients; that of a part that nothing reads is 0."""
        gradient = np.zeros_like(call.input_gradients.data)
        for weight in self.parameters.weights:
            if weight.name in call.output_gradients:
                weight.of(gradient)[...] = call.output_gradients[weight.name]
        call.store(data=gradient)


@implement("_unpack_rnn", backend="jit")
class CompiledUnpackRNN(Implementation):
    """One copy for each part."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the copies of the parts that are requested."""
        assert isinstance(prop, UnpackRNNProperty)
        data = request.inputs[0].with_layout(PLAIN)
        if data.dtype != FLOAT32:
            return None
        parts = [
            copy_part(shifted(source(0), weight.offset), target(index), weight.size, request.device)
            for index, weight in enumerate(prop.parameters.weights)
            if request.requests[index] is not OpReqType.NULL
        ]
        outputs = tuple(spec.with_layout(PLAIN) for spec in request.outputs)
        return native_kernel(self.name, parts, (data,), outputs, request.requests, request.device)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the copies of the gradients that exist, and zeros for the others."""
        assert isinstance(prop, UnpackRNNProperty)
        device = request.device
        heads = tuple(spec and spec.with_layout(PLAIN) for spec in request.out_grad)
        parts = []
        for index, weight in enumerate(prop.parameters.weights):
            place = shifted(target(0), weight.offset)
            if heads[index] is None:
                parts.append(zero_part(place, weight.size, device))
            else:
                parts.append(copy_part(source(index), place, weight.size, device))
        return native_kernel(
            self.name,
            parts,
            (*heads, None, *(None for _ in request.out_data)),
            (request.in_grad[0].with_layout(PLAIN),),
            request.requests,
            device,
        )
