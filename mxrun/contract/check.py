"""Checks of the operator contract, run on the cases of an operator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

from mxrun.base import flags
from mxrun.base.dataclass import dataclass
from mxrun.contract import (
    agreement,
    allocation,
    inference,
    interface,
    loss,
    reading,
    requests,
)
from mxrun.contract.case import DOUBLE, SINGLE, Case, CaseRunner, Extent
from mxrun.contract.derive import RANKS
from mxrun.contract.derive import cases as derived
from mxrun.contract.problem import Breach, Violation, attempting, enumerated
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import AnyProperty


@dataclass(frozen=True)
class Check:
    """One property of the operator contract and the function that checks it.

    name: one or two words; promise: the property, in words. `of_case` checks one case, `of_all` all
    cases of an operator together; `extents` selects the cases. `missing` returns why this machine
    cannot check everything; empty if it can.
    """

    name: str
    promise: str
    of_case: Callable[[CaseRunner], Iterator[Violation]] | None = None
    of_all: Callable[[Sequence[CaseRunner]], Iterator[Violation]] | None = None
    missing: Callable[[], str] = str
    extents: Sequence[Extent] = (Extent.ORDINARY,)

    def problems(self, runners: Sequence[CaseRunner]) -> Iterator[Violation]:
        """Yield all violations, each with the name of its case."""
        runners = [runner for runner in runners if runner.case.extent in self.extents]
        if self.of_all is not None:
            yield from _caught(self.name, self.of_all, runners)
        if self.of_case is not None:
            for runner in runners:
                if flags.debug():
                    # A kernel that writes far out of bounds may end the process.
                    print(f"{self.name}: {runner.case.name}", file=sys.stderr)
                for problem in _caught(self.name, self.of_case, runner):
                    yield problem.of(runner.case.name)


def _caught(
    name: str, function: Callable[..., Iterator[Violation]], subject: object
) -> list[Violation]:
    """Return the violations of one check, including the Breach that ended it."""
    found: list[Violation] = []
    try:
        with attempting(f"the operator under the check {name!r}"):
            for problem in function(subject):
                found.append(problem)
    except Breach as breach:
        found.append(breach.problem)
    return found


def calls(runner: CaseRunner) -> Iterator[Violation]:
    """Run every implementation forward and backward; the NumPy body in float64 too."""
    for implementation in runner.implementations:
        for dtype in (SINGLE, DOUBLE) if implementation is NUMPY else (SINGLE,):
            runner.forward(implementation, dtype)
            if runner.case.differentiated:
                runner.backward(implementation, dtype)
    yield from ()


# Promises of a forward and a backward check.
_EVERY_REQUEST = "null, write and add in every combination"
_SAME_BITS_IN_PLACE = "every hint gives the bits of an out-of-place call"
# Extents of checks on several threads.
SEVERAL_TASKS = (Extent.ORDINARY, Extent.LARGE)
# Prerequisites: a case that fails one of these is left out of all other checks.
FIRST: tuple[Check, ...] = (
    Check(
        "names",
        "tensors have names, and what points at them fits",
        interface.names,
        extents=(*Extent,),
    ),
    Check(
        "calls",
        "calls end, stay within their tensors, leave inputs alone",
        calls,
        extents=(*Extent,),
    ),
    Check(
        "calls alike", "the same call gives the same bits", reading.determinism, extents=(*Extent,)
    ),
)
THEN: tuple[Check, ...] = (
    Check(
        "documentation",
        "the operator and its parameters are documented",
        of_all=interface.documentation,
    ),
    Check("parameters", "parameters survive a round trip through strings", interface.parameters),
    Check(
        "shapes", "inference is complete, never false, and refuses contradictions", inference.shapes
    ),
    Check(
        "knowing nothing",
        "no shape is inferred without any known shape",
        of_all=inference.no_known_shapes,
    ),
    Check("types", "inferred types are complete, given ones stay", inference.types),
    Check("hints", "hints and dependencies name existing tensors", interface.hints),
    Check("costs", "FLOPs and resource sizes are valid numbers", interface.costs),
    Check("forward requests", _EVERY_REQUEST, requests.forward_requests),
    Check("backward requests", _EVERY_REQUEST, requests.backward_requests),
    Check("forward in place", _SAME_BITS_IN_PLACE, requests.forward_in_place),
    Check("backward in place", _SAME_BITS_IN_PLACE, requests.backward_in_place),
    Check("undeclared inputs", "backward reads declared tensors only", reading.undeclared_inputs),
    Check(
        "larger tensors",
        "the same bits for slices of larger tensors",
        reading.larger_tensors,
        extents=SEVERAL_TASKS,
    ),
    Check("unread outputs", "an absent output gradient equals zeros", reading.unread_outputs),
    Check(
        "gradients",
        "backward is the derivative, in float64",
        agreement.gradients,
        extents=(*Extent,),
    ),
    Check("element types", "float32 and float64 agree up to rounding", agreement.element_types),
    Check(
        "repetition",
        "the same bits on any number of threads",
        reading.repetition,
        extents=SEVERAL_TASKS,
    ),
    Check("shared body", "two networks can share one Operator object", reading.shared_body),
    Check(
        "random numbers",
        "random numbers come from the operator's stream only",
        reading.random_numbers,
    ),
    Check("steps", "each step has random numbers of its own", of_all=reading.draws_by_step),
    Check(
        "implementations",
        "every implementation agrees with the NumPy body",
        agreement.implementations,
        extents=SEVERAL_TASKS,
    ),
    Check("losses", "the loss is a scalar, rows of weight 0 add nothing", loss.losses),
    Check(
        "allocations",
        "calls allocate nothing outside the plan",
        allocation.allocations,
        missing=allocation.missing,
    ),
)
CHECKS = (*FIRST, *THEN)


@dataclass(frozen=True)
class CheckOutcome:
    """Result of one check.

    missing: part that could not be checked on this machine; empty if there is none.
    """

    check: Check
    problems: tuple[Violation, ...]
    missing: str = ""

    @property
    def passed(self) -> bool:
        """Return whether there are no violations."""
        return not self.problems


@dataclass(frozen=True)
class Report:
    """Outcomes of all checks of an operator; checks without a valid case are absent."""

    operator: str
    cases: tuple[str, ...]
    outcomes: tuple[CheckOutcome, ...]

    @property
    def passed(self) -> bool:
        """Return whether all checks passed."""
        return all(outcome.passed for outcome in self.outcomes)


def check_property(prop: AnyProperty, fixed: Sequence[str] = ()) -> Report:
    """Run every check on cases generated for the operator.

    fixed: parameters that keep their values; the others are varied.
    """
    derive = Check("cases", "cases can be generated from its shapes, types and parameters")
    if prop.unchecked:
        return Report(prop.type_string, (), (CheckOutcome(derive, (), prop.unchecked),))
    try:
        with attempting("generating cases"):
            cases = derived(prop, fixed)
    except Breach as breach:
        return Report(prop.type_string, (), (CheckOutcome(derive, (breach.problem,)),))
    if not cases:
        problem = Violation(
            "no shape of the first argument gives those of all others",
            f"shapes from {enumerated(prop.list_arguments()[:1])}, of rank 1 to {len(RANKS)}",
            "none",
            hint="infer the other shapes in infer_shape, and give valid parameters as examples",
        )
        return Report(prop.type_string, (), (CheckOutcome(derive, (problem,)),))
    return check_operator(prop.type_string, cases)


def check_operator(operator: str, cases: Sequence[Case]) -> Report:
    """Run every check on every case.

    A case that fails a prerequisite check is left out of the others, whose findings would only be
    consequences.
    """
    runners = [CaseRunner(case) for case in cases]
    outcomes = []
    for check in FIRST:
        sound, problems = [], []
        for runner in runners:
            found = list(check.problems([runner]))
            problems += found
            sound += [] if found else [runner]
        outcomes.append(CheckOutcome(check, tuple(problems)))
        runners = sound
    for check in THEN if runners else ():
        outcomes.append(CheckOutcome(check, tuple(check.problems(runners)), check.missing()))
    return Report(operator, tuple(case.name for case in cases), tuple(outcomes))
