"""Products of matrices and windows by oneDNN."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.onednn import operations
from mxrun.device.cpu.onednn.backward_convolution import Computation
from mxrun.device.cpu.onednn.cut import Cuttable
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart, onednn_serves
from mxrun.device.cpu.onednn.primitive import Argument, Sum
from mxrun.operator.choices import Choices
from mxrun.operator.constraints import ImplementationConstraints
from mxrun.operator.native_kernel import Slot
from mxrun.ops.dense_product import MatrixProduct
from mxrun.ops.library_product import LibraryProduct, MatrixLibrary, PreparedProduct


@dataclass(frozen=True)
class OnednnProduct(LibraryProduct):
    """Product by oneDNN: a function that prepares the primitive, and the slot of each argument.

    scratch_bytes: limit of the primitive's scratch space, if any.
    """

    prepare: Callable[[ImplementationConstraints], Computation]
    slots: Mapping[Argument, Slot]
    scratch_bytes: int | None = None

    def prepared(self, part: str, choices: Choices) -> PreparedProduct:
        """Prepare the primitive as `part` of a kernel; raises Unsupported."""
        primitive = choices.prepare(part, self.prepare, self.scratch_bytes)
        specs = {slot: primitive.specs[argument] for argument, slot in self.slots.items()}
        made = PrimitivePart(primitive, self.slots)
        return PreparedProduct(primitive.implementation, specs, made, primitive.is_reference)


class OnednnMatrices(MatrixLibrary):
    """oneDNN's products of matrices."""

    def serves(self, device: DeviceDescription, *specs: TensorSpec) -> bool:
        """Return whether oneDNN is available and all specs are float32 or bfloat16."""
        return onednn_serves(*specs, low=True)

    def matrix_product(self, product: MatrixProduct, device: DeviceDescription) -> OnednnProduct:
        """Return the product by oneDNN."""
        return onednn_product(product, device)


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
