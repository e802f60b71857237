"""`verify`: a network trains to the same numbers however its plan is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import BFLOAT16
from mxrun.compiler.compile import CompileRequest, compile_plan
from mxrun.frontend import ModelDefinition
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.operator.fusion import FUSIONS
from mxrun.passes.commute_maxpool import MAXIMA_FIRST
from mxrun.passes.fold_batch_norm import FOLDING
from mxrun.planner.plan import Block, PhasePlan, Plan
from mxrun.planner.remat.budget import Budget
from mxrun.planner.schedule.schedule import ORDERS
from mxrun.session.benchmark_loop import Steps
from mxrun.session.fault_injection import freed_early
from mxrun.session.planning import Say, check_fits, load, request_for, silent

Arrays = dict[str, npt.NDArray[Any]]

# Of what inference folds: the greatest difference, relative to the greatest number of a tensor,
# where all is float32 and where anything is bfloat16, which has 16 bits less.
TOLERANCE = 1e-5
LOW_TOLERANCE = 5e-2
# Blocks to free early before it is said that none matters, and those words.
_MAX_CANDIDATES = 16
NOTHING_EARLY = "nothing to free early"
_KEPT = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER, MemoryClass.AUXILIARY)


@dataclass(frozen=True)
class PlanVariant:
    """Another way to plan the same work.

    phase: whose results are compared: what training leaves, or what inference gives. exact: whether
    every bit is promised. is_wrong: whether a block is freed too early on purpose, which must show.
    """

    name: str
    phase: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    poisoned: bool = False
    exact: bool = True
    is_wrong: bool = False


WAYS = (
    PlanVariant("operators as they are written, none fused", TRAIN, {"fuse": False}),
    PlanVariant("gradients by walking the forward pass backwards", TRAIN, {"backward": "reverse"}),
    PlanVariant("no tensor in the place of another", TRAIN, {"in_place": False}),
    PlanVariant("every concatenation copied", TRAIN, {"join": False}),
    PlanVariant("every sum of gradients in a step of its own", TRAIN, {"add_to": False}),
    PlanVariant("no memory used again", TRAIN, {"in_place": False, "join": False, "reuse": False}),
    PlanVariant(
        "forward steps run again, in the least memory", TRAIN, {"budget": Budget(least=True)}
    ),
    *(PlanVariant(f"steps in {order} order", TRAIN, {"order": order}) for order in ORDERS),
    PlanVariant("memory filled with NaN as soon as it is free", TRAIN, poisoned=True),
    PlanVariant("a block freed one operator early is seen", TRAIN, poisoned=True, is_wrong=True),
    PlanVariant("inference as it is written", EVALUATE, {"fuse": False}, exact=False),
    PlanVariant("inference that prepares nothing", EVALUATE, {"fixed": False}, exact=False),
    PlanVariant("inference with every concatenation copied", EVALUATE, {"join": False}),
    PlanVariant("inference over poisoned memory", EVALUATE, poisoned=True),
)


def verify(
    path: str | Path,
    overrides: Sequence[str] = (),
    steps: int = 20,
    batch: int | None = None,
    threads: int | None = None,
    say: Say = silent,
) -> dict[str, Any]:
    """Take the same steps on made-up records in every way, and compare what they lead to.

    The answer holds `ways`, each with its name, what was promised, the greatest difference found
    and in which tensor, and `passed`. Raises UserError for a config that is wrong or does not fit
    into memory. `say` hears of long waits.
    """
    built = load(path, overrides, batch)
    found: list[dict[str, Any]] = []
    trained: Arrays = {}
    for phase in (TRAIN, EVALUATE):
        # Ways that share less need more than any budget.
        request = replace(request_for(built, phase == TRAIN, threads, say), budget=None)
        plan = compile_plan(built.model.symbol, request)
        # Other ways see other neighbours, for which other kernels may be faster.
        chosen = {name: planned.implementations() for name, planned in plan.phases.items()}
        request = replace(request, kept=chosen)
        plan = compile_plan(built.model.symbol, request)
        expected = results(built, plan, PlanVariant("", phase), steps, trained)
        for way in (*WAYS, *_unfused(built, request, phase)):
            if way.phase == phase:
                changed = compile_plan(built.model.symbol, replace(request, **way.changes))
                low = _is_low(plan.phases[phase]) or _is_low(changed.phases[phase])
                if way.is_wrong:
                    found.append(freed_early_entry(built, changed, way, steps, expected))
                    continue
                got = results(built, changed, way, steps, trained)
                found.append(compared(way, expected, got, low))
        if all(np.isfinite(array).all() for array in expected.values()):
            trained = expected
    return {
        "name": built.config.name,
        "steps": steps,
        "ways": found,
        "passed": all(way["passed"] for way in found),
    }


def freed_early_entry(
    built: ModelDefinition, plan: Plan, way: PlanVariant, steps: int, expected: Arrays
) -> dict[str, Any]:
    """The entry of a way that frees a block too early: it passes where that is seen.

    A block that is not seen to be missed breaks the promise only where its contents matter: where
    overwriting it, whatever the plan says of lifetimes, changes what is learned. Among the first
    few candidates there may be none, as in a network whose gradients are all zero.
    """
    for early in islice(freed_early(plan, way.phase), _MAX_CANDIDATES):
        entry = compared(way, expected, results(built, early.plan, way, steps, {}), False)
        if entry["passed"]:
            return entry
        overwritten = results(built, plan, way, steps, {}, early.block)
        if compared(way, expected, overwritten, False)["tensor"]:
            return entry
    return {**compared(way, expected, expected, False), "promised": NOTHING_EARLY, "passed": True}


def _is_low(planned: PhasePlan) -> bool:
    """Whether any step makes a tensor in bfloat16: all layers, or one that has it for itself."""
    kernels = [step.kernel for step in planned.steps if step.kernel is not None]
    made = (spec for kernel in kernels for spec in (*kernel.outputs, *kernel.extra_outputs))
    return any(spec is not None and spec.dtype == BFLOAT16 for spec in made)


def _unfused(built: ModelDefinition, request: CompileRequest, phase: str) -> list[PlanVariant]:
    """Without each of the fusions that the plan has, one at a time."""

    def names(unfused: tuple[str, ...]) -> list[str]:
        plan = compile_plan(built.model.symbol, replace(request, unfused=unfused))
        return [step.name for step in plan.phases[phase].steps]

    found, every = [], names(())
    for fusion in (*FUSIONS, FOLDING, MAXIMA_FIRST):
        if names((fusion,)) != every:
            name = f"{'inference ' if phase == EVALUATE else ''}without: {fusion}"
            found.append(PlanVariant(name, phase, {"unfused": (fusion,)}, exact=phase == TRAIN))
    return found


def results(
    built: ModelDefinition,
    plan: Plan,
    way: PlanVariant,
    steps: int,
    trained: Arrays,
    overwritten: Block | None = None,
) -> Arrays:
    """All that training changes, or the outputs of every step of inference.

    overwritten: this block is, in every step, once its last step is over.
    Inference begins with what was trained, if that is finite: by first statistics, deep networks
    give outputs that hardly depend on anything.
    """
    check_fits(plan)
    taken = Steps(built, plan, way.phase)
    if way.phase == EVALUATE:
        for name in built.model.learned.keys() & plan.specs.keys() & trained.keys():
            taken.executor.array(name)[...] = trained[name]
        taken.executor.prepare()
    run = taken.executor.run_poisoned if way.poisoned else taken.executor.run
    if overwritten is not None:
        run = partial(taken.executor.run_overwriting, block=overwritten)
    outputs: Arrays = {}
    for step in range(steps):
        taken.run(run)
        if way.phase == EVALUATE:
            results = taken.results().items()
            outputs |= {f"{name}, step {step + 1}": array for name, array in results}
    if way.phase == TRAIN:
        kept = [block.name for block in plan.pinned if block.memory_class in _KEPT]
        outputs = {name: taken.executor.array(name).copy() for name in kept}
    return outputs


def compared(way: PlanVariant, expected: Arrays, got: Arrays, low: bool) -> dict[str, Any]:
    """The entry of a way; low: whether anything is in bfloat16."""
    tolerance = 0.0
    if not way.exact:
        tolerance = LOW_TOLERANCE if low else TOLERANCE
    worst, tensor = 0.0, ""
    for name, array in expected.items():
        if array.tobytes() != got[name].tobytes():
            size = float(np.abs(array).max()) or 1.0
            difference = float(np.abs(got[name].astype("float64") - array).max()) / size
            # NaN is the greatest difference, and other bits of equal numbers are one too.
            if not difference <= worst or not tensor:
                worst, tensor = difference, name
    same = not tensor or (tolerance > 0 and worst <= tolerance)
    promised = "the same bits" if tolerance == 0 else f"within {tolerance:g}"
    return {
        "way": way.name,
        "phase": way.phase,
        "promised": "a difference" if way.is_wrong else promised,
        "difference": worst,
        "tensor": tensor,
        "tensors": len(expected),
        "passed": same is not way.is_wrong,
    }
