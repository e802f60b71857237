"""Tables of maps that a loop runs on single rows of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import FLOAT32, item_size
from mxrun.codegen.map_loop import MapLoop
from mxrun.operator.kernel import OpReqType
from mxrun.operator.native_kernel import Slot
from mxrun.operator.scalar import MapKernel, map_of
from mxrun.ops.rnn.layout import TensorKey, shifted
from mxrun.ops.rnn.loops import STEP


@dataclass(frozen=True)
class RowTensor:
    """Rows of a tensor, `pitch` elements apart. index: which row a map reads, such as STEP."""

    slot: Slot
    pitch: int
    index: int = STEP
    dtype: str = FLOAT32

    def at(self, index: int) -> RowTensor:
        """Return the same rows under another index."""
        return RowTensor(self.slot, self.pitch, index, self.dtype)

    def part(self, element: int) -> RowTensor:
        """Return the rows from an element on."""
        slot = shifted(self.slot, element, item_size(self.dtype))
        return RowTensor(slot, self.pitch, self.index, self.dtype)

    def from_row(self, row: int) -> RowTensor:
        """Return the rows from a row on."""
        return self.part(row * self.pitch)

    def parts(self, count: int, size: int) -> list[RowTensor]:
        """Return `count` parts of each row, of `size` elements."""
        return [self.part(number * size) for number in range(count)]


@dataclass(frozen=True, kw_only=True)
class CallSlots:
    """Tensors that forward and backward have; None for those that a call lacks.

    records: what forward writes for backward, which reads it; empty without backward.
    """

    data: Slot
    vector: Slot
    lengths: Slot | None
    mask: Slot | None
    first_state: Slot | None
    first_cell: Slot | None
    records: Mapping[TensorKey, RowTensor]


class MapTable:
    """Builder of the table of one loop: see `loops.run_row`."""

    def __init__(self, device: DeviceDescription) -> None:
        self._device = device
        self.entries: list[Any] = []
        self.maps: list[MapLoop] = []

    def add(
        self,
        kernel: MapKernel,
        outputs: Sequence[RowTensor],
        operands: Sequence[RowTensor],
        elements: int,
        parameters: Sequence[float] = (),
    ) -> int:
        """Add a map over `elements` of each row; return where it begins."""
        tensors = (*outputs, *operands)
        part = kernel.multi_output_part(
            [tensor.slot for tensor in outputs],
            [tensor.slot for tensor in operands],
            elements,
            parameters,
            device=self._device,
            requests=[OpReqType.WRITE] * len(outputs),
            stored=[tensor.dtype for tensor in tensors],
            in_place=True,
        )
        assert isinstance(part.arguments, tuple)
        words = part.arguments[len(part.arguments) - len(parameters) :]
        start = len(self.entries)
        loop = map_of(part)
        if loop not in self.maps:
            self.maps.append(loop)
        self.entries += [self.maps.index(loop), elements, len(tensors), len(parameters)]
        for tensor in tensors:
            pitch = tensor.pitch * item_size(tensor.dtype)
            self.entries += [tensor.slot, pitch, tensor.index]
        self.entries += words
        return start
