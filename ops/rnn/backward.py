"""Backward of RNN in compiled code: the steps, then products over all steps, for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import TensorSpec
from mxrun.operator.native_kernel import LoopPart, Slot
from mxrun.ops.column_sum import column_sum_part
from mxrun.ops.copy_part import copy_part
from mxrun.ops.rnn.layout import TensorKey, shifted
from mxrun.ops.rnn.loops import (
    PRECEDING,
    SEQUENCE,
    BackwardSteps,
    backward_loop,
    backward_pairs_loop,
)
from mxrun.ops.rnn.maps import backward_map, copy_map, form_of, total_map, zero_map
from mxrun.ops.rnn.onednn_parts import KernelBuilder
from mxrun.ops.rnn.tables import CallSlots, MapTable, RowTensor
from mxrun.ops.rows import zero_part


@dataclass(frozen=True, kw_only=True)
class BackwardSlots(CallSlots):
    """Tensors of a backward call; None for absent tensors and null requests.

    output: the operator's output. first_state, first_cell: the states before the first step; None
    for zeros. output_grad, last_state_grad, last_cell_grad: gradients of the outputs. data_grad,
    vector_grad, state_grad, cell_grad: gradients of the inputs. data_dtype: of data's gradient.
    gradients: space for the gradients of the records, perhaps
    their memory. read_grad: of what a layer but the first one reads. states_space: space for the
    states of one direction; None: scratch space.
    """

    output: Slot | None
    output_grad: Slot | None
    last_state_grad: Slot | None
    last_cell_grad: Slot | None
    data_grad: Slot | None
    data_dtype: str
    vector_grad: Slot | None
    state_grad: Slot | None
    cell_grad: Slot | None
    gradients: Mapping[TensorKey, Slot]
    read_grad: Slot | None
    states_space: Slot | None

    @property
    def first_states(self) -> dict[str, Slot | None]:
        """The first states by the names of their records."""
        return {"states": self.first_state, "cells": self.first_cell}


@dataclass(frozen=True)
class BackwardParts:
    """Generator of the parts of backward."""

    build: KernelBuilder
    slots: BackwardSlots

    def add(self) -> None:
        """Add the parts of all layers, the last one first; raises Unsupported."""
        p = self.build.layout.parameters
        for layer in reversed(range(p.num_layers)):
            sides = range(p.directions)
            for side in sides:
                self._steps(layer, side)
            for side in sides:
                if layer or self.slots.data_grad is not None:
                    self._input_gradient(layer, side)
                if self.slots.vector_grad is not None:
                    self._weight_gradients(layer, side, self.slots.vector_grad)

    def gradient(self, layer: int, side: int, name: str, columns: int) -> RowTensor:
        """Return the rows of the gradient of `gates`, of which there is one, or of `others`.

        The gradients of gates are those of the input's products, and of the states' products but
        for the last gate of a gru, for which those are the gradients of `others`.
        """
        layout = self.build.layout
        slot = self.slots.gradients.get((layer, side, name))
        if slot is None:
            slot = self.build.space(
                f"{name}_grad {layer} {side}", layout.spec(layout.rows, columns)
            )
        return RowTensor(slot, columns, dtype=layout.dtype)

    def x_grad(self, layer: int, side: int) -> RowTensor:
        """Return the gradient of the input's product with its weight."""
        return self.gradient(layer, side, "gates", self.build.layout.parameters.rows)

    def other_grad(self, layer: int, side: int) -> RowTensor:
        """Return the gradient of the state's product for the last gate of a gru."""
        return self.gradient(layer, side, "others", self.build.layout.parameters.state_size)

    @property
    def valid_data(self) -> Slot:
        """The data; with lengths a copy, in which the loop over the steps sets padding to 0.

        Zeros times numbers of padding that are not finite would not be zeros.
        """
        layout = self.build.layout
        if self.slots.lengths is None:
            return self.slots.data
        return self.build.space("valid data", layout.spec(layout.rows, layout.features))

    def states(self, layer: int, side: int) -> RowTensor:
        """Return the states after each step."""
        layout, slots = self.build.layout, self.slots
        p, recorded = layout.parameters, slots.records.get((layer, side, "states"))
        if recorded is not None:
            return recorded
        output = slots.output
        if layer < p.num_layers - 1:
            output = slots.records[layer, 0, "output"].slot
        assert output is not None
        return RowTensor(output, layout.width, dtype=layout.dtype).part(side * p.hidden)

    def first(self, name: str, layer: int, side: int) -> RowTensor | None:
        """Return a state of a direction before its first step; None for zeros."""
        layout, slot = self.build.layout, self.slots.first_states[name]
        p = layout.parameters
        size = p.hidden if name == "states" else p.state_size
        return _of(slot, (layer * p.directions + side) * layout.batch, size)

    def _matrix(self, rows: RowTensor, count: int, columns: int) -> tuple[TensorSpec, Slot]:
        return TensorSpec((count, columns), rows.dtype), rows.slot

    def _input_gradient(self, layer: int, side: int) -> None:
        """Add the gradient of what the layer reads: the sum over the directions."""
        build, layout, slots = self.build, self.build.layout, self.slots
        p = layout.parameters
        width = p.width(layer, layout.features)
        spec, target = layout.spec(layout.rows, width), slots.read_grad
        if layer == 0:
            spec, target = TensorSpec((layout.rows, width), slots.data_dtype), slots.data_grad
        assert target is not None
        weight = layout.weights[layer, side, "input_weight"]
        build.product(
            self._matrix(self.x_grad(layer, side), layout.rows, p.rows),
            build.multiplied(weight, slots.vector),
            (spec, target),
            adds=side > 0,
        )

    def _weight_gradients(self, layer: int, side: int, vector_grad: Slot) -> None:
        """Add the gradients of a direction's weights and biases."""
        build, layout, slots = self.build, self.build.layout, self.slots
        p, weights = layout.parameters, layout.weights
        read = self.valid_data if layer == 0 else slots.records[layer - 1, 0, "output"].slot
        width = p.width(layer, layout.features)
        x_grad = self._matrix(self.x_grad(layer, side), layout.rows, p.rows)
        factors = {"input_weight": (x_grad, (layout.spec(layout.rows, width), read))}
        if p.projection_size is not None:
            inner = self._matrix(slots.records[layer, side, "inner"], layout.rows, p.state_size)
            total = layout.spec(layout.rows, p.hidden), self.total(layer, side)
            factors["projection"] = (total, inner)
        for name, (left, right) in factors.items():
            weight = weights[layer, side, name]
            target = TensorSpec(weight.shape), shifted(vector_grad, weight.offset)
            build.product(left, right, target, transposed=(True, False))
        self._bias_gradients(layer, side, vector_grad)
        start = weights[layer, side, "recurrent_weight"].offset
        self._recurrent_gradient(layer, side, shifted(vector_grad, start))

    @property
    def _same_rows(self) -> int:
        """Rows of the weights whose products of input and state have the same gradients."""
        p = self.build.layout.parameters
        return 2 * p.state_size if p.mode == "gru" else p.rows

    def _bias_gradients(self, layer: int, side: int, vector_grad: Slot) -> None:
        """Add the sums of the products' gradients over all rows."""
        layout, same = self.build.layout, self._same_rows
        p = layout.parameters
        x_bias, y_bias = (
            shifted(vector_grad, layout.weights[layer, side, name].offset)
            for name in ("input_bias", "recurrent_bias")
        )
        self._column_sum(self._matrix(self.x_grad(layer, side), layout.rows, p.rows), x_bias)
        if p.mode == "gru":
            others = self._matrix(self.other_grad(layer, side), layout.rows, p.state_size)
            self._column_sum(others, shifted(y_bias, same))
        self.build.parts.append(copy_part(x_bias, y_bias, same, layout.device))

    def _recurrent_gradient(self, layer: int, side: int, target: Slot) -> None:
        """Add the product of gradients with the states before their steps.

        It is the last one, because the gradients of the input's products become those of the
        states' products. States are recorded after each step, so that all rows but those of the
        first step are multiplied with the states of neighbouring rows. With the batch first, the
        row before a first step belongs to another sequence: these gradients become 0.
        """
        build, layout = self.build, self.build.layout
        p, first = layout.parameters, self.first("states", layer, side)
        output = TensorSpec((p.rows, p.hidden)), target
        rows = self.x_grad(layer, side)
        if p.mode == "gru":
            others, last = self.other_grad(layer, side), rows.part(self._same_rows)
            build.copy_rows(others, last, layout.rows, p.state_size)
        begin = rows.from_row(layout.step_stride * (layout.steps - 1) if side else 0)
        begin = replace(begin, pitch=rows.pitch * layout.batch_stride)
        if first is not None:
            dense = build.compact(begin, layout.batch, p.rows, None)
            state = layout.spec(layout.batch, p.hidden), self._rounded(first, layout.batch)
            left = self._matrix(dense, layout.batch, p.rows)
            build.product(left, state, output, transposed=(True, False))
        if layout.steps == 1:
            if first is None:
                build.parts.append(zero_part(target, p.rows * p.hidden, layout.device))
            return
        if not layout.is_steps_first:
            build.zero_rows(begin.slot, layout.batch, p.rows, begin.pitch)
        states = self.states(layer, side)
        states = build.compact(states, layout.rows, p.hidden, self.slots.states_space)
        later, earlier = rows.from_row(layout.step_stride), states
        if side:
            later, earlier = rows, states.from_row(layout.step_stride)
        count = layout.rows - layout.step_stride
        build.product(
            self._matrix(later, count, p.rows),
            self._matrix(earlier, count, p.hidden),
            output,
            transposed=(True, False),
            adds=first is not None,
        )

    def _rounded(self, state: RowTensor, rows: int) -> Slot:
        """Return float32 states in the dtype of the rows."""
        layout = self.build.layout
        count = rows * layout.parameters.hidden
        if layout.dtype == FLOAT32:
            return state.slot
        rounded = self.build.fresh(layout.spec(count))
        stored = (layout.dtype, FLOAT32)
        self.build.parts.append(copy_part(state.slot, rounded, count, layout.device, stored=stored))
        return rounded

    def _column_sum(self, matrix: tuple[TensorSpec, Slot], target: Slot) -> None:
        spec, slot = matrix
        device = self.build.layout.device
        part = column_sum_part(slot, target, spec.shape, spec.dtype, device)
        self.build.parts.append(part)

    def total(self, layer: int, side: int) -> Slot:
        """Return the space of the gradient of a projection's result."""
        layout = self.build.layout
        spec = layout.spec(layout.rows, layout.parameters.hidden)
        return self.build.space(f"total {layer} {side}", spec)

    def _steps(self, layer: int, side: int) -> None:
        """Add the packing of the recurrent weights and the loop over the steps."""
        build, layout, slots = self.build, self.build.layout, self.slots
        p, weights, vector = layout.parameters, layout.weights, slots.vector
        recurrent = shifted(vector, weights[layer, side, "recurrent_weight"].offset)
        columns, other_panels = p.rows, None
        if p.mode == "gru":
            columns = 2 * p.state_size
            rest = shifted(recurrent, columns * p.hidden)
            other_panels = build.panels(rest, p.hidden, p.state_size, False)
        table = MapTable(layout.device)
        maps = _GradientMaps(self, table, layer, side)
        if maps.valid_data is not None:
            count, stored = layout.rows * layout.features, (layout.dtype, layout.dtype)
            copy = copy_part(slots.data, maps.valid_data.slot, count, layout.device, stored=stored)
            build.parts.append(copy)
        projection = None
        if p.projection_size is not None:
            weight = shifted(vector, weights[layer, side, "projection"].offset)
            projection = build.panels(weight, p.state_size, p.hidden, False)
        start, start_count = maps.start()
        hold, hold_count = maps.hold()
        arguments = BackwardSteps(
            products=maps.x_grad.slot,
            columns=columns,
            panels=build.panels(recurrent, p.hidden, columns, False),
            others=None if other_panels is None else maps.other_grad.slot,
            other_panels=other_panels,
            h_grad=maps.h_grad.slot,
            total=None if projection is None else maps.total.slot,
            inner_grad=None if projection is None else maps.inner_grad.slot,
            projection_panels=projection,
            start=start,
            start_count=start_count,
            projecting=0 if projection is None else maps.projecting(),
            first_step=maps.step(is_first=True),
            step=maps.step(is_first=False),
            hold=hold,
            hold_count=hold_count,
            **build.steps(side, table, slots.lengths),
        )
        loop = backward_pairs_loop if layout.are_pairs else backward_loop
        loop = (loop if layout.dtype == FLOAT32 else loop.bfloat16).with_maps(*table.maps)
        build.parts.append(LoopPart(loop, arguments, layout.tasks, build.words_bytes))

    def output_grad(self, layer: int) -> Slot | None:
        """Return the gradient of a layer's output."""
        is_last = layer == self.build.layout.parameters.num_layers - 1
        return self.slots.output_grad if is_last else self.slots.read_grad


