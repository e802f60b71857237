"""Incremental forms of operators: how they compute a sequence one position a run.

A network over sequences [batch, T, ...] becomes one over [batch, 1, ...] that is run once for each
position, so that a text can be generated; or one over [batch, chunk, ...] that is run for the
positions of a prompt, which are all known. An operator whose results at a position depend on that
position alone stays as it is: `OperatorProperty.position_axis` says along which axis its outputs'
positions lie. One that looks back returns from `OperatorProperty.incremental` the operator with an
argument for the position, or with states for what it needs of earlier positions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Generic, TypeVar

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import Shape, TensorSpec

FormProperty = TypeVar("FormProperty")

# Argument of an incremental form that takes the number of the run's first position, int32 [1].
POSITION = "position"


@dataclass(frozen=True)
class SequenceArguments:
    """Arguments of an operator in a network over sequences.

    inputs: specs of the arguments. axes: by argument, the axis along which its positions lie, alone
    or merged with the batch; None for an argument that is the same at all positions, such as a
    weight. positions: number of positions in `inputs`. length: number of positions that a state
    must be able to hold. chunk: number of positions that a run computes. carried: names of the
    arguments that hold states carried from run to run, which begin as zeros.
    """

    inputs: tuple[TensorSpec, ...]
    axes: tuple[int | None, ...]
    positions: int
    length: int
    chunk: int = 1
    carried: frozenset[str] = frozenset()

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes of the arguments."""
        return tuple(spec.shape for spec in self.inputs)

    def counts_positions(self, argument: int, axis: int) -> bool:
        """Return whether an axis of an argument is that of its positions, an element for each.

        An operator that combines positions, or counts them, needs this: an axis along which each
        position has several elements, or each sequence of the batch has its positions, would give
        it other neighbours and numbers than in a run of one position.
        """
        shape = self.shapes[argument]
        return self.axes[argument] == axis and shape[axis] == self.positions


@dataclass(frozen=True)
class IncrementalForm(Generic[FormProperty]):
    """Operator that computes one position a run, or a chunk of them.

    prop: takes the arguments of the original by their names, and the number of the run's first
    position under the name `position`; other arguments and auxiliary states are states, which begin
    as zeros. Its first outputs are those of the original. It may overwrite states that it
    stores by positions (`list_mutated_inputs`), which a later run may overwrite. axis: axis of the
    outputs' positions. carried: {argument or auxiliary state: output} of states that take an
    output's value after each run. final: outputs of the original that hold what is known after its
    last position, which no layer may read. limit: largest number of positions, if any.
    """

    prop: FormProperty
    axis: int
    carried: Mapping[str, int] = field(default_factory=dict)
    final: Collection[int] = ()
    limit: int | None = None


def shared_axis(axes: Sequence[int | None], mixed: int | None = None) -> int | None:
    """Return the axis along which all inputs have their positions.

    None if one has none, if they differ, or if it is `mixed`, an axis whose elements are combined.
    """
    axis, *others = axes
    return None if axis == mixed or any(other != axis for other in others) else axis


def unscaled_axis(sequences: SequenceArguments, mixed: int) -> int | None:
    """Return the positions' axis of the first argument, None if it is `mixed` or another has one.

    mixed: the axis along which results mix the elements, may be negative.
    """
    axis, *others = sequences.axes
    if others != [None] * len(others):
        return None
    return shared_axis([axis], mixed % len(sequences.shapes[0]))
