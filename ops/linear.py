"""Bases of the operators that are linear in data and in a weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from mxrun.base.params import Parameters
from mxrun.operator.property import OperatorProperty


class LinearParameters(Parameters):
    """Parameters of a linear operator; each declares no_bias as a field."""

    if TYPE_CHECKING:
        no_bias: bool


P = TypeVar("P", bound=LinearParameters)
T = TypeVar("T")


class LinearProperty(OperatorProperty[P]):
    """Product of data, which is argument 0, and weight, which is argument 1, plus a bias if any."""

    def list_arguments(self) -> tuple[str, ...]:
        """data, weight and, unless no_bias, bias."""
        return ("data", "weight") if self.parameters.no_bias else ("data", "weight", "bias")

    def independent_gradients(self) -> list[list[int]]:
        """Groups: weight and bias, which need data; data."""
        return [[*range(1, len(self.list_arguments()))], [0]]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad, data and weight; reading weight schedules its update after backward."""
        return [out_grad[0], in_data[0], in_data[1]]
