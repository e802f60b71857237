"""Hints: opportunities to share memory between two tensors, and the reasons of refusals."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass

# Kinds of hints: the output overwrites an input, is added to a tensor, or is a slice of a parent
# buffer (concat in place).
IN_PLACE, ADD_TO, CONCAT_IN_PLACE = "in place", "add to", "joined"


@dataclass(frozen=True)
class Hint:
    """Opportunity to share memory; `reason` says why it was refused and is empty if it was taken.

    step: the step that declares the hint, or whose kernel would add. kind: IN_PLACE if the operator
    declares it, ADD_TO for a sum of gradients, CONCAT_IN_PLACE for a slice of a parent buffer.
    """

    step: str
    source: str
    target: str
    reason: str
    kind: str = IN_PLACE

    @property
    def taken(self) -> bool:
        """True if the two tensors share memory."""
        return not self.reason
