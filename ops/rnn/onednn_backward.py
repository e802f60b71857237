"""Backward of RNN in compiled code: the steps, then products over all steps, for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart
from mxrun.device.cpu.onednn.operations import column_sum
from mxrun.device.cpu.onednn.primitive import Argument
from mxrun.operator.native_kernel import LoopPart, Slot
from mxrun.ops.copy_part import copy_part
from mxrun.ops.rnn.layout import TensorKey, shifted
from mxrun.ops.rnn.loops import SEQUENCE, BackwardSteps, backward_loop, backward_pairs_loop
from mxrun.ops.rnn.maps import backward_map, copy_map, form_of, total_map, zero_map
from mxrun.ops.rnn.onednn_parts import KernelBuilder
from mxrun.ops.rnn.tables import MapTable, RowTensor


@dataclass(frozen=True)
class BackwardSlots:
    """Tensors of a backward call; None for those that it lacks or that nobody requests.

    output_grad, last_state_grad, last_cell_grad: gradients of the outputs. data_grad, vector_grad,
    state_grad, cell_grad: gradients of the inputs. data_dtype: of data's gradient.
    """

    data: Slot
    vector: Slot
    lengths: Slot | None
    mask: Slot | None
    output_grad: Slot | None
    last_state_grad: Slot | None
    last_cell_grad: Slot | None
    data_grad: Slot | None
    data_dtype: str
    vector_grad: Slot | None
    state_grad: Slot | None
    cell_grad: Slot | None
    kept: Mapping[TensorKey, Slot]


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

    def _x_grad(self, side: int) -> tuple[TensorSpec, Slot]:
        """Return the gradient of the input's product with its weight."""
        layout = self.build.layout
        spec = layout.spec(layout.rows, layout.parameters.rows)
        return spec, self.build.space(f"x_grad {side}", spec)

    def _y_grad(self, side: int) -> tuple[TensorSpec, Slot]:
        """Return the gradient of the state's product, which is another one in a gru."""
        spec, slot = self._x_grad(side)
        if self.build.layout.parameters.mode != "gru":
            return spec, slot
        return spec, self.build.space(f"y_grad {side}", spec)

    def _read_grad(self) -> Slot:
        """Return the space of the gradient of what a layer but the first one reads."""
        layout = self.build.layout
        return self.build.space("read_grad", layout.spec(layout.rows, layout.width))

    def _input_gradient(self, layer: int, side: int) -> None:
        """Add the gradient of what the layer reads: the sum over the directions."""
        build, layout, slots = self.build, self.build.layout, self.slots
        width = layout.parameters.width(layer, layout.features)
        spec, target = layout.spec(layout.rows, width), self._read_grad() if layer else None
        if target is None:
            assert slots.data_grad is not None
            spec, target = TensorSpec((layout.rows, width), slots.data_dtype), slots.data_grad
        weight = layout.weights[layer, side, "input_weight"]
        build.product(
            self._x_grad(side),
            build.multiplied(weight, slots.vector),
            (spec, target),
            adds=side > 0,
        )

    def _weight_gradients(self, layer: int, side: int, vector_grad: Slot) -> None:
        """Add the gradients of a direction's weights and biases."""
        build, layout, slots = self.build, self.build.layout, self.slots
        p, weights = layout.parameters, layout.weights
        read = slots.data if layer == 0 else slots.kept[layer - 1, 0, "output"]
        width = p.width(layer, layout.features)
        before = layout.spec(layout.rows, p.hidden), slots.kept[layer, side, "before"]
        factors = {
            "input_weight": (self._x_grad(side), (layout.spec(layout.rows, width), read)),
            "recurrent_weight": (self._y_grad(side), before),
        }
        if p.projection_size is not None:
            inner = slots.kept[layer, side, "inner"]
            total = layout.spec(layout.rows, p.hidden), self._total(side)
            factors["projection"] = (total, (layout.spec(layout.rows, p.state_size), inner))
        for name, (left, right) in factors.items():
            weight = weights[layer, side, name]
            target = TensorSpec(weight.shape), shifted(vector_grad, weight.offset)
            build.product(left, right, target, transposed=(True, False))
        x_bias, y_bias = (
            shifted(vector_grad, weights[layer, side, name].offset)
            for name in ("input_bias", "recurrent_bias")
        )
        self._column_sum(self._x_grad(side), x_bias)
        if p.mode == "gru":
            self._column_sum(self._y_grad(side), y_bias)
        else:
            build.parts.append(copy_part(x_bias, y_bias, p.rows, layout.device))

    def _column_sum(self, matrix: tuple[TensorSpec, Slot], target: Slot) -> None:
        spec, slot = matrix
        team = self.build.layout.device.team_for_elements(spec.elements)
        prepared = column_sum(*spec.shape, team, spec.dtype)
        ends = {Argument.SOURCE: slot, Argument.OUTPUT: target}
        self.build.parts.append(PrimitivePart(prepared, ends))

    def _total(self, side: int) -> Slot:
        """Return the space of the gradient of a projection's result."""
        layout = self.build.layout
        spec = layout.spec(layout.rows, layout.parameters.hidden)
        return self.build.space(f"total {side}", spec)

    def _steps(self, layer: int, side: int) -> None:
        """Add the packing of the recurrent weights and the loop over the steps."""
        build, layout, slots = self.build, self.build.layout, self.slots
        p, weights, vector = layout.parameters, layout.weights, slots.vector
        recurrent = shifted(vector, weights[layer, side, "recurrent_weight"].offset)
        panels = build.panels("panels", recurrent, p.hidden, p.rows, False)
        table = MapTable(layout.device)
        maps = _GradientMaps(self, table, layer, side)
        projection = None
        if p.projection_size is not None:
            weight = shifted(vector, weights[layer, side, "projection"].offset)
            projection = build.panels("projection", weight, p.state_size, p.hidden, False)
        start, start_count = maps.start()
        hold, hold_count = maps.hold()
        arguments = BackwardSteps(
            width=p.rows,
            products=self._y_grad(side)[1],
            panels=panels,
            size=p.state_size,
            hidden=p.hidden,
            h_grad=maps.h_grad.slot,
            total=None if projection is None else self._total(side),
            inner_grad=None if projection is None else maps.inner_grad.slot,
            projection_panels=projection,
            start=start,
            start_count=start_count,
            projecting=0 if projection is None else maps.projecting(),
            step=maps.step(),
            hold=hold,
            hold_count=hold_count,
            **build.steps(side, table, slots.lengths),
        )
        loop = backward_pairs_loop if layout.are_pairs else backward_loop
        loop = loop if layout.dtype == FLOAT32 else loop.bfloat16
        build.parts.append(LoopPart(loop, arguments, layout.team, build.words_bytes))

    def read_grad(self, layer: int) -> Slot | None:
        """Return the gradient of a layer's output."""
        is_last = layer == self.build.layout.parameters.num_layers - 1
        return self.slots.output_grad if is_last else self._read_grad()


