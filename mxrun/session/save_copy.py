"""Memory of the copy from which checkpoints are written while the next steps run."""

from __future__ import annotations

from dataclasses import dataclass

from mxrun.planner.plan import Plan
from mxrun.train.background import copy_bytes
from mxrun.train.host_arrays import LEARNED


@dataclass(frozen=True)
class SaveCopy:
    """Copy of a plan's parameters and states in host memory, outside of the arena.

    nbytes: its size. planned_bytes: size of the arena beside it. budget_bytes: most bytes of both,
    if the config sets a budget.
    """

    nbytes: int
    planned_bytes: int
    budget_bytes: int | None

    @classmethod
    def of(cls, plan: Plan) -> SaveCopy:
        """Return the copy for a plan."""
        names = [block.name for block in plan.pinned if block.memory_class in LEARNED]
        nbytes = copy_bytes(plan.specs[name].nbytes for name in names)
        return cls(nbytes, plan.planned_bytes, plan.budget_bytes)

    def is_within(self, limit: int | None = None) -> bool:
        """Return whether arena and copy fit into the budget, and into `limit` bytes."""
        limits = [most for most in (self.budget_bytes, limit) if most is not None]
        return self.planned_bytes + self.nbytes <= min(
            limits, default=self.planned_bytes + self.nbytes
        )
