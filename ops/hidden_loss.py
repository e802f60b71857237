"""Base of the operators that output a prediction and, hidden, the summed loss."""

from __future__ import annotations

from typing import TypeVar

from mxrun.base.params import Parameters
from mxrun.operator.property import OperatorProperty

P = TypeVar("P", bound=Parameters)


class HiddenLossProperty(OperatorProperty[P]):
    """Operator with floating-point outputs: output, and the hidden loss."""

    is_floating = True

    def list_outputs(self) -> tuple[str, ...]:
        """output and the hidden loss."""
        return ("output", "loss")

    @property
    def num_visible_outputs(self) -> int:
        """1: loss is hidden."""
        return 1

    @property
    def loss_output(self) -> int:
        """Index of the second output."""
        return 1
