"""Positions of a sequence from an argument on, for operators that depend on them."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import PartialShape
from mxrun.codegen.jit import inlined
from mxrun.operator.incremental import POSITION
from mxrun.operator.operator import OperatorCall
from mxrun.operator.shape import ShapeContradiction, show


class PositionParameters(Parameters):
    """Parameters of operators whose first position may be an argument."""

    use_position: bool = Field(
        default=False,
        description="Adds the argument position, int32 [1]: the number of the first position, at "
        "most max_length - positions; default: 0.",
    )
    max_length: Annotated[Int32, Field(ge=1)] = Field(
        default=1024, description="Greatest number of positions, with use_position."
    )

    @property
    def positions(self) -> tuple[str, ...]:
        """Name of the argument, if there is one."""
        return (POSITION,) if self.use_position else ()


@inlined
def first_position(position: Any, positions: int, length: int) -> int:
    """Return the first position, so that the last one is less than `length`; 0 if None."""
    first = 0
    if position is not None:
        first = max(min(np.int64(position[0]), length - positions), 0)
    return first


def given_position(call: OperatorCall, positions: int, length: int) -> int:
    """Return the same in a NumPy body."""
    if POSITION not in call.inputs:
        return 0
    return int(np.clip(call.inputs.position[0], 0, length - positions))


def require_positions(name: str, shape: PartialShape, limit: int) -> None:
    """Raise ShapeContradiction for a tensor [batch, positions, ...] of more than `limit`."""
    if shape is not None and shape[1] is not None and shape[1] > limit:
        raise ShapeContradiction(name, show(shape), f"at most {limit} positions", "max_length")