class _GradientMaps:
    """The maps of one direction of a layer; each method adds some and returns where they begin."""

    def __init__(self, parts: BackwardParts, table: MapTable, layer: int, side: int) -> None:
        build, slots = parts.build, parts.slots
        layout = build.layout
        p, dtype = layout.parameters, layout.dtype
        self.p, self.table, self.build = p, table, build
        index = (layer * p.directions + side) * layout.batch
        given = parts.read_grad(layer)
        self.heads: list[RowTensor] = []
        if given is not None:
            self.heads = [RowTensor(given, layout.width, dtype=dtype).part(side * p.hidden)]
            if slots.mask is not None and layer < p.num_layers - 1:
                self.heads.append(build.mask_rows(slots.mask, layer, side))
        self.form = form_of(p, len(self.heads) > 1, bool(self.heads))
        kept = slots.kept
        self.gates = RowTensor(kept[layer, side, "products"], p.rows)
        self.before = RowTensor(kept[layer, side, "before"], p.hidden, dtype=dtype)
        self.x_grad = RowTensor(parts._x_grad(side)[1], p.rows, dtype=dtype)
        self.y_grad = RowTensor(parts._y_grad(side)[1], p.rows, dtype=dtype)
        self.pairs = [(slots.last_state_grad, self._state("h", slots.state_grad, index, p.hidden))]
        self.firsts = [_of(slots.last_state_grad, index, p.hidden)]
        self.h_grad = self.pairs[0][1]
        if p.mode == "gru":
            self.others = RowTensor(kept[layer, side, "others"], p.state_size)
        if p.has_cell:
            self.cells = RowTensor(kept[layer, side, "cells"], p.state_size)
            self.c_grad = self._state("c", slots.cell_grad, index, p.state_size)
            self.pairs.append((slots.last_cell_grad, self.c_grad))
            self.firsts.append(_of(slots.last_cell_grad, index, p.state_size))
        if p.projection_size is not None:
            self.total = RowTensor(parts._total(side), p.hidden, dtype=dtype)
            space = build.space("inner_grad", TensorSpec((layout.batch, p.state_size)))
            self.inner_grad = RowTensor(space, p.state_size, SEQUENCE)

    def _state(self, name: str, slot: Slot | None, index: int, size: int) -> RowTensor:
        """Return the running gradient of a state: the operator's output, or scratch space."""
        if slot is not None:
            return RowTensor(shifted(slot, index * size), size, SEQUENCE)
        spec = TensorSpec((self.build.layout.batch, size))
        return RowTensor(self.build.space(f"{name}_grad", spec), size, SEQUENCE)

    def start(self) -> tuple[int, int]:
        """Copy the gradients of the last states, or zeros."""
        begin = len(self.table.entries)
        for given, (_, running) in zip(self.firsts, self.pairs, strict=True):
            size = running.pitch
            if given is None:
                self.table.add(zero_map(), [running], [self.gates], size)
            else:
                self.table.add(copy_map(1), [running], [given], size)
        return begin, len(self.firsts)

    def projecting(self) -> int:
        """Add the gradients of a projection's result."""
        total = total_map(len(self.heads) > 1, bool(self.heads))
        outputs = [self.total, self.h_grad]
        return self.table.add(total, outputs, [self.h_grad, *self.heads], self.p.hidden)

    def step(self) -> int:
        """Compute the gradients of the gates and the previous states."""
        p, size = self.p, self.p.state_size
        gates = self.gates.parts(p.gates, size)
        outputs = self.x_grad.parts(p.gates, size)
        operands = [self.h_grad, *self.heads]
        if p.projection_size is not None:
            operands = [self.inner_grad]
        if p.has_cell:
            operands.append(self.c_grad)
        operands += gates
        if p.mode == "gru":
            outputs += self.y_grad.parts(p.gates, size)
            operands += [self.others, self.before]
        if p.has_cell:
            outputs.append(self.c_grad)
            operands.append(self.cells)
        if p.projection_size is None:
            outputs.append(self.h_grad)
        return self.table.add(backward_map(self.form), outputs, operands, size, self.build.limits())

    def hold(self) -> tuple[int, int]:
        """Set the gradients of the products to 0; those of the states are handed on."""
        p, begin = self.p, len(self.table.entries)
        targets = [(self.x_grad, p.rows)]
        if p.mode == "gru":
            targets.append((self.y_grad, p.rows))
        if p.projection_size is not None:
            targets.append((self.total, p.hidden))
        for rows, size in targets:
            self.table.add(zero_map(), [rows], [self.gates], size)
        return begin, len(targets)


def _of(slot: Slot | None, index: int, size: int) -> RowTensor | None:
    """Return the rows of one direction in the states of all."""
    return None if slot is None else RowTensor(shifted(slot, index * size), size, SEQUENCE)
