"""`inspect-memory --what-if`: what other settings of a run would need and take, by planning alone.

Seconds are predictions: by this machine's figures where they were measured (`mxrun bench` does so),
else by those of a few cores of a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import UserError
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.what_if import Answer, Budgets, single_steps, step_seconds
from mxrun.frontend import ModelDefinition
from mxrun.graph.naming import in_words
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.planner.plan import Plan
from mxrun.runtime.machine import known_machine
from mxrun.session.planning import load, plan_for, request_for

_SHARES = (75, 50)


@dataclass(frozen=True)
class Change:
    """A setting and what it comes to.

    change: in words. config: what to add to the command line for it. saved_bytes: how much smaller
        the arena is; negative where it is larger. step_ms: of one step, however many samples it
        has; extra: by which part of itself the time of one sample grows, negative where it falls.
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
class Question:
    """A run as it is configured, and what its changes are planned with."""

    path: str | Path
    overrides: Sequence[str]
    training: bool
    threads: int | None
    built: ModelDefinition
    plan: Plan


def what_if(question: Question) -> dict[str, Any]:
    """The changes of the arena for machines, those that save most bytes for their time first.

    measured: whether times are predicted by figures of this machine.
    """
    asked = _Changes(question)
    rows = sorted((row for row in asked.all() if row.saved_bytes), key=_merit)
    return {
        "step_ms": asked.step_s * 1e3,
        "measured": asked.machine is not None,
        "changes": [asdict(row) for row in rows],
    }


def _budget(answer: Answer) -> str:
    """The budget for which there is a plan as small as this; what it takes may be less."""
    return f"memory.budget={answer.planned_bytes}"


def _merit(change: Change) -> tuple[bool, float, int]:
    """What saves and costs no time comes first, what saves nothing last."""
    saves = change.saved_bytes > 0
    rate = change.saved_bytes / change.extra if saves and change.extra > 0 else float("inf")
    return not saves, -rate, -change.saved_bytes


class _Changes:
    def __init__(self, question: Question) -> None:
        self._asked = question
        self._plan = question.plan
        self._phase = TRAIN if question.training else EVALUATE
        self._batch = question.built.model.batch_size
        self.machine = known_machine(question.plan.threads)
        self.step_s = step_seconds(question.plan, self._phase, self.machine)

    def all(self) -> Iterator[Change]:
        """Every change of which there is a plan."""
        if self._asked.training:
            yield from self._recomputing()
        yield from self._configured()

    def _recomputing(self) -> Iterator[Change]:
        """More or less of forward run again, by `memory.budget`."""
        plain = self._plain()
        plain_s = step_seconds(plain, self._phase, self.machine)
        if plain is not self._plan:
            change = "no budget: every output kept"
            yield self._change(change, "memory.budget=null", plain, plain_s, self._batch)
        apart = self._compiled(add_to=False)
        budgets = Budgets(plain, apart, self.machine, self._phase)
        for share in _SHARES:
            answer = budgets.share(share / 100)
            if answer is not None:
                change = f"a budget of {share}% of what is reused"
                yield self._answered(change, f"memory.budget={share}%", answer, plain_s)
        least = budgets.least()
        change = f"the least that is found, which {in_words(least.peak)} needs"
        yield self._answered(change, _budget(least), least, plain_s)
        if plain is self._plan:
            for single in single_steps(plain, apart, self.machine, self._phase):
                # A budget is met by whole stages, which may need more than the one step.
                if not budgets.is_met(single.planned_bytes):
                    continue
                change = f"recompute {in_words(single.step)}"
                yield self._answered(change, _budget(single), single, plain_s)

    def _plain(self) -> Plan:
        """The plan without a budget."""
        return self._plan if self._plan.budget_bytes is None else self._compiled()

    def _compiled(self, add_to: bool = True) -> Plan:
        """A plan without a budget, of the same kernels."""
        built = self._asked.built
        request = request_for(built, self._asked.training, self._asked.threads)
        kept = {name: phase.implementations() for name, phase in self._plan.phases.items()}
        request = replace(request, budget=None, kept=kept, add_to=add_to)
        return compile_plan(built.model.symbol, request)

    def _configured(self) -> Iterator[Change]:
        """Other values of settings, each a config of its own."""
        for words, size in (("half", self._batch // 2), ("twice", 2 * self._batch)):
            if size:
                yield from self._planned(f"{words} the batch", f"--batch {size}", (), size)
        if self._asked.built.config.precision == FLOAT32:
            setting = f"precision={BFLOAT16}"
            yield from self._planned("activations in bfloat16", setting, (setting,), self._batch)

    def _planned(
        self, change: str, config: str, overrides: Sequence[str], batch: int
    ) -> Iterator[Change]:
        """One change, where the run can be planned with it."""
        asked = self._asked
        try:
            built = load(asked.path, (*asked.overrides, *overrides), batch)
            plan = plan_for(built, asked.training, asked.threads)
        except UserError:
            return
        seconds = step_seconds(plan, self._phase, self.machine)
        yield self._change(change, config, plan, seconds, batch)

    def _answered(self, change: str, config: str, answer: Answer, plain_s: float) -> Change:
        return self._change(change, config, answer, plain_s + answer.extra_s, self._batch)

    def _change(
        self, change: str, config: str, made: Plan | Answer, seconds: float, batch: int
    ) -> Change:
        return Change(
            change=change,
            config=config,
            planned_bytes=made.planned_bytes,
            saved_bytes=self._plan.planned_bytes - made.planned_bytes,
            batch_size=batch,
            step_ms=seconds * 1e3,
            extra_ms=(seconds - self.step_s) * 1e3,
            extra=seconds * self._batch / (self.step_s * batch) - 1,
        )
