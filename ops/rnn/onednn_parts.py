"""Parts that forward and backward of RNN in compiled code have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import BFLOAT16, FLOAT32, item_size
from mxrun.base.tensor import TensorSpec
from mxrun.codegen.vectors import PANEL_COLUMNS
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart
from mxrun.operator import scalar
from mxrun.operator.constraints import UNCONSTRAINED
from mxrun.operator.native_kernel import KernelPart, LoopPart, Scratch, Slot
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.copy_part import copy_part
from mxrun.ops.dense_product import (
    MatrixProduct,
    StoredMatrices,
    dense_product,
    dense_product_serves,
)
from mxrun.ops.map_block import WORD_BYTES
from mxrun.ops.onednn import onednn_product
from mxrun.ops.rnn.layout import SequenceLayout, shifted
from mxrun.ops.rnn.loops import MASK, SEQUENCE, WORDS_PER_WORKER
from mxrun.ops.rnn.packing import Packing, pack_loop
from mxrun.ops.rnn.parameters import PackedWeight
from mxrun.ops.rnn.tables import MapTable, RowTensor
from mxrun.ops.rows import RowCopy, RowZeroing, copy_rows_loop, zero_part, zero_rows_loop

_SUM = scalar.compile(lambda x, y: x + y)


@dataclass
class KernelBuilder:
    """Parts of a kernel, and the scratch tensors between them.

    extra_count: number of the kernel's extra outputs.
    """

    layout: SequenceLayout
    extra_count: int = 0
    parts: list[KernelPart] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)
    known: dict[str, Slot] = field(default_factory=dict)

    def fresh(self, spec: TensorSpec) -> Slot:
        """Return scratch space of its own."""
        self.scratch.append(spec.nbytes)
        return between(self.extra_count + len(self.scratch) - 1)

    def space(self, name: str, spec: TensorSpec) -> Slot:
        """Return scratch space, the same for every use of a name."""
        if name not in self.known:
            self.known[name] = self.fresh(spec)
        return self.known[name]

    def product(
        self,
        left: tuple[TensorSpec, Slot],
        right: tuple[TensorSpec, Slot],
        output: tuple[TensorSpec, Slot],
        *,
        transposed: tuple[bool, bool] = (False, False),
        bias: Slot | None = None,
        adds: bool = False,
    ) -> None:
        """Add a product of all rows; raises Unsupported if no library has it where it is used.

        left, right: as stored, `transposed` in the product. adds: as in `MatrixProduct`.
        """
        product = MatrixProduct(
            StoredMatrices(*left, transposed[0]),
            StoredMatrices(*right, transposed[1]),
            StoredMatrices(*output),
            bias=bias,
            is_added=adds,
        )
        device = self.layout.device
        if dense_product_serves(self.layout.dtype, device):
            self.parts.append(dense_product(product, device))
        else:
            found = onednn_product(product, device)
            self.parts.append(PrimitivePart(found.prepare(UNCONSTRAINED), found.slots))

    def multiplied(self, weight: PackedWeight, vector: Slot) -> tuple[TensorSpec, Slot]:
        """Return a weight in the dtype of the rows that it is multiplied with."""
        slot = shifted(vector, weight.offset)
        if self.layout.dtype == FLOAT32:
            return TensorSpec(weight.shape), slot
        spec = self.layout.spec(*weight.shape)
        rounded = self.fresh(spec)
        stored = (BFLOAT16, FLOAT32)
        device = self.layout.device
        self.parts.append(copy_part(slot, rounded, weight.size, device, stored=stored))
        return spec, rounded

    def sum(self, output: Slot, left: Slot, right: Slot, count: int) -> None:
        """Add output = left + right for `count` floats."""
        self.parts.append(_SUM.part(output, [left, right], count, device=self.layout.device))

    def zero_row(self, size: int) -> RowTensor:
        """Add zeros that stand for a row of each sequence."""
        zeros = self.fresh(TensorSpec((size,)))
        self.parts.append(zero_part(zeros, size, self.layout.device))
        return RowTensor(zeros, 0, SEQUENCE)

    def zero_rows(self, rows: Slot, count: int, columns: int, stride: int) -> None:
        """Add zeros in rows of the multiplied dtype, `stride` elements apart."""
        # Two elements of bfloat16 are cleared as one float.
        packed = 4 // item_size(self.layout.dtype)
        zeroing = RowZeroing(
            rows=count, columns=columns // packed, target=rows, offset=0, stride=stride // packed
        )
        tasks = self.layout.device.tasks_for_elements(count * columns)
        self.parts.append(LoopPart(zero_rows_loop, zeroing, tasks))

    def copy_rows(self, read: RowTensor, written: RowTensor, rows: int, columns: int) -> None:
        """Add a copy of `columns` of each row of one dtype."""
        # Two elements of bfloat16 are copied as one float.
        packed = 4 // item_size(read.dtype)
        copy = RowCopy(
            rows=rows,
            columns=columns // packed,
            source=read.slot,
            source_offset=0,
            source_stride=read.pitch // packed,
            target=written.slot,
            target_offset=0,
            target_stride=written.pitch // packed,
        )
        tasks = self.layout.device.tasks_for_elements(rows * columns)
        self.parts.append(LoopPart(copy_rows_loop, copy, tasks))

    def compact(self, read: RowTensor, rows: int, columns: int, space: Slot | None) -> RowTensor:
        """Return rows without gaps: a copy in `space` or scratch space where they have gaps."""
        if read.pitch == columns:
            return read
        found = space or self.fresh(TensorSpec((rows, columns), read.dtype))
        copy = RowTensor(found, columns, dtype=read.dtype)
        self.copy_rows(read, copy, rows, columns)
        return copy

    def panels(self, weight: Slot, columns: int, inner: int, is_transposed: bool) -> Slot:
        """Add the packing of a weight; return the panels of its `columns` columns."""
        count = -(-columns // PANEL_COLUMNS)
        panels = self.fresh(TensorSpec((count, inner, PANEL_COLUMNS)))
        packing = Packing(
            columns=columns,
            inner=inner,
            is_transposed=int(is_transposed),
            are_pairs=int(self.layout.are_pairs),
            weight=weight,
            panels=panels,
        )
        tasks = min(self.layout.device.tasks_for_elements(columns * inner), count)
        self.parts.append(LoopPart(pack_loop, packing, tasks))
        return panels

    def steps(self, side: int, table: MapTable, lengths: Slot | None) -> dict[str, Any]:
        """Return the common arguments of the loops over the steps, by name."""
        layout = self.layout
        p = layout.parameters
        return {
            "steps": layout.steps,
            "batch": layout.batch,
            "step_stride": layout.step_stride,
            "batch_stride": layout.batch_stride,
            "is_reversed": side,
            "lengths": lengths,
            "mask_stride": (p.num_layers - 1) * layout.steps,
            "maps": tuple(table.entries),
            "width": p.rows,
            "size": p.state_size,
            "hidden": p.hidden,
            "words_per_worker": WORDS_PER_WORKER,
            "words": Scratch(),
        }

    @property
    def words_bytes(self) -> int:
        """Scratch space of a loop over the steps."""
        return WORD_BYTES * WORDS_PER_WORKER * self.layout.device.workers(self.layout.tasks)

    def mask_rows(self, mask: Slot, layer: int, side: int) -> RowTensor:
        """Return the rows of the mask of a layer's output."""
        layout = self.layout
        start = layer * layout.steps * layout.width + side * layout.parameters.hidden
        return RowTensor(shifted(mask, start), layout.width, MASK)

    def limits(self) -> Sequence[float]:
        """Return the parameters of an lstm's maps."""
        p = self.layout.parameters
        if p.lstm_state_clip_min is None or p.lstm_state_clip_max is None:
            return ()
        return (p.lstm_state_clip_min, p.lstm_state_clip_max)

    def chain(self) -> ChainPart:
        """Return all parts."""
        return ChainPart(tuple(self.parts), tuple(self.scratch), self.extra_count)
