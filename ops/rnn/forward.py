"""Forward of RNN in compiled code: a product over all steps, then the steps, for each layer."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import TensorSpec
from mxrun.operator.native_kernel import LoopPart, Slot
from mxrun.ops.copy_part import copy_part
from mxrun.ops.rnn.layout import shifted
from mxrun.ops.rnn.loops import SEQUENCE, ForwardSteps, forward_loop, forward_pairs_loop
from mxrun.ops.rnn.maps import copy_map, form_of, forward_map, zero_map
from mxrun.ops.rnn.onednn_parts import KernelBuilder
from mxrun.ops.rnn.tables import CallSlots, MapTable, RowTensor


@dataclass(frozen=True, kw_only=True)
class ForwardSlots(CallSlots):
    """Tensors of a forward call; None for those that it lacks.

    output_dtype: of the last layer's output. first_state, first_cell: copies of the first states.
    """

    state: Slot | None
    state_cell: Slot | None
    output: Slot
    output_dtype: str
    last_state: Slot | None
    last_cell: Slot | None


@dataclass(frozen=True)
class ForwardParts:
    """Generator of the parts of forward."""

    build: KernelBuilder
    slots: ForwardSlots

    def add(self) -> None:
        """Add the parts of all layers; raises Unsupported."""
        p = self.build.layout.parameters
        for layer in range(p.num_layers):
            outputs = [self._rows(layer, side) for side in range(p.directions)]
            whole = outputs[0]
            if layer and p.directions > 1 and self._output(layer) == self._output(layer - 1):
                # The second direction still reads the output of the layer before.
                outputs[0] = self._compact(whole)
            for side, output in enumerate(outputs):
                self._products(layer, side)
                self._steps(layer, side, output)
            if outputs[0] is not whole:
                self.build.copy_rows(outputs[0], whole, self.build.layout.rows, p.hidden)

    def _output(self, layer: int) -> Slot:
        """Return the output of a layer; without backward, the layers share the operator's."""
        layout, slots = self.build.layout, self.slots
        recorded = slots.records.get((layer, 0, "output"))
        if recorded is not None:
            return recorded.slot
        is_last = layer == layout.parameters.num_layers - 1
        if is_last or slots.output_dtype == layout.dtype:
            return slots.output
        return self.build.space("output", layout.spec(layout.rows, layout.width))

    def _rows(self, layer: int, side: int) -> RowTensor:
        """Return the rows of a direction in a layer's output."""
        layout = self.build.layout
        p = layout.parameters
        dtype = self.slots.output_dtype if layer == p.num_layers - 1 else layout.dtype
        return RowTensor(self._output(layer), layout.width, dtype=dtype).part(side * p.hidden)

    def _compact(self, output: RowTensor) -> RowTensor:
        """Return scratch space for the rows of one direction."""
        layout = self.build.layout
        hidden = layout.parameters.hidden
        space = self.build.fresh(TensorSpec((layout.rows, hidden), output.dtype))
        return RowTensor(space, hidden, dtype=output.dtype)

    def _gates(self, layer: int, side: int) -> Slot:
        """Return the rows of the input's products, which become the gates."""
        recorded = self.slots.records.get((layer, side, "gates"))
        if recorded is not None:
            return recorded.slot
        layout, output = self.build.layout, self._rows(layer, side)
        p = layout.parameters
        if layer == 0 and p.rows == layout.width and output.dtype == FLOAT32:
            # The only gate becomes the output.
            return output.slot
        spec = TensorSpec((layout.rows, p.rows))
        return self.build.space(f"gates {layer} {side}", spec)

    def _products(self, layer: int, side: int) -> None:
        """Add the product of what a layer reads with its input weight, and the biases."""
        build, layout, slots = self.build, self.build.layout, self.slots
        p, weights = layout.parameters, layout.weights
        width = p.width(layer, layout.features)
        read = slots.data if layer == 0 else self._output(layer - 1)
        input_bias, bias = (
            shifted(slots.vector, weights[layer, side, name].offset)
            for name in ("input_bias", "recurrent_bias")
        )
        total = build.fresh(TensorSpec((p.rows,)))
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
            (TensorSpec((layout.rows, p.rows)), self._gates(layer, side)),
            transposed=(False, True),
            bias=total,
        )

    def _steps(self, layer: int, side: int, output: RowTensor) -> None:
        """Add the packing of the recurrent weights and the loop over the steps."""
        build, layout, slots = self.build, self.build.layout, self.slots
        p, weights, vector = layout.parameters, layout.weights, slots.vector
        recurrent = shifted(vector, weights[layer, side, "recurrent_weight"].offset)
        table, gates = MapTable(layout.device), self._gates(layer, side)
        maps = _StepMaps(build, slots, table, (layer, side), RowTensor(gates, p.rows), output)
        projection = other_panels = bias = None
        columns = p.rows
        if p.mode == "gru":
            columns = 2 * p.state_size
            rest = shifted(recurrent, columns * p.hidden)
            other_panels = build.panels(rest, p.state_size, p.hidden, True)
            bias = shifted(vector, weights[layer, side, "recurrent_bias"].offset + columns)
        if p.projection_size is not None:
            weight = shifted(vector, weights[layer, side, "projection"].offset)
            projection = build.panels(weight, p.hidden, p.state_size, True)
        start, start_count = maps.start()
        hold, hold_count = maps.hold()
        finish, finish_count = maps.finish()
        arguments = ForwardSteps(
            products=gates,
            columns=columns,
            panels=build.panels(recurrent, columns, p.hidden, True),
            others=maps.others.slot if p.mode == "gru" else None,
            other_bias=bias,
            other_panels=other_panels,
            state=maps.state.slot,
            inner=None if projection is None else maps.inner.slot,
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
        loop = (loop if layout.dtype == FLOAT32 else loop.bfloat16).with_maps(*table.maps)
        build.parts.append(LoopPart(loop, arguments, layout.tasks, build.words_bytes))


class _StepMaps:
    """The maps of one direction of a layer; each method adds some and returns where they begin."""

    def __init__(
        self,
        build: KernelBuilder,
        slots: ForwardSlots,
        table: MapTable,
        place: tuple[int, int],
        gates: RowTensor,
        output: RowTensor,
    ) -> None:
        layout, (layer, side) = build.layout, place
        p = layout.parameters
        self.p, self.table, self.slots, self.build = p, table, slots, build
        self.index = (layer * p.directions + side) * layout.batch
        self.gates, self.output = gates, output
        self.mask = None
        if slots.mask is not None and layer < p.num_layers - 1:
            self.mask = build.mask_rows(slots.mask, layer, side)
        self.state = self._running(p.hidden, layout.dtype)
        self.recorded = {
            name: rows for (*owner, name), rows in slots.records.items() if tuple(owner) == place
        }
        self.form = replace(
            form_of(p, has_mask=self.mask is not None),
            is_recorded=bool(slots.records),
            has_states="states" in self.recorded,
        )
        if p.mode == "gru":
            self.others = self._running(p.state_size)
        if p.has_cell:
            self.cell = self._running(p.state_size)
        if p.projection_size is not None:
            self.inner = self._running(p.state_size, layout.dtype)
            self.projected = self._running(p.hidden)

    def _running(self, size: int, dtype: str = FLOAT32) -> RowTensor:
        """Return scratch space with a row for each sequence."""
        spec = TensorSpec((self.build.layout.batch, size), dtype)
        return RowTensor(self.build.fresh(spec), size, SEQUENCE, dtype)

    def _of_states(self, slot: Slot, size: int) -> RowTensor:
        """Return the rows of this direction in the states of all."""
        return RowTensor(shifted(slot, self.index * size), size, SEQUENCE)

    def _records(self, name: str) -> list[RowTensor]:
        return [self.recorded[name]] if name in self.recorded else []

    def start(self) -> tuple[int, int]:
        """Copy the first states, or zeros."""
        p, slots, begin = self.p, self.slots, len(self.table.entries)
        states = [(self.state, slots.state, slots.first_state, p.hidden)]
        if p.has_cell:
            states.append((self.cell, slots.state_cell, slots.first_cell, p.state_size))
        for rows, given, copy, size in states:
            outputs = [rows] if copy is None else [rows, self._of_states(copy, size)]
            if given is None:
                self.table.add(zero_map(), [rows], [rows], size)
            else:
                first = self._of_states(given, size)
                self.table.add(copy_map(len(outputs)), outputs, [first], size)
        return begin, len(states)

    def step(self) -> int:
        """Compute the gates, the states and the output."""
        p = self.p
        gates = self.gates.parts(p.gates, p.state_size)
        operands = list(gates)
        outputs = list(gates) if self.form.is_recorded and p.gates > 1 else []
        if p.mode == "gru":
            operands += [self.others, self.state]
            outputs += self._records("others")
        if p.has_cell:
            outputs += [*self._records("cells"), self.cell]
            operands.append(self.cell)
        if p.projection_size is not None:
            outputs += [self.inner, *self._records("inner")]
        else:
            outputs += [self.state, *self._records("states"), self.output]
            operands += [] if self.mask is None else [self.mask]
        step = forward_map(self.form)
        limits = self.build.limits()
        return self.table.add(step, outputs, operands, p.state_size, limits)

    def projecting(self) -> int:
        """Copy the projected output to its places."""
        masks = [] if self.mask is None else [self.mask]
        outputs = [self.state, *self._records("states"), self.output]
        copies = copy_map(len(outputs), bool(masks))
        return self.table.add(copies, outputs, [self.projected, *masks], self.p.hidden)

    def hold(self) -> tuple[int, int]:
        """Set the output to 0; the states remain."""
        p, begin = self.p, len(self.table.entries)
        zeros = [
            (self.output, p.hidden),
            *((each, p.state_size) for each in self._records("inner")),
        ]
        copies = [(each, self.state, p.hidden) for each in self._records("states")]
        copies += [(each, self.cell, p.state_size) for each in self._records("cells")]
        for rows, size in zeros:
            self.table.add(zero_map(), [rows], [self.state], size)
        for rows, running, size in copies:
            self.table.add(copy_map(1), [rows], [running], size)
        return begin, len(zeros) + len(copies)

    def finish(self) -> tuple[int, int]:
        """Copy the last states to the operator's outputs."""
        p, slots, begin, count = self.p, self.slots, len(self.table.entries), 0
        if slots.last_state is not None:
            last = self._of_states(slots.last_state, p.hidden)
            self.table.add(copy_map(1), [last], [self.state], p.hidden)
            count += 1
        if slots.last_cell is not None:
            last = self._of_states(slots.last_cell, p.state_size)
            self.table.add(copy_map(1), [last], [self.cell], p.state_size)
            count += 1
        return begin, count
