"""Bases of the operators that are linear in data and in a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import FLOAT32
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, Layout, TensorSpec
from mxrun.operator.gradient_parts import GradientParts
from mxrun.operator.kernel import BackwardRequest, Kernel
from mxrun.operator.native_kernel import KernelPart, source, target
from mxrun.operator.property import OperatorProperty
from mxrun.operator.register import AnyProperty, Implementation
from mxrun.ops.column_sum import column_sum_part


class LinearParameters(Parameters):
    """Parameters of a linear operator; each declares no_bias as a field."""

    if TYPE_CHECKING:
        no_bias: bool


P = TypeVar("P", bound=LinearParameters)
T = TypeVar("T")


class LinearProperty(OperatorProperty[P]):
    """Product of data, which is argument 0, and weight, which is argument 1, plus a bias if any."""

    def list_arguments(self) -> tuple[str, ...]:
        """data, weight and, unless no_bias, bias."""
        return ("data", "weight") if self.parameters.no_bias else ("data", "weight", "bias")

    def independent_gradients(self) -> list[list[int]]:
        """Groups: weight and bias, which need data; data."""
        return [[*range(1, len(self.list_arguments()))], [0]]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad, data and weight; reading weight schedules its update after backward."""
        return [out_grad[0], in_data[0], in_data[1]]


class GradientProduct(Protocol):
    """Product that is part of a backward kernel."""

    def add_to(
        self, parts: GradientParts, name: str, request: BackwardRequest, layout: Layout
    ) -> None:
        """Add it; `layout` is that of the output's gradient."""


def add_gradients(
    parts: GradientParts,
    products: Mapping[str, GradientProduct],
    request: BackwardRequest,
    layout: Layout = PLAIN,
) -> int:
    """Add the requested products, of the first arguments in order; return their operations.

    products: by the name of the part.
    """
    wanted = [each for index, each in enumerate(products) if parts.is_requested(index)]
    for name in wanted:
        products[name].add_to(parts, name, request, layout)
    return len(wanted) * request.forward.flops


class LinearImplementation(Implementation):
    """Products of a linear operator; the gradients are read in forward's dtype."""

    def gradient_layout(self, gradient: TensorSpec) -> Layout:
        """Return the layout of the output's gradient in which it is multiplied and summed."""
        return PLAIN

    def gradient_products(
        self,
        prop: AnyProperty,
        request: BackwardRequest,
        gradient: TensorSpec,
        data: TensorSpec,
        weight: TensorSpec,
    ) -> tuple[GradientProduct, GradientProduct]:
        """Return the products for the gradients of data and weight, from these specs."""
        raise NotImplementedError

    def bias_gradient(
        self, gradient: TensorSpec, columns: int, device: DeviceDescription
    ) -> KernelPart:
        """Return the sum of the output's gradient, input 0, over its rows: output 2."""
        shape = (gradient.elements // columns, columns)
        return column_sum_part(source(0), target(2), shape, gradient.dtype, device)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the requested products, and the sum of the output's gradient for the bias.

        A separate sum takes a tenth of the additional time of a weight primitive that computes it,
        and in loops half the time of a product with a row of ones.
        """
        (gradient,), (data, weight, *_) = request.out_grad, request.in_data
        read = request.forward.inputs[0]
        assert gradient is not None
        assert data is not None
        assert weight is not None
        assert read is not None
        gradient, data, weight = (
            replace(spec, dtype=read.dtype) for spec in (gradient, data, weight)
        )
        layout = self.gradient_layout(gradient)
        parts = GradientParts(request)
        products = self.gradient_products(prop, request, gradient, data, weight)
        named = dict(zip(("data_grad", "weight_grad"), products, strict=True))
        flops = add_gradients(parts, named, request, layout)
        if parts.is_requested(2):
            summed = parts.use(source(0), layout)
            columns = parts.use(target(2), PLAIN, FLOAT32).elements
            parts.add("jit", self.bias_gradient(summed, columns, request.device))
        return parts.kernel(self.name, flops)
