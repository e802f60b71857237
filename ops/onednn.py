"""Products of matrices and windows by oneDNN, and the operators that are linear in a weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import PLAIN, Layout, TensorSpec
from mxrun.device.cpu.onednn import operations
from mxrun.device.cpu.onednn.backward_convolution import Computation
from mxrun.device.cpu.onednn.kernel_part import GradientParts
from mxrun.device.cpu.onednn.primitive import Argument, Primitive, Sum
from mxrun.operator.choices import Choices
from mxrun.operator.constraints import ImplementationConstraints
from mxrun.operator.kernel import BackwardRequest, Kernel
from mxrun.operator.native_kernel import Slot, source, target
from mxrun.operator.register import AnyProperty, Implementation
from mxrun.ops.column_sum import column_sum_part


@dataclass(frozen=True)
class OnednnProduct:
    """Product by oneDNN: a function that prepares the primitive, and the slot of each argument.

    scratch_bytes: limit of the primitive's scratch space, if any.
    """

    prepare: Callable[[ImplementationConstraints], Computation]
    slots: Mapping[Argument, Slot]
    scratch_bytes: int | None = None

    def prepared(self, part: str, choices: Choices) -> Computation:
        """Prepare the primitive as `part` of a kernel; raises Unsupported."""
        return choices.prepare(part, self.prepare, self.scratch_bytes)


def matrix_product(
    left: tuple[TensorSpec, Slot],
    right: tuple[TensorSpec, Slot],
    output: tuple[TensorSpec, Slot],
    team: int,
    transposed: tuple[bool, bool] = (False, False),
    bias: Slot | None = None,
    adds: bool = False,
    pitches: tuple[int, int] = (0, 0),
) -> OnednnProduct:
    """Return output = left x right + bias; left and right are the matrices as stored.

    adds: whether the product is added to the output. pitches: elements from row to row of left and
    right; 0 if they have no gaps.
    """

    def prepare(constraints: ImplementationConstraints) -> Primitive:
        specs = (left[0], right[0], output[0], team)
        after = (Sum(),) if adds else ()
        has_bias = bias is not None
        return operations.matmul(*specs, *transposed, has_bias, constraints, after, pitches)

    slots = {Argument.SOURCE: left[1], Argument.WEIGHTS: right[1], Argument.OUTPUT: output[1]}
    if bias is not None:
        slots[Argument.BIAS] = bias
    return OnednnProduct(prepare, slots)


class OnednnLinear(Implementation):
    """oneDNN's products of a linear operator; the gradients are read in forward's dtype."""

    # Layout of the output's gradient in which it is summed.
    layout: ClassVar[Layout]

    def gradient_products(
        self,
        prop: AnyProperty,
        request: BackwardRequest,
        gradient: TensorSpec,
        data: TensorSpec,
        weight: TensorSpec,
    ) -> tuple[OnednnProduct, OnednnProduct]:
        """Return the products for the gradients of data and weight, from these specs."""
        raise NotImplementedError

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
        specs = (replace(spec, dtype=read.dtype) for spec in (gradient, data, weight))
        parts, count = GradientParts(request), 0
        products = self.gradient_products(prop, request, *specs)
        for index, (name, product) in enumerate(
            zip(("data_grad", "weight_grad"), products, strict=True)
        ):
            if parts.is_requested(index):
                parts.add_primitive(product.prepared(name, request.choices), product.slots)
                count += 1
        if parts.is_requested(2):
            summed = parts.use(source(0), self.layout)
            columns = parts.use(target(2), PLAIN, FLOAT32).elements
            shape = (summed.elements // columns, columns)
            part = column_sum_part(source(0), target(2), shape, summed.dtype, request.device)
            parts.add("jit", part)
        return parts.kernel(count * request.forward.flops)
