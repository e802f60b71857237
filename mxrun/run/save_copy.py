"""Memory of the copy from which checkpoints are written while the next steps run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec
from mxrun.graph.graph import MemoryClass
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
    def of(
        cls, plan: Plan, contexts: int, sliced: Mapping[str, TensorSpec] | None = None
    ) -> SaveCopy:
        """Return the copy for a plan that runs on a number of contexts.

        sliced: specs of the entire states of which the plan has slices; they are gathered first,
        which takes the same memory again.
        """
        kinds = [kind for kind in LEARNED if sliced is None or kind is not MemoryClass.OPTIMIZER]
        sizes = [plan.specs[name].nbytes for name in plan.persistent(*kinds)]
        whole = [spec.nbytes for spec in (sliced or {}).values()]
        nbytes = copy_bytes([*sizes, *whole]) + sum(whole)
        budget, arena_bytes = plan.budget_bytes, contexts * plan.planned_bytes
        return cls(nbytes, arena_bytes, budget is None or arena_bytes + nbytes <= contexts * budget)

    def fits(self, limit: int) -> bool:
        """Return whether budget and `limit` bytes have room for arenas and copy."""
        return self.is_within_budget and self.arena_bytes + self.nbytes <= limit

    def to_json(self) -> dict[str, Any]:
        """Return the copy as JSON."""
        return {"copy_bytes": self.nbytes, "in_background": self.is_within_budget}
