"""The operator contract, checked: every check on every case of an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
    """One promise of the contract.

    name: in one or two words; promise: what holds where it is kept. `of_case` looks at one case,
    `of_all` at all of an operator's together; `extents` says at which. missing: why this machine
    cannot check all of it; empty where it can.
    """

    name: str
    promise: str
    of_case: Callable[[CaseRunner], Iterator[Violation]] | None = None
    of_all: Callable[[Sequence[CaseRunner]], Iterator[Violation]] | None = None
    missing: Callable[[], str] = str
    extents: Sequence[Extent] = (Extent.ORDINARY,)

    def problems(self, benches: Sequence[CaseRunner]) -> Iterator[Violation]:
        """All that is wrong, each with its case."""
        benches = [bench for bench in benches if bench.case.extent in self.extents]
        if self.of_all is not None:
            yield from _caught(self.name, self.of_all, benches)
        if self.of_case is not None:
            for bench in benches:
                for problem in _caught(self.name, self.of_case, bench):
                    yield problem.of(bench.case.name)


def _caught(
    name: str, function: Callable[..., Iterator[Violation]], subject: object
) -> list[Violation]:
    """The problems of one check, and what ended it."""
    found: list[Violation] = []
    try:
        with attempting(f"the operator under the check {name!r}"):
            for problem in function(subject):
                found.append(problem)
    except Breach as breach:
        found.append(breach.problem)
    return found


def calls(bench: CaseRunner) -> Iterator[Violation]:
    """Every implementation runs forward and backward; the readable body in float64 too."""
    for implementation in bench.implementations:
        for dtype in (SINGLE, DOUBLE) if implementation is NUMPY else (SINGLE,):
            bench.forward(implementation, dtype)
            if bench.case.asked:
                bench.backward(implementation, dtype)
    yield from ()


# Where a team of several threads has more than one to do.
TEAMWORK = (Extent.ORDINARY, Extent.LARGE)
# What must hold of a case before anything else can be tried on it.
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
    Check("calls alike", "the same call gives the same bits", reading.alike, extents=(*Extent,)),
)
THEN: tuple[Check, ...] = (
    Check(
        "documentation",
        "the operator and its parameters say what they are",
        of_all=interface.documentation,
    ),
    Check("parameters", "parameters come back from their strings", interface.parameters),
    Check(
        "shapes", "inference is complete, never false, and refuses contradictions", inference.shapes
    ),
    Check("knowing nothing", "no shape is inferred from nothing", of_all=inference.knowing_nothing),
    Check("types", "types are complete and kept", inference.types),
    Check("hints", "hints and dependencies name tensors that there are", interface.hints),
    Check("costs", "FLOPs and resources can be counted with", interface.costs),
    Check("forward requests", "null, write and add in every mix", requests.forward_requests),
    Check("backward requests", "null, write and add in every mix", requests.backward_requests),
    Check("forward in place", "every hint gives the bits of write", requests.forward_in_place),
    Check("backward in place", "every hint gives the bits of write", requests.backward_in_place),
    Check("undeclared inputs", "backward reads what it declares", reading.undeclared_inputs),
    Check(
        "larger tensors",
        "the same bits where tensors lie within larger ones",
        reading.larger_tensors,
        extents=TEAMWORK,
    ),
    Check("unread outputs", "a gradient that is absent is one of zeros", reading.unread_outputs),
    Check(
        "gradients",
        "backward is the derivative, in float64",
        agreement.gradients,
        extents=(*Extent,),
    ),
    Check("element types", "float32 is float64 but for rounding", agreement.element_types),
    Check(
        "repetition",
        "the same bits on one team size, alike on others",
        reading.repetition,
        extents=TEAMWORK,
    ),
    Check("shared body", "one body serves two networks in turn", reading.shared_body),
    Check("random numbers", "no numbers but of the operator's stream", reading.random_numbers),
    Check("steps", "each step has random numbers of its own", of_all=reading.draws_by_step),
    Check(
        "implementations",
        "every implementation agrees with the body",
        agreement.implementations,
        extents=TEAMWORK,
    ),
    Check("losses", "the loss is one number, and weight 0 is silence", loss.losses),
    Check(
        "allocations",
        "calls allocate nothing that is not planned",
        allocation.allocations,
        missing=allocation.missing,
    ),
)
CHECKS = (*FIRST, *THEN)


@dataclass(frozen=True)
class CheckOutcome:
    """How one check went.

    missing: what could not be checked on this machine; empty where all could.
    """

    check: Check
    problems: tuple[Violation, ...]
    missing: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass(frozen=True)
class Report:
    """How an operator keeps its contract; checks that have no sound case to try are absent."""

    operator: str
    cases: tuple[str, ...]
    outcomes: tuple[CheckOutcome, ...]

    @property
    def passed(self) -> bool:
        """Whether the whole contract is kept."""
        return all(outcome.passed for outcome in self.outcomes)


def check_property(prop: AnyProperty, fixed: Sequence[str] = ()) -> Report:
    """Try every check on cases made up for the operator.

    fixed: parameters that stay as they are, where each would else be varied.
    """
    derive = Check("cases", "cases follow from its shapes, types and parameters")
    if prop.unchecked:
        return Report(prop.type_string, (), (CheckOutcome(derive, (), prop.unchecked),))
    try:
        with attempting("making up cases"):
            cases = derived(prop, fixed)
    except Breach as breach:
        return Report(prop.type_string, (), (CheckOutcome(derive, (breach.problem,)),))
    if not cases:
        problem = Violation(
            "no shape of the first argument gives those of all others",
            f"shapes from {enumerated(prop.list_arguments()[:1])}, of rank 1 to {len(RANKS)}",
            "none",
            "infer the others' in infer_shape, and give parameters that fit as examples",
        )
        return Report(prop.type_string, (), (CheckOutcome(derive, (problem,)),))
    return check_operator(prop.type_string, cases)


def check_operator(operator: str, cases: Sequence[Case]) -> Report:
    """Try every check on every case.

    Where one of the first checks fails on a case, the others leave that case out: what they would
    find there follows from it.
    """
    benches = [CaseRunner(case) for case in cases]
    outcomes = []
    for check in FIRST:
        sound, problems = [], []
        for bench in benches:
            found = list(check.problems([bench]))
            problems += found
            sound += [] if found else [bench]
        outcomes.append(CheckOutcome(check, tuple(problems)))
        benches = sound
    for check in THEN if benches else ():
        outcomes.append(CheckOutcome(check, tuple(check.problems(benches)), check.missing()))
    return Report(operator, tuple(case.name for case in cases), tuple(outcomes))
