"""Activation: the elementwise nonlinearities whose gradient follows from their output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.onednn import operations
from mxrun.backend.onednn.primitive import Argument, EltwiseFunction
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Parameters
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    PrimitivePart,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import Inferred, OperatorProperty, PartialShapes, same_shape
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.tensor import Tensor

T = TypeVar("T")
Array = npt.NDArray[Any]


class ActivationParameters(Parameters):
    """Parameters of Activation (MXNet's)."""

    act_type: Literal["relu", "sigmoid", "softrelu", "softsign", "tanh"] = Field(
        description="The function applied to every element.", examples=["relu"]
    )


def _sigmoid(x: Array) -> Array:
    # exp of a negative number only: no overflow on either side.
    small = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1, small) / (1 + small)
    return result


FORWARD: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": _sigmoid,
    "softrelu": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanh": np.tanh,
}

# The derivative as a function of the output y.
DERIVATIVE: dict[str, Callable[[Array], Array]] = {
    "relu": lambda y: (y > 0).astype(y.dtype),
    "sigmoid": lambda y: y * (1 - y),
    "softrelu": lambda y: -np.expm1(-y),
    "softsign": lambda y: np.square(1 - np.abs(y)),
    "tanh": lambda y: 1 - np.square(y),
}


@register("Activation")
class ActivationProperty(OperatorProperty[ActivationParameters]):
    """output = f(data), elementwise: relu max(x, 0), sigmoid 1 / (1 + exp(-x)),
    softrelu log(1 + exp(x)), softsign x / (1 + |x|), tanh.

    NaN stays NaN; MXNet 1.9.1's relu makes 0 of it, which hides that a network has diverged.
    Backward reads the output and its gradient: every derivative here is a function of the output.
    """

    type_string = "Activation"
    parameter_type = ActivationParameters

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """data and output have one shape."""
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return Inferred([data], [output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad and output."""
        return [out_grad[0], out_data[0]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The output over data."""
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """data's gradient over the output's."""
        return [(out_grad[0], in_grad[0])]

    def create_operator(self) -> Operator:
        """Two NumPy expressions."""
        return Activation(self.parameters.act_type)


class Activation(Operator):
    """Looks the function and its derivative up by name."""

    def __init__(self, act_type: str) -> None:
        self.function, self.derivative = FORWARD[act_type], DERIVATIVE[act_type]

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = f(data)."""
        assign(out_data[0], req[0], self.function(in_data[0].array))

    def backward(
        self,
        context: OpContext,
        out_grad: Sequence[Tensor | None],
        in_data: Sequence[Tensor | None],
        out_data: Sequence[Tensor | None],
        req: Sequence[OpReqType],
        in_grad: Sequence[Tensor | None],
        aux_states: Sequence[Tensor],
    ) -> None:
        """grad * f'(output)."""
        assign(in_grad[0], req[0], need(out_grad[0]) * self.derivative(need(out_data[0])))


_ONEDNN = {"sigmoid": EltwiseFunction.LOGISTIC, "tanh": EltwiseFunction.TANH}


def relu(x: Any) -> Any:
    """x, or 0 where x is not above it; unlike max(x, 0) in vector code, NaN for NaN."""
    return scalar.where(x <= 0, 0, x)


def relu_gradient(gradient: Any, y: Any) -> Any:
    """The gradient where the output y is above 0; times 0 elsewhere, so that NaN stays NaN."""
    return gradient * scalar.where(y > 0, 1, 0)


RELU, RELU_GRADIENT = scalar.compile(relu), scalar.compile(relu_gradient)


@implement("Activation", backend="jit")
class CompiledActivation(Implementation):
    """relu as a map, in whatever layout the data come. oneDNN's makes zeros of NaN."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """output = max(data, 0)."""
        (data,) = request.inputs
        if prop.parameters.act_type != "relu" or data.dtype != "float32":
            return None
        count, (req,), threads = data.nbytes // 4, request.requests, request.threads
        part = RELU.part(target(0), [source(0)], count, threads=threads, request=req)
        return native_kernel(
            self.name,
            [part],
            (data,),
            (data,),
            scalar.written(request.requests),
            threads,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """grad * (output > 0), in the output's layout."""
        (output,) = request.out_data
        assert output is not None
        count, (req,), threads = output.nbytes // 4, request.requests, request.threads
        operands = [source(0), source(2)]
        part = RELU_GRADIENT.part(target(0), operands, count, threads=threads, request=req)
        return native_kernel(
            self.name,
            [part],
            (output, None, output),
            (output,),
            scalar.written(request.requests),
            threads,
            flops=2 * output.elements,
        )


@implement("Activation", backend="onednn")
class OnednnActivation(Implementation):
    """sigmoid and tanh by oneDNN's elementwise primitives, in whatever layout the data come.

    softrelu and softsign are left to the NumPy body: oneDNN differentiates the first from its
    input, which backward does not read, and does not have the second.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """output = f(data)."""
        (data,) = request.inputs
        act_type = prop.parameters.act_type
        if act_type not in _ONEDNN or not onednn_serves(data):
            return None
        team = team_for_elements(data.elements, request.threads)
        primitive = operations.eltwise_forward(data, _ONEDNN[act_type], team)
        slots = {Argument.SOURCE: source(0), Argument.OUTPUT: target(0)}
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, slots)],
            (data,),
            (data,),
            request.requests,
            request.threads,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """grad * f'(output), in the output's layout."""
        (output,) = request.out_data
        assert output is not None
        function = _ONEDNN[prop.parameters.act_type]
        team = team_for_elements(output.elements, request.threads)
        primitive = operations.eltwise_backward(output, function, team)
        slots = {
            Argument.OUTPUT_GRAD: source(0),
            Argument.OUTPUT: source(2),
            Argument.SOURCE_GRAD: target(0),
        }
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, slots)],
            (output, None, output),
            (output,),
            request.requests,
            request.threads,
            flops=2 * output.elements,
        )
