"""Products of matrices and windows by oneDNN, before their primitives are prepared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mxrun.backend.constraints import ImplementationConstraints
from mxrun.backend.onednn import operations
from mxrun.backend.onednn.backward_convolution import Computation
from mxrun.backend.onednn.primitive import Argument, Primitive
from mxrun.base.tensor import TensorSpec
from mxrun.operator.choices import Choices
from mxrun.operator.native_kernel import Slot


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
    threads: int,
    transposed: tuple[bool, bool] = (False, False),
    bias: Slot | None = None,
) -> OnednnProduct:
    """Return output = left x right + bias; left and right are the matrices as stored."""

    def prepare(constraints: ImplementationConstraints) -> Primitive:
        specs = (left[0], right[0], output[0], threads)
        return operations.matmul(*specs, *transposed, bias is not None, constraints)

    slots = {Argument.SOURCE: left[1], Argument.WEIGHTS: right[1], Argument.OUTPUT: output[1]}
    if bias is not None:
        slots[Argument.BIAS] = bias
    return OnednnProduct(prepare, slots)
