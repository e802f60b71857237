"""Effects of other settings on memory and time (`inspect-memory --what-if`), found by planning.

Times are predicted from measured speeds of this machine, if known (`mxrun bench` measures them),
else from typical speeds of a few server cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import UserError
from mxrun.base.validation import Path as KeyPath
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.what_if import Budgets, PlanEffect, single_steps, step_seconds
from mxrun.config import Parsed
from mxrun.frontend import ModelDefinition, build
from mxrun.graph.naming import in_words
from mxrun.graph.phases import EVALUATE, TRAIN, UPDATE
from mxrun.planner.plan import Plan
from mxrun.preparation.device import open_device
from mxrun.preparation.planning import plan_for, request_for

_SHARES = (75, 50)


@dataclass(frozen=True)
class SettingChange:
    """Changed setting and its effect.

    change: description. config: the addition to the command line. planned_bytes: of the arenas of
    all contexts. saved_bytes: their reduction; negative if they grow. step_ms: time of one step,
    whatever its number of samples; extra: relative increase of the time per sample, negative if it
    falls.
    """

    change: str
    config: str
    planned_bytes: int
    saved_bytes: int
    batch_size: int
    step_ms: float
    extra_ms: float
    extra: float


@dataclass(frozen=True)
class WhatIfRequest:
    """Run as configured, and the arguments to plan its changes with.

    built, plan: on several contexts, of the part of each.
    """

    parsed: Parsed
    training: bool
    threads: int | None
    built: ModelDefinition
    plan: Plan


def what_if(request: WhatIfRequest) -> dict[str, Any]:
    """Return the changes of the arena as JSON, those with most bytes saved per extra time first.

    measured: whether times are predicted from this machine's measured speeds.
    """
    changes = _Changes(request)
    rows = sorted((row for row in changes.all() if row.saved_bytes), key=_merit)
    return {
        "step_ms": changes.step_s * 1e3,
        "measured": changes.machine is not None,
        "changes": [asdict(row) for row in rows],
    }


def _merit(change: SettingChange) -> tuple[bool, float, int]:
    """Return the sort key: savings without extra time first, changes without savings last."""
    saves = change.saved_bytes > 0
    rate = change.saved_bytes / change.extra if saves and change.extra > 0 else float("inf")
    return not saves, -rate, -change.saved_bytes


class _Changes:
    def __init__(self, request: WhatIfRequest) -> None:
        self._request = request
        self._plan = request.plan
        self._phase = TRAIN if request.training else EVALUATE
        self._batch, self._contexts = request.built.batch_size, request.built.contexts
        self.machine = open_device(request.built.options, request.plan.device).known_peaks()
        self.step_s = self._step_seconds(request.plan)

    def _step_seconds(self, plan: Plan) -> float:
        """Return the predicted seconds of a step; on several contexts without the sums."""
        phases = [name for name in (self._phase, UPDATE) if name in plan.phases]
        return sum(step_seconds(plan, name, self.machine) for name in phases)

    def all(self) -> Iterator[SettingChange]:
        """Yield every change for which a plan exists."""
        if self._request.training:
            yield from self._recomputing()
        yield from self._configured()

    def _recomputing(self) -> Iterator[SettingChange]:
        """Yield changes of `memory.budget`: more or less recomputation of forward."""
        plain = self._plain()
        plain_s = self._step_seconds(plain)
        if plain is not self._plan:
            change = "no budget: no recomputation"
            yield self._change(change, "memory.budget=null", plain, plain_s, self._batch)
        without_add_to = self._compiled(add_to=False)
        budgets = Budgets(plain, without_add_to, self.machine, self._phase)
        for share in _SHARES:
            effect = budgets.share(share / 100)
            if effect is not None:
                change = f"a budget of {share}% of what is reused"
                yield self._budget_change(change, f"memory.budget={share}%", effect, plain_s)
        smallest = budgets.least()
        change = f"the least that is found, which {in_words(smallest.peak)} needs"
        yield self._budget_change(change, self._budget(smallest), smallest, plain_s)
        if plain is self._plan:
            for single in single_steps(plain, without_add_to, self.machine, self._phase):
                # A budget is met by whole segments, which may need more memory than the one step.
                if not budgets.is_met(single.planned_bytes):
                    continue
                change = f"recompute {in_words(single.step)}"
                yield self._budget_change(change, self._budget(single), single, plain_s)

    def _budget(self, effect: PlanEffect) -> str:
        """Return the budget that admits this plan; the planner may find a faster one within it."""
        return f"memory.budget={self._contexts * effect.planned_bytes}"

    def _plain(self) -> Plan:
        """Return the plan without a budget."""
        return self._plan if self._plan.budget_bytes is None else self._compiled()

    def _compiled(self, add_to: bool = True) -> Plan:
        """Compile a plan without a budget, with the same kernels."""
        built = self._request.built
        request = request_for(built, self._request.training, self._request.threads)
        implementations = {
            name: phase.implementations() for name, phase in self._plan.phases.items()
        }
        request = replace(request, budget=None, autotuned=implementations, add_to=add_to)
        return compile_plan(built.model.symbol, request)

    def _configured(self) -> Iterator[SettingChange]:
        """Yield changes of other settings, each with its own config."""
        for label, size in (("half", self._batch // 2), ("twice", 2 * self._batch)):
            if size:
                yield from self._planned(f"{label} the batch", f"--batch {size}", {}, size)
        if self._request.built.options.precision == FLOAT32:
            values: dict[KeyPath, str] = {("precision",): BFLOAT16}
            setting = f"precision={BFLOAT16}"
            yield from self._planned("activations in bfloat16", setting, values, self._batch)
        if self._contexts > 1:
            kind, index = self._request.built.options.device
            single = f"{kind}:{index}"
            values = {("context",): single}
            yield from self._planned("a single context", f"context={single}", values, self._batch)

    def _planned(
        self, change: str, config: str, values: Mapping[KeyPath, str], batch: int
    ) -> Iterator[SettingChange]:
        """Yield one change if the run can be planned with it."""
        request = self._request
        try:
            built = build(request.parsed.with_values(values), batch)
            built = built.divided() if request.training else built
            plan = plan_for(built, request.training, request.threads)
        except UserError:
            return
        seconds = self._step_seconds(plan)
        yield self._change(change, config, plan, seconds, batch, built.contexts)

    def _budget_change(
        self, change: str, config: str, effect: PlanEffect, plain_s: float
    ) -> SettingChange:
        return self._change(change, config, effect, plain_s + effect.extra_s, self._batch)

    def _change(
        self,
        change: str,
        config: str,
        planned: Plan | PlanEffect,
        seconds: float,
        batch: int,
        contexts: int | None = None,
    ) -> SettingChange:
        planned_bytes = (contexts or self._contexts) * planned.planned_bytes
        return SettingChange(
            change=change,
            config=config,
            planned_bytes=planned_bytes,
            saved_bytes=self._contexts * self._plan.planned_bytes - planned_bytes,
            batch_size=batch,
            step_ms=seconds * 1e3,
            extra_ms=(seconds - self.step_s) * 1e3,
            extra=seconds * self._batch / (self.step_s * batch) - 1,
        )
