"""Forward of RNN in compiled code: a product over all steps, then the steps, for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import TensorSpec
from mxrun.operator.native_kernel import LoopPart, Slot
from mxrun.ops.copy_part import copy_part
from mxrun.ops.rnn.layout import TensorKey, shifted
from mxrun.ops.rnn.loops import FOLLOWING, SEQUENCE, ForwardSteps, forward_loop, forward_pairs_loop
from mxrun.ops.rnn.maps import (
    StepForm,
    copy_map,
    form_of,
    forward_map,
    held_map,
    zero_map,
)
from mxrun.ops.rnn.onednn_parts import KernelBuilder
from mxrun.ops.rnn.tables import MapTable, RowTensor


@dataclass(frozen=True)
class ForwardSlots:
    """Tensors of a forward call; None for those that it lacks.

    output_dtype: of the last layer's output. first_state, first_cell: copies of the first states.
    kept: what backward reads, or scratch space.
    """

    data: Slot
    vector: Slot
    state: Slot | None
    state_cell: Slot | None
    lengths: Slot | None
    output: Slot
    output_dtype: str
    last_state: Slot | None
    last_cell: Slot | None
    first_state: Slot | None
    first_cell: Slot | None
    mask: Slot | None
    kept: Mapping[TensorKey, Slot]


@dataclass(frozen=True)
class ForwardParts:
    """Generator of the parts of forward."""

    build: KernelBuilder
    slots: ForwardSlots

    def add(self) -> None:
        """Add the parts of all layers; raises Unsupported."""
        layout = self.build.layout
        p = layout.parameters
        for layer in range(p.num_layers):
            sides = range(p.directions)
            for side in sides:
                self._products(layer, side)
            for side in sides:
                self._steps(layer, side)

    def _products(self, layer: int, side: int) -> None:
        """Add the product of what a layer reads with its input weight, and the biases."""
        build, layout, slots = self.build, self.build.layout, self.slots
        p, weights = layout.parameters, layout.weights
        width = p.width(layer, layout.features)
        read = slots.data if layer == 0 else slots.kept[layer - 1, 0, "output"]
        input_bias, bias = (
            shifted(slots.vector, weights[layer, side, name].offset)
            for name in ("input_bias", "recurrent_bias")
        )
        total = build.space("bias", TensorSpec((p.rows,)))
        # The state's bias of a gru's last gate is multiplied by the reset gate.
        together = 2 * p.state_size if p.mode == "gru" else p.rows
        build.sum(total, input_bias, bias, together)
        if together < p.rows:
            source, target = shifted(input_bias, together), shifted(total, together)
            rest = p.rows - together
            build.parts.append(copy_part(source, target, rest, layout.device))
        build.product(
            (layout.spec(layout.rows, width), read),
            build.multiplied(weights[layer, side, "input_weight"], slots.vector),
            (TensorSpec((layout.rows, p.rows)), slots.kept[layer, side, "products"]),
            transposed=(False, True),
            bias=total,
        )

    def _steps(self, layer: int, side: int) -> None:
        """Add the packing of the recurrent weights and the loop over the steps."""
        build, layout, slots = self.build, self.build.layout, self.slots
        p, weights, vector = layout.parameters, layout.weights, slots.vector
        recurrent = shifted(vector, weights[layer, side, "recurrent_weight"].offset)
        table = MapTable(layout.device)
        maps = _StepMaps(build, slots, table, layer, side)
        others = projection = other_panels = bias = None
        columns = p.rows
        if p.mode == "gru":
            columns = 2 * p.state_size
            rest, others = shifted(recurrent, columns * p.hidden), slots.kept[layer, side, "others"]
            other_panels = build.panels("other panels", rest, p.state_size, p.hidden, True)
            bias = shifted(vector, weights[layer, side, "recurrent_bias"].offset + columns)
        if p.projection_size is not None:
            weight = shifted(vector, weights[layer, side, "projection"].offset)
            projection = build.panels("projection", weight, p.hidden, p.state_size, True)
        start, start_count = maps.start()
        hold, hold_count = maps.hold()
        finish, finish_count = maps.finish()
        arguments = ForwardSteps(
            products=slots.kept[layer, side, "products"],
            width=p.rows,
            columns=columns,
            panels=build.panels("panels", recurrent, columns, p.hidden, True),
            others=others,
            other_bias=bias,
            other_panels=other_panels,
            size=p.state_size,
            before=slots.kept[layer, side, "before"],
            hidden=p.hidden,
            inner=slots.kept.get((layer, side, "inner")),
            projected=None if projection is None else maps.projected.slot,
            projection_panels=projection,
            start=start,
            start_count=start_count,
            step=maps.step(),
            projecting=0 if projection is None else maps.projecting(),
            hold=hold,
            hold_count=hold_count,
            finish=finish,
            finish_count=finish_count,
            **build.steps(side, table, slots.lengths),
        )
        loop = forward_pairs_loop if layout.are_pairs else forward_loop
        loop = loop if layout.dtype == FLOAT32 else loop.bfloat16
        build.parts.append(LoopPart(loop, arguments, layout.team, build.words_bytes))


class _StepMaps:
    """The maps of one direction of a layer; each method adds some and returns where they begin."""

    def __init__(
        self, build: KernelBuilder, slots: ForwardSlots, table: MapTable, layer: int, side: int
    ) -> None:
        layout = build.layout
        p = layout.parameters
        self.p, self.table, self.slots, self.build = p, table, slots, build
        self.index = (layer * p.directions + side) * layout.batch
        is_last = layer == p.num_layers - 1
        self.mask = None
        if slots.mask is not None and not is_last:
            self.mask = build.mask_rows(slots.mask, layer, side)
        self.form: StepForm = form_of(p, has_mask=self.mask is not None)
        kept = slots.kept
        self.products = RowTensor(kept[layer, side, "products"], p.rows)
        self.before = RowTensor(kept[layer, side, "before"], p.hidden, dtype=layout.dtype)
        dtype = slots.output_dtype if is_last else layout.dtype
        whole = slots.output if is_last else kept[layer, 0, "output"]
        self.output = RowTensor(whole, layout.width, dtype=dtype).part(side * p.hidden)
        if p.mode == "gru":
            self.others = RowTensor(kept[layer, side, "others"], p.state_size)
        if p.has_cell:
            self.cells = RowTensor(kept[layer, side, "cells"], p.state_size)
        if p.projection_size is not None:
            self.inner = RowTensor(kept[layer, side, "inner"], p.state_size, dtype=layout.dtype)
            space = build.space("projected", TensorSpec((layout.batch, p.hidden)))
            self.projected = RowTensor(space, p.hidden, SEQUENCE)

    def _state(self, slot: Slot, size: int) -> RowTensor:
        """Return the rows of this direction in the states of all."""
        return RowTensor(shifted(slot, self.index * size), size, SEQUENCE)

    def start(self) -> tuple[int, int]:
        """Copy the first states, or zeros."""
        p, slots, begin = self.p, self.slots, len(self.table.entries)
        states = [(self.before, slots.state, slots.first_state, p.hidden)]
        if p.has_cell:
            states.append((self.cells, slots.state_cell, slots.first_cell, p.state_size))
        for rows, given, copy, size in states:
            outputs = [rows] if copy is None else [rows, self._state(copy, size)]
            if given is None:
                self.table.add(zero_map(), [rows], [self.products], size)
            else:
                self.table.add(copy_map(len(outputs)), outputs, [self._state(given, size)], size)
        return begin, len(states)

    def step(self) -> int:
        """Compute the gates, the states and the output."""
        p = self.p
        gates = self.products.parts(p.gates, p.state_size)
        outputs, operands = list(gates), list(gates)
        if p.mode == "gru":
            operands += [self.others, self.before]
        if p.has_cell:
            outputs.append(self.cells.at(FOLLOWING))
            operands.append(self.cells)
        if p.projection_size is not None:
            outputs.append(self.inner)
        else:
            outputs += [self.before.at(FOLLOWING), self.output]
            operands += [] if self.mask is None else [self.mask]
        step = forward_map(self.form)
        limits = self.build.limits()
        return self.table.add(step, outputs, operands, p.state_size, limits)

    def projecting(self) -> int:
        """Copy the projected output to its places."""
        masks = [] if self.mask is None else [self.mask]
        return self.table.add(
            copy_map(2, bool(masks)),
            [self.before.at(FOLLOWING), self.output],
            [self.projected, *masks],
            self.p.hidden,
        )

    def hold(self) -> tuple[int, int]:
        """Copy the states; the output is 0."""
        p, outputs = self.p, [self.before.at(FOLLOWING), self.output]
        begin, count = self.table.add(held_map(), outputs, [self.before], p.hidden), 1
        if p.has_cell:
            self.table.add(copy_map(1), [self.cells.at(FOLLOWING)], [self.cells], p.state_size)
            count += 1
        if p.projection_size is not None:
            self.table.add(zero_map(), [self.inner], [self.products], p.state_size)
            count += 1
        return begin, count

    def finish(self) -> tuple[int, int]:
        """Copy the last states to the operator's outputs."""
        p, slots, begin, count = self.p, self.slots, len(self.table.entries), 0
        if slots.last_state is not None:
            last = self._state(slots.last_state, p.hidden)
            self.table.add(copy_map(1), [last], [self.before], p.hidden)
            count += 1
        if slots.last_cell is not None:
            last = self._state(slots.last_cell, p.state_size)
            self.table.add(copy_map(1), [last], [self.cells], p.state_size)
            count += 1
        return begin, count
