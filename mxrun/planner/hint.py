"""Occasions to share memory, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass

# The ways in which a step may give a tensor the memory of another: overwriting that, adding to it,
# or writing it where it is joined with others.
IN_PLACE, ADD_TO, JOINED = "in place", "add to", "joined"


@dataclass(frozen=True)
class Hint:
    """One occasion to share memory and what became of it; `reason` is empty when it was taken.

    step: that which declares it, or would add. kind: IN_PLACE where the operator declares it,
        ADD_TO of a sum of gradients, JOINED of a part of a larger tensor.
    """

    step: str
    source: str
    target: str
    reason: str
    kind: str = IN_PLACE

    @property
    def taken(self) -> bool:
        """Whether the two tensors share memory."""
        return not self.reason
