"""Implementation of `verify`: a network trains to the same numbers with all plan variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import BFLOAT16
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.passes import fusion_names
from mxrun.compiler.request import CompileRequest
from mxrun.config.bundled import find_config
from mxrun.frontend import ModelDefinition
from mxrun.graph.graph import STATES, MemoryClass
from mxrun.graph.phases import EVALUATE, TRAIN, base_phase, bucket_phase
from mxrun.inspection.benchmark_loop import Steps
from mxrun.inspection.fault_injection import freed_early
from mxrun.options.check import VerifyOptions
from mxrun.planner.plan import Block, PhasePlan, Plan
from mxrun.planner.remat.budget import Budget
from mxrun.planner.schedule.schedule import ORDERS
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.preparation.planning import load, request_for
from mxrun.preparation.prepared import preparing

Arrays = dict[str, npt.NDArray[Any]]

# Tolerances of constant folding in inference: largest difference, relative to the largest number of
# a tensor, in float32, and with any bfloat16, which has 16 bits less.
TOLERANCE = 1e-5
LOW_TOLERANCE = 5e-2
# Maximum number of blocks tried for early freeing, and the text if none of them matters.
_MAX_CANDIDATES = 16
NO_EARLY_BLOCK = "nothing to free early"
_COMPARED = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER, *STATES)


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


VARIANTS = (
    PlanVariant("no fusion", TRAIN, {"fuse": False}),
    PlanVariant("gradients by reverse traversal", TRAIN, {"backward": "reverse"}),
    PlanVariant("no in-place outputs", TRAIN, {"in_place": False}),
    PlanVariant("no concatenation in place", TRAIN, {"join": False}),
    PlanVariant("no add-to: sums of gradients in steps of their own", TRAIN, {"add_to": False}),
    PlanVariant("no memory reuse", TRAIN, {"in_place": False, "join": False, "reuse": False}),
    PlanVariant("rematerialisation at minimum memory", TRAIN, {"budget": Budget(least=True)}),
    *(PlanVariant(f"schedule: {order}", TRAIN, {"order": order}) for order in ORDERS),
    PlanVariant("freed memory filled with NaN", TRAIN, poisoned=True),
    PlanVariant("fault: a block freed one operator early", TRAIN, poisoned=True, is_wrong=True),
    PlanVariant("inference: no fusion", EVALUATE, {"fuse": False}, exact=False),
    PlanVariant(
        "inference: no weight pre-packing", EVALUATE, {"constant_parameters": False}, exact=False
    ),
    PlanVariant("inference: no concatenation in place", EVALUATE, {"join": False}),
    PlanVariant("inference: freed memory filled with NaN", EVALUATE, poisoned=True),
)


def verify(options: VerifyOptions, notify: Notify = ignore_note) -> dict[str, Any]:
    """Run the same steps on synthetic records with every plan variant and compare the results.

    The answer holds `variants`: for each its name, the promise, the largest difference and its
    tensor, and `passed`. Raises UserError for an invalid config or one that does not fit into
    memory. notify: receives notes about long waits.
    """
    built = load(find_config(options.config), options.overrides, options.batch)
    steps = options.steps
    entries: list[dict[str, Any]] = []
    trained: Arrays = {}
    with preparing(built.options, notify):
        for phase in (TRAIN, EVALUATE):
            # Variants with less sharing exceed any budget.
            request = replace(
                request_for(built, phase == TRAIN, options.threads, notify), budget=None
            )
            plan = compile_plan(built.model.symbol, request)
            # Fixed kernels: with other neighbours other kernels may be faster.
            implementations = {
                name: planned.implementations() for name, planned in plan.phases.items()
            }
            request = replace(request, autotuned=implementations)
            plan = compile_plan(built.model.symbol, request)
            variants = [each for each in VARIANTS if each.phase == phase]
            variants += _unfused(built, request, phase)
            plans = [
                (variant, compile_plan(built.model.symbol, replace(request, **variant.changes)))
                for variant in variants
            ]
            for length in request.buckets:
                sized = replace(built, model=built.buckets[length])
                entries += _of_length(sized, length, plan, plans, steps)
            expected = results(built, plan, PlanVariant("", phase), steps, trained)
            for variant, changed in plans:
                low = _is_low(plan.phases[phase]) or _is_low(changed.phases[phase])
                if variant.is_wrong:
                    entries.append(freed_early_entry(built, changed, variant, steps, expected))
                    continue
                got = results(built, changed, variant, steps, trained)
                entries.append(compared(variant, expected, got, low))
            if all(np.isfinite(array).all() for array in expected.values()):
                trained = expected
    return {
        "name": built.options.name,
        "steps": steps,
        "variants": entries,
        "passed": all(entry["passed"] for entry in entries),
    }


def _of_length(
    built: ModelDefinition,
    length: int,
    plan: Plan,
    plans: Sequence[tuple[PlanVariant, Plan]],
    steps: int,
) -> Iterator[dict[str, Any]]:
    """Yield the entries of the variants of training on shorter sequences, but for the wrong one.

    built: with the model of that length.
    """
    phase = bucket_phase(TRAIN, length)
    expected = results(built, plan, PlanVariant("", phase), steps, {})
    for variant, changed in plans:
        if not variant.is_wrong:
            sized = replace(variant, name=f"length {length}: {variant.name}", phase=phase)
            got = results(built, changed, sized, steps, {})
            low = _is_low(plan.phases[phase]) or _is_low(changed.phases[phase])
            yield compared(sized, expected, got, low)


def freed_early_entry(
    built: ModelDefinition, plan: Plan, variant: PlanVariant, steps: int, expected: Arrays
) -> dict[str, Any]:
    """Return the entry of the variant that frees a block too early; it passes if this is detected.

    An undetected block is a failure only if its contents matter: if overwriting it, regardless of
    planned lifetimes, changes the result. Among the first candidates there may be no such block, as
    in a network whose gradients are all zero.
    """
    for early in islice(freed_early(plan, variant.phase), _MAX_CANDIDATES):
        entry = compared(variant, expected, results(built, early.plan, variant, steps, {}), False)
        if entry["passed"]:
            return entry
        overwritten = results(built, plan, variant, steps, {}, early.block)
        if compared(variant, expected, overwritten, False)["tensor"]:
            return entry
    return {
        **compared(variant, expected, expected, False),
        "promised": NO_EARLY_BLOCK,
        "passed": True,
    }


def _is_low(planned: PhasePlan) -> bool:
    """Return whether any step has a bfloat16 output."""
    kernels = [step.kernel for step in planned.steps if step.kernel is not None]
    specs = (spec for kernel in kernels for spec in (*kernel.outputs, *kernel.extra_outputs))
    return any(spec is not None and spec.dtype == BFLOAT16 for spec in specs)


def _unfused(built: ModelDefinition, request: CompileRequest, phase: str) -> list[PlanVariant]:
    """Return one variant for each fusion that the plan uses, without that fusion."""

    def names(unfused: tuple[str, ...]) -> list[str]:
        plan = compile_plan(built.model.symbol, replace(request, unfused=unfused))
        return [step.name for step in plan.phases[phase].steps]

    variants, all_steps = [], names(())
    for fusion in fusion_names():
        if names((fusion,)) != all_steps:
            name = f"{'inference: ' if phase == EVALUATE else ''}without {fusion}"
            variants.append(PlanVariant(name, phase, {"unfused": (fusion,)}, exact=phase == TRAIN))
    return variants


def results(
    built: ModelDefinition,
    plan: Plan,
    variant: PlanVariant,
    steps: int,
    trained: Arrays,
    overwritten: Block | None = None,
) -> Arrays:
    """Return the state after training, or the outputs of every step of inference.

    overwritten: block that is overwritten in every step after its last step. Inference starts with
    the trained state if that is finite: with initial statistics, the outputs of deep networks
    hardly depend on anything.
    """
    loop = Steps(built, plan, variant.phase)
    if variant.phase == EVALUATE:
        for name in built.model.learned.keys() & plan.specs.keys() & trained.keys():
            loop.executor.tensor(name).write(trained[name])
        loop.executor.prepare()
    run = loop.executor.run_poisoned if variant.poisoned else loop.executor.run
    if overwritten is not None:
        run = partial(loop.executor.run_overwriting, block=overwritten)
    outputs: Arrays = {}
    for step in range(steps):
        loop.run(run)
        if variant.phase == EVALUATE:
            results = loop.results().items()
            outputs |= {f"{name}, step {step + 1}": array for name, array in results}
    if base_phase(variant.phase) == TRAIN:
        names = [block.name for block in plan.pinned if block.memory_class in _COMPARED]
        outputs = {name: loop.executor.tensor(name).read() for name in names}
    return outputs


def compared(variant: PlanVariant, expected: Arrays, got: Arrays, low: bool) -> dict[str, Any]:
    """Return the entry of a variant; `low` selects the tolerance of bfloat16."""
    tolerance = 0.0
    if not variant.exact:
        tolerance = LOW_TOLERANCE if low else TOLERANCE
    largest, tensor = 0.0, ""
    for name, array in expected.items():
        if array.tobytes() != got[name].tobytes():
            size = float(np.abs(array).max()) or 1.0
            difference = float(np.abs(got[name].astype("float64") - array).max()) / size
            # A NaN is the largest difference; equal numbers with other bits are recorded as well.
            if not difference <= largest or not tensor:
                largest, tensor = difference, name
    same = not tensor or (tolerance > 0 and largest <= tolerance)
    promised = "the same bits" if tolerance == 0 else f"within {tolerance:g}"
    return {
        "variant": variant.name,
        "phase": variant.phase,
        "promised": "a difference" if variant.is_wrong else promised,
        "difference": largest,
        "tensor": tensor,
        "tensors": len(expected),
        "passed": same is not variant.is_wrong,
    }
