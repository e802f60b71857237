"""Products of matrices and windows by oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import Layout
from mxrun.device.cpu.onednn import operations
from mxrun.device.cpu.onednn.backward_convolution import Computation
from mxrun.device.cpu.onednn.cut import Cuttable
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart
from mxrun.device.cpu.onednn.primitive import Argument, Sum
from mxrun.operator.choices import Choices
from mxrun.operator.constraints import ImplementationConstraints
from mxrun.operator.gradient_parts import GradientParts
from mxrun.operator.kernel import BackwardRequest
from mxrun.operator.native_kernel import Slot
from mxrun.ops.dense_product import MatrixProduct


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

    def add_to(
        self, parts: GradientParts, name: str, request: BackwardRequest, layout: Layout
    ) -> None:
        """Add the primitive to the parts of a backward kernel.

        Its specs decide layouts and dtypes, but their shapes may differ.
        """
        primitive = self.prepared(name, request.choices)
        for argument, slot in self.slots.items():
            spec = primitive.specs[argument]
            parts.use(slot, spec.layout, spec.dtype)
        parts.add(primitive.implementation, PrimitivePart(primitive, self.slots))


def onednn_product(product: MatrixProduct, device: DeviceDescription) -> OnednnProduct:
    """Return a product of matrices without gaps, and without a factor, by oneDNN."""
    left, right, output = product.left, product.right, product.output
    cut = device.cut_for_flops(product.flops)

    def prepare(constraints: ImplementationConstraints) -> Cuttable:
        return operations.matmul(
            *(left.spec, right.spec, output.spec, cut, left.is_turned, right.is_turned),
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
