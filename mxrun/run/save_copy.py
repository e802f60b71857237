"""Memory of the copy from which checkpoints are written while the next steps run."""

from __future__ import annotations

from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.planner.plan import Plan
from mxrun.train.background import copy_bytes
from mxrun.train.host_arrays import LEARNED


@dataclass(frozen=True)
class SaveCopy:
    """Copy of a plan's parameters and states in host memory, outside of the arenas.

    nbytes: its size. arena_bytes: that of the arenas beside it. is_within_budget: whether the
    config's budget, if it has one, has room for both.
    """

    nbytes: int
    arena_bytes: int
    is_within_budget: bool

    @classmethod
    def of(cls, plan: Plan, contexts: int) -> SaveCopy:
        """Return the copy for a plan that runs on a number of contexts."""
        nbytes = copy_bytes(plan.specs[name].nbytes for name in plan.persistent(*LEARNED))
        budget, arena_bytes = plan.budget_bytes, contexts * plan.planned_bytes
        return cls(nbytes, arena_bytes, budget is None or arena_bytes + nbytes <= contexts * budget)

    def fits(self, limit: int) -> bool:
        """Return whether budget and `limit` bytes have room for arenas and copy."""
        return self.is_within_budget and self.arena_bytes + self.nbytes <= limit

    def to_json(self) -> dict[str, Any]:
        """Return the copy as JSON."""
        return {"copy_bytes": self.nbytes, "in_background": self.is_within_budget}
