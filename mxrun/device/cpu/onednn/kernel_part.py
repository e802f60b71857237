"""Parts of kernels that are oneDNN primitives, for the operators' provider files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.onednn.backward_convolution import Computation
from mxrun.device.cpu.onednn.launch import PrimitiveLaunch
from mxrun.device.cpu.onednn.primitive import Argument
from mxrun.operator.kernel import Handles
from mxrun.operator.launch import Handle, Launch
from mxrun.operator.native_kernel import Slot


@dataclass(frozen=True)
class PrimitivePart:
    """oneDNN primitive, or several that replace one, with the slot of each argument."""

    primitive: Computation
    arguments: Mapping[Argument, Slot]

    @property
    def scratch_bytes(self) -> int:
        """Size of the primitive's scratchpad."""
        return self.primitive.scratchpad_bytes

    def slots(self) -> Iterator[Slot]:
        """Yield the slots of the arguments."""
        yield from self.arguments.values()

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Bind the primitive."""
        places: dict[int, Handle] = {
            argument: slot.present(handles) for argument, slot in self.arguments.items()
        }
        return (PrimitiveLaunch(self.primitive, places, scratch),)


def onednn_serves(*specs: TensorSpec, low: bool = False) -> bool:
    """Return whether oneDNN is available and supports the specs.

    Every tensor must be float32 (with `low`: or bfloat16) and not empty.
    """
    types = (FLOAT32, BFLOAT16) if low else (FLOAT32,)
    return library.load() is not None and all(
        spec.dtype in types and spec.elements for spec in specs
    )
