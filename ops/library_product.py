"""Products by kernels of a library, which decides on layouts, dtypes and scratch space."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import PLAIN, Layout, TensorSpec
from mxrun.operator.choices import Choices
from mxrun.operator.constraints import Unsupported
from mxrun.operator.gradient_parts import GradientParts
from mxrun.operator.kernel import BackwardRequest, OpReqType
from mxrun.operator.native_kernel import KernelPart, Slot
from mxrun.ops.copy_part import COPY
from mxrun.ops.dense_product import MatrixProduct
from mxrun.ops.strided_map import strided_part


@dataclass(frozen=True)
class PreparedProduct:
    """Product with the library's kernel for it.

    implementation: the kernel's name. specs: of each tensor of `part`. is_reference: whether it is
    reference code, correct but hundreds of times slower.
    """

    implementation: str
    specs: Mapping[Slot, TensorSpec]
    part: KernelPart
    is_reference: bool = False


class LibraryProduct(ABC):
    """Product that a library may have a kernel for."""

    @abstractmethod
    def prepared(self, part: str, choices: Choices) -> PreparedProduct:
        """Prepare the library's kernel as `part` of a kernel; raises Unsupported."""

    def add_to(
        self, parts: GradientParts, name: str, request: BackwardRequest, layout: Layout = PLAIN
    ) -> None:
        """Add the library's kernel to the parts of a backward kernel.

        Its specs decide layouts and dtypes, but their shapes may differ.
        """
        made = self.prepared(name, request.choices)
        for slot, spec in made.specs.items():
            parts.use(slot, spec.layout, spec.dtype)
        parts.add(made.implementation, made.part)


class MatrixLibrary(ABC):
    """Library that multiplies matrices, as implementations need it."""

    @abstractmethod
    def serves(self, device: DeviceDescription, *specs: TensorSpec) -> bool:
        """Return whether the library is available and supports the specs' types."""

    @abstractmethod
    def matrix_product(self, product: MatrixProduct, device: DeviceDescription) -> LibraryProduct:
        """Return the product by the library."""

    def have_gradients(self, products: Iterable[MatrixProduct], device: DeviceDescription) -> bool:
        """Return whether the library computes the products, which are gradients."""
        return True


def are_supported(products: Iterable[LibraryProduct]) -> bool:
    """Return whether the library has kernels for all products."""
    try:
        for product in products:
            product.prepared("", Choices())
    except Unsupported:
        return False
    return True


def bias_part(output: TensorSpec, slot: Slot, bias: Slot, device: DeviceDescription) -> KernelPart:
    """Return output += bias, float32 for each position of axis 1; the output is unpacked."""
    channels = output.shape[1]
    positions = math.prod(output.shape[2:]) if output.layout == PLAIN else 1
    rows, addend = (output.elements // channels // positions, channels, positions), (channels, 1)
    spec, addends = TensorSpec(rows, output.dtype), [(bias, TensorSpec(addend))]
    return strided_part(COPY, [slot], spec, addends, device, requests=[OpReqType.ADD])
