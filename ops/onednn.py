"""Products of matrices and windows by oneDNN, and the operators that are linear in a weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from mxrun.device.cpu.onednn import operations
from mxrun.device.cpu.onednn.backward_convolution import Computation
from mxrun.device.cpu.onednn.kernel_part import add_primitive
from mxrun.device.cpu.onednn.primitive import Argument, Primitive, Sum
from mxrun.operator.choices import Choices
from mxrun.operator.constraints import ImplementationConstraints
from mxrun.operator.gradient_parts import GradientParts
from mxrun.operator.kernel import BackwardRequest
from mxrun.operator.native_kernel import Slot
from mxrun.ops.dense_product import MatrixProduct, add_product
from mxrun.ops.linear import LinearImplementation


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


def onednn_product(product: MatrixProduct, team: int) -> OnednnProduct:
    """Return a product of matrices without gaps, and without a factor, by oneDNN."""
    left, right, output = product.left, product.right, product.output

    def prepare(constraints: ImplementationConstraints) -> Primitive:
        return operations.matmul(
            *(left.spec, right.spec, output.spec, team, left.is_turned, right.is_turned),
            bias=product.bias is not None,
            constraints=constraints,
            after=(Sum(),) if product.is_added else (),
        )

    slots = {
        Argument.SOURCE: left.slot,
        Argument.WEIGHTS: right.slot,
        Argument.OUTPUT: output.slot,
    }
    if product.bias is not None:
        slots[Argument.BIAS] = product.bias
    return OnednnProduct(prepare, slots)


LinearProduct: TypeAlias = OnednnProduct | MatrixProduct


class OnednnLinear(LinearImplementation[LinearProduct]):
    """oneDNN's products of a linear operator, or products of matrices instead."""

    def add_product(
        self, parts: GradientParts, name: str, product: LinearProduct, request: BackwardRequest
    ) -> None:
        """Add the primitive, or the loop."""
        if isinstance(product, MatrixProduct):
            add_product(parts, name, product, request.device, self.layout)
        else:
            add_primitive(parts, product.prepared(name, request.choices), product.slots)
