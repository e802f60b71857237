"""Sizes of an RNN's tensors in compiled code, and what forward keeps for backward."""

from __future__ import annotations

from collections.abc import Iterator

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.once import cached_property
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.operator.native_kernel import Slot
from mxrun.ops.product_blocks import multiplies_pairs
from mxrun.ops.rnn.parameters import PackedWeight, RNNParameters, packed_weights

# Sequences of a task: on two cores, the largest number that leaves both at work for usual batches.
_SEQUENCES = 8
# A tensor of one direction of a layer: layer, direction, name.
TensorKey = tuple[int, int, str]


@dataclass(frozen=True)
class SequenceLayout:
    """Batch of sequences whose rows, one for each step of a sequence, are in data's order.

    data: shape of data. dtype: of the rows that are multiplied, float32 or bfloat16.
    """

    parameters: RNNParameters
    data: Shape
    dtype: str
    device: DeviceDescription

    @property
    def steps(self) -> int:
        return self.data[0] if self.is_steps_first else self.data[1]

    @property
    def batch(self) -> int:
        return self.data[1] if self.is_steps_first else self.data[0]

    @property
    def is_steps_first(self) -> bool:
        return self.parameters.layout == "TNC"

    @property
    def rows(self) -> int:
        return self.data[0] * self.data[1]

    @property
    def features(self) -> int:
        return self.data[2]

    @property
    def step_stride(self) -> int:
        """Rows from a step to the next one."""
        return self.batch if self.is_steps_first else 1

    @property
    def batch_stride(self) -> int:
        """Rows from a sequence to the next one."""
        return 1 if self.is_steps_first else self.steps

    @property
    def width(self) -> int:
        """Elements of a row of the output."""
        return self.parameters.directions * self.parameters.hidden

    @property
    def tasks(self) -> int:
        """Tasks of the steps, each of which runs entire sequences.

        Every task reads the recurrent weight at every step, so they have several sequences each.
        """
        p = self.parameters
        flops = 2 * self.rows * p.rows * p.hidden
        return min(
            self.device.tasks_for_flops(flops), self.device.most_tasks(-(-self.batch // _SEQUENCES))
        )

    @property
    def are_pairs(self) -> bool:
        """Whether recurrent weights are pairs of bfloat16 elements in the steps' products."""
        p = self.parameters
        is_even = p.state_size % 2 == 0 and p.hidden % 2 == 0
        return self.dtype == BFLOAT16 and multiplies_pairs(self.device) and is_even

    @cached_property
    def weights(self) -> dict[TensorKey, PackedWeight]:
        """The parts of the packed vector."""
        found = packed_weights(self.parameters, self.features)
        return {(each.layer, each.direction, each.kind): each for each in found}

    def spec(self, *shape: int) -> TensorSpec:
        """Return the spec of a tensor of the multiplied dtype."""
        return TensorSpec(shape, self.dtype)

    def records(self, keeps_output: bool) -> dict[TensorKey, TensorSpec]:
        """Return the specs of the tensors that forward keeps for backward, in order.

        keeps_output: whether backward can read the operator's output.
        """
        p = self.parameters
        return {
            (layer, side, name): spec
            for layer in range(p.num_layers)
            for side in range(p.directions)
            for name, spec in self._of_direction(layer, side, keeps_output)
        }

    @property
    def held_states_are_zero(self) -> bool:
        """Whether backward may read 0 for the states after a sequence's end, as in the output.

        The second direction begins there, with the first state.
        """
        p = self.parameters
        begins_at_zero = p.initial_state == "zeros" or p.directions == 1
        return begins_at_zero or not p.use_sequence_length

    def _of_direction(
        self, layer: int, side: int, keeps_output: bool
    ) -> Iterator[tuple[str, TensorSpec]]:
        p = self.parameters
        is_last = layer == p.num_layers - 1
        if p.gates > 1:
            yield "gates", TensorSpec((self.rows, p.rows), FLOAT32)
        if p.mode == "gru":
            yield "others", TensorSpec((self.rows, p.state_size), FLOAT32)
        if p.has_cell:
            yield "cells", TensorSpec((self.rows, p.state_size), FLOAT32)
        if p.projection_size is not None:
            yield "inner", self.spec(self.rows, p.state_size)
        if side == 0 and not is_last:
            yield "output", self.spec(self.rows, self.width)
        # A mask changes the outputs of inner layers.
        has_states = keeps_output if is_last else not p.has_mask
        if not (has_states and self.held_states_are_zero):
            yield "states", self.spec(self.rows, p.hidden)


def shifted(slot: Slot, elements: int, size: int = 4) -> Slot:
    """Return the slot of the element so many further on."""
    return Slot(slot.group, slot.index, slot.offset + elements * size)