class _GradientMaps:
    """The maps of one direction of a layer; each method adds some and returns where they begin."""

    def __init__(self, parts: BackwardParts, table: MapTable, layer: int, side: int) -> None:
        build, slots = parts.build, parts.slots
        layout = build.layout
        p, dtype = layout.parameters, layout.dtype
        self.p, self.table, self.build = p, table, build
        index = (layer * p.directions + side) * layout.batch
        given = parts.output_grad(layer)
        self.heads: list[RowTensor] = []
        if given is not None:
            self.heads = [RowTensor(given, layout.width, dtype=dtype).part(side * p.hidden)]
            if slots.mask is not None and layer < p.num_layers - 1:
                self.heads.append(build.mask_rows(slots.mask, layer, side))
        self.form = replace(form_of(p, len(self.heads) > 1), has_gradient=bool(self.heads))
        self.states, self.x_grad = parts.states(layer, side), parts.x_grad(layer, side)
        self.pairs = [(slots.last_state_grad, self._state(slots.state_grad, index, p.hidden))]
        self.firsts = [_of(slots.last_state_grad, index, p.hidden)]
        self.valid_data: RowTensor | None = None
        if layer == side == 0 and slots.lengths is not None and slots.vector_grad is not None:
            self.valid_data = RowTensor(parts.valid_data, layout.features, dtype=dtype)
        self.h_grad = self.pairs[0][1]
        # What a step reads of the one before it: rows of all steps, and those before the first.
        self.before: dict[bool, list[RowTensor]] = {False: [], True: []}
        if p.gates > 1:
            self.gates = slots.records[layer, side, "gates"]
            name = "cells" if p.has_cell else "states"
            rows = slots.records[layer, side, name] if p.has_cell else self.states
            self.before[False] = [rows.at(PRECEDING)]
            self.before[True] = [parts.first(name, layer, side) or build.zero_row(p.state_size)]
        if p.mode == "gru":
            self.others = slots.records[layer, side, "others"]
            self.other_grad = parts.other_grad(layer, side)
        if p.has_cell:
            self.c_grad = self._state(slots.cell_grad, index, p.state_size)
            self.pairs.append((slots.last_cell_grad, self.c_grad))
            self.firsts.append(_of(slots.last_cell_grad, index, p.state_size))
        if p.projection_size is not None:
            self.total = RowTensor(parts.total(layer, side), p.hidden, dtype=dtype)
            space = build.fresh(TensorSpec((layout.batch, p.state_size)))
            self.inner_grad = RowTensor(space, p.state_size, SEQUENCE)

    def _state(self, slot: Slot | None, index: int, size: int) -> RowTensor:
        """Return the running gradient of a state: the operator's output, or scratch space."""
        if slot is not None:
            return RowTensor(shifted(slot, index * size), size, SEQUENCE)
        spec = TensorSpec((self.build.layout.batch, size))
        return RowTensor(self.build.fresh(spec), size, SEQUENCE)

    def start(self) -> tuple[int, int]:
        """Copy the gradients of the last states, or zeros."""
        begin = len(self.table.entries)
        for given, (_, running) in zip(self.firsts, self.pairs, strict=True):
            size = running.pitch
            if given is None:
                self.table.add(zero_map(), [running], [running], size)
            else:
                self.table.add(copy_map(1), [running], [given], size)
        return begin, len(self.firsts)

    def projecting(self) -> int:
        """Add the gradients of a projection's result."""
        total = total_map(len(self.heads) > 1, bool(self.heads))
        outputs = [self.total, self.h_grad]
        return self.table.add(total, outputs, [self.h_grad, *self.heads], self.p.hidden)

    def step(self, is_first: bool) -> int:
        """Compute the gradients of the gates and the previous states.

        is_first: whether the previous states are the first ones.
        """
        p, size = self.p, self.p.state_size
        outputs = self.x_grad.parts(p.gates, size)
        operands = [self.h_grad, *self.heads]
        if p.projection_size is not None:
            operands = [self.inner_grad]
        if p.has_cell:
            operands.append(self.c_grad)
        operands += self.gates.parts(p.gates, size) if p.gates > 1 else [self.states]
        if p.mode == "gru":
            outputs.append(self.other_grad)
            operands.append(self.others)
        operands += self.before[is_first]
        if p.has_cell:
            outputs.append(self.c_grad)
        if p.projection_size is None:
            outputs.append(self.h_grad)
        return self.table.add(backward_map(self.form), outputs, operands, size, self.build.limits())

    def hold(self) -> tuple[int, int]:
        """Set the gradients of the products to 0, and the data that the weights' gradients read.

        The gradients of the states are handed on.
        """
        p, begin = self.p, len(self.table.entries)
        targets = [(self.x_grad, p.rows)]
        if p.mode == "gru":
            targets.append((self.other_grad, p.state_size))
        if p.projection_size is not None:
            targets.append((self.total, p.hidden))
        if self.valid_data is not None:
            targets.append((self.valid_data, self.valid_data.pitch))
        for rows, size in targets:
            self.table.add(zero_map(), [rows], [rows], size)
        return begin, len(targets)


def _of(slot: Slot | None, index: int, size: int) -> RowTensor | None:
    """Return the rows of one direction in the states of all."""
    return None if slot is None else RowTensor(shifted(slot, index * size), size, SEQUENCE)
