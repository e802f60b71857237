"""Implementation of `verify`: a network trains to the same numbers with all plan variants."""

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
from mxrun.config.bundled import find_config
from mxrun.frontend import ModelDefinition
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.operator.fusion import FUSIONS
from mxrun.passes.commute_maxpool import COMMUTE_MAXPOOL
from mxrun.passes.fold_batch_norm import FOLDING
from mxrun.planner.plan import Block, PhasePlan, Plan
from mxrun.planner.remat.budget import Budget
from mxrun.planner.schedule.schedule import ORDERS
from mxrun.session.benchmark_loop import Steps
from mxrun.session.fault_injection import freed_early
from mxrun.session.notes import Notify, ignore_note
from mxrun.session.planning import check_fits, load, request_for

Arrays = dict[str, npt.NDArray[Any]]

# Tolerances of constant folding in inference: largest difference, relative to the largest number of
# a tensor, in float32, and with any bfloat16, which has 16 bits less.
TOLERANCE = 1e-5
LOW_TOLERANCE = 5e-2
# Maximum number of blocks tried for early freeing, and the text if none of them matters.
_MAX_CANDIDATES = 16
NOTHING_EARLY = "nothing to free early"
_KEPT = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER, MemoryClass.AUXILIARY)


@dataclass(frozen=True)
class PlanVariant:
    """Variant of a plan for the same work.

    phase: whose results are compared: the state after training, or the outputs of inference. exact:
    whether equal bits are promised. is_wrong: whether a block is deliberately freed too early,
    which must be detected.
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
    PlanVariant(
        "inference that prepares nothing", EVALUATE, {"constant_parameters": False}, exact=False
    ),
    PlanVariant("inference with every concatenation copied", EVALUATE, {"join": False}),
    PlanVariant("inference over poisoned memory", EVALUATE, poisoned=True),
)


def verify(
    config: str | Path,
    overrides: Sequence[str] = (),
    steps: int = 20,
    batch: int | None = None,
    threads: int | None = None,
    notify: Notify = ignore_note,
) -> dict[str, Any]:
    """Run the same steps on synthetic records with every plan variant and compare the results.

    The answer holds `ways`, each with its name, the promise, the largest difference and its tensor,
    and `passed`. Raises UserError for an invalid config or one that does not fit into memory.
    notify: receives notes about long waits.
    """
    built = load(find_config(str(config)), overrides, batch)
    found: list[dict[str, Any]] = []
    trained: Arrays = {}
    for phase in (TRAIN, EVALUATE):
        # Variants with less sharing exceed any budget.
        request = replace(request_for(built, phase == TRAIN, threads, notify), budget=None)
        plan = compile_plan(built.model.symbol, request)
        # Fixed kernels: with other neighbours other kernels may be faster.
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
    """Return the entry of the variant that frees a block too early; it passes if this is detected.

    An undetected block is a failure only if its contents matter: if overwriting it, regardless of
    planned lifetimes, changes the result. Among the first candidates there may be no such block, as
    in a network whose gradients are all zero.
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
    """Return whether any step has a bfloat16 output."""
    kernels = [step.kernel for step in planned.steps if step.kernel is not None]
    made = (spec for kernel in kernels for spec in (*kernel.outputs, *kernel.extra_outputs))
    return any(spec is not None and spec.dtype == BFLOAT16 for spec in made)


def _unfused(built: ModelDefinition, request: CompileRequest, phase: str) -> list[PlanVariant]:
    """Return one variant for each fusion that the plan uses, without that fusion."""

    def names(unfused: tuple[str, ...]) -> list[str]:
        plan = compile_plan(built.model.symbol, replace(request, unfused=unfused))
        return [step.name for step in plan.phases[phase].steps]

    found, every = [], names(())
    for fusion in (*FUSIONS, FOLDING, COMMUTE_MAXPOOL):
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
    """Return the state after training, or the outputs of every step of inference.

    overwritten: block that is overwritten in every step after its last step. Inference starts with
    the trained state if that is finite: with initial statistics, the outputs of deep networks
    hardly depend on anything.
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
    """Return the entry of a variant; `low` selects the tolerance of bfloat16."""
    tolerance = 0.0
    if not way.exact:
        tolerance = LOW_TOLERANCE if low else TOLERANCE
    worst, tensor = 0.0, ""
    for name, array in expected.items():
        if array.tobytes() != got[name].tobytes():
            size = float(np.abs(array).max()) or 1.0
            difference = float(np.abs(got[name].astype("float64") - array).max()) / size
            # A NaN is the largest difference; equal numbers with other bits are recorded as well.
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
