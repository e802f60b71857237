"""`verify`: a network trains to the same numbers however its plan is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.build import Built
from mxrun.graph.compile import EVALUATE, TRAIN, CompileRequest, compile_plan
from mxrun.graph.graph import MemoryClass
from mxrun.session.build import check_fits, load, request_for
from mxrun.session.steps import Steps

Arrays = dict[str, npt.NDArray[Any]]

# Of what inference folds: the greatest difference, relative to the greatest number of a tensor.
TOLERANCE = 1e-5
_KEPT = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER, MemoryClass.AUXILIARY)


@dataclass(frozen=True)
class Way:
    """Another way to plan the same work.

    phase: whose results are compared: what training leaves, or what inference gives. tolerance: 0
    where every bit is promised.
    """

    name: str
    phase: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    poisoned: bool = False
    tolerance: float = 0.0


WAYS = (
    Way("operators as they are written, none fused", TRAIN, {"fuse": False}),
    Way("gradients by walking the forward pass backwards", TRAIN, {"backward": "reverse"}),
    Way("no tensor in the place of another", TRAIN, {"in_place": False}),
    Way("no memory used again", TRAIN, {"in_place": False, "reuse": False}),
    Way("memory filled with NaN as soon as it is free", TRAIN, poisoned=True),
    Way("inference as it is written", EVALUATE, {"fuse": False}, tolerance=TOLERANCE),
    Way("inference that prepares nothing", EVALUATE, {"fixed": False}, tolerance=TOLERANCE),
    Way("inference over poisoned memory", EVALUATE, poisoned=True),
)


def verify(
    path: str | Path,
    overrides: Sequence[str] = (),
    steps: int = 20,
    batch: int | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Take the same steps on made-up records in every way, and compare what they lead to.

    The answer holds `ways`, each with its name, what was promised, the greatest difference found
    and in which tensor, and `passed`. Raises UserError for a config that is wrong or does not fit
    into memory.
    """
    built = load(path, overrides, batch)
    found = []
    for phase in (TRAIN, EVALUATE):
        request = request_for(built, phase == TRAIN, threads)
        expected = _results(built, request, Way("", phase), steps)
        for way in WAYS:
            if way.phase == phase:
                changed = replace(request, **way.changes)
                found.append(_compared(way, expected, _results(built, changed, way, steps)))
    return {
        "name": built.config.name,
        "steps": steps,
        "ways": found,
        "passed": all(way["passed"] for way in found),
    }


def _results(built: Built, request: CompileRequest, way: Way, steps: int) -> Arrays:
    """All that training changes, or the outputs of every step of inference."""
    plan = compile_plan(built.model.symbol, request)
    check_fits(plan)
    taken = Steps(built, plan, way.phase)
    run = taken.executor.run_poisoned if way.poisoned else taken.executor.run
    outputs: Arrays = {}
    for step in range(steps):
        taken.run(run)
        if way.phase == EVALUATE:
            results = taken.results().items()
            outputs |= {f"{name}, step {step + 1}": array for name, array in results}
    return outputs or {
        block.name: taken.executor.array(block.name).copy()
        for block in plan.pinned
        if block.memory_class in _KEPT
    }


def _compared(way: Way, expected: Arrays, got: Arrays) -> dict[str, Any]:
    worst, tensor = 0.0, ""
    for name, array in expected.items():
        if array.tobytes() != got[name].tobytes():
            size = float(np.abs(array).max()) or 1.0
            difference = float(np.abs(got[name].astype("float64") - array).max()) / size
            # NaN is the greatest difference, and other bits of equal numbers are one too.
            if not difference <= worst or not tensor:
                worst, tensor = difference, name
    same = not tensor or (way.tolerance > 0 and worst <= way.tolerance)
    return {
        "way": way.name,
        "phase": way.phase,
        "promised": "the same bits" if way.tolerance == 0 else f"within {way.tolerance:g}",
        "difference": worst,
        "tensor": tensor,
        "tensors": len(expected),
        "passed": same,
    }
