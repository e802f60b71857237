"""Updates that overwrite a tensor of the run with a function of its value and another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from mxrun.base.params import Parameters
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    same_shape,
)

P = TypeVar("P", bound=Parameters)
T = TypeVar("T")


class StateUpdateProperty(OperatorProperty[P]):
    """Operator whose only output overwrites its first argument; all shapes are equal.

    No gradient. rule: what the tensors are, for messages about their shapes.
    """

    is_internal = True
    rule: ClassVar[str]

    def list_mutated_inputs(self) -> dict[int, int]:
        """The first argument is overwritten."""
        return {0: 0}

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """No input has a gradient."""
        return (GradientKind.NONE,) * len(self.list_arguments())

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify all shapes."""
        names = (*self.list_arguments(), *self.list_outputs())
        *arguments, output = same_shape(names, [*inputs, *outputs], self.rule)
        return PartialInference(arguments, [output], [])

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair the first argument with the output."""
        return [(in_data[0], out_data[0])]
