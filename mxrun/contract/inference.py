"""Shapes and types: complete where everything is given, and never false where little is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mxrun.base.tensor import PartialShape, Shape
from mxrun.contract.case import CaseRunner
from mxrun.contract.problem import Breach, Violation, attempting
from mxrun.operator.property import PartialInference, PartialShapes
from mxrun.operator.shape import ShapeContradiction, is_known, show

_CONTRADICTION_HINT = (
    "join shapes by unify(), which raises ShapeContradiction where two sides disagree and nowhere "
    "else"
)


def shapes(bench: CaseRunner) -> Iterator[Violation]:
    """Shape inference with all inputs, with each thing unknown in turn, and with contradictions."""
    trial = _Trial(bench)
    yield from trial.complete()
    for said, partial in trial.partial():
        yield from trial.never_false(said, partial)
    for position in range(trial.count, len(trial.names)):
        shape = trial.truth[position]
        wrong = [tuple(d + (i == axis) for i, d in enumerate(shape)) for axis in range(len(shape))]
        for other in [*wrong, (*shape, 2)]:
            yield from trial.contradiction(position, other)


def knowing_nothing(benches: Sequence[CaseRunner]) -> Iterator[Violation]:
    """What is inferred from parameters alone holds for every case under those parameters."""
    for bench in benches:
        trial = _Trial(bench)
        nothing: PartialShapes = [None] * len(trial.names)
        found = trial.infer("nothing is known", nothing)
        for other in benches:
            if other.prop.parameters != bench.prop.parameters:
                continue
            truth = _Trial(other).truth
            for name, got, want in zip(trial.names, found, truth, strict=True):
                if not _holds(got, want):
                    yield Violation(
                        f"infer_shape takes a shape of {name} from nothing",
                        f"? ({show(want)} in the case {other.case.name!r})",
                        show(got),
                        "answer None for what no argument, output or parameter says",
                    )
                    return


def types(bench: CaseRunner) -> Iterator[Violation]:
    """Type inference: complete from the inputs, keeping what is given, and a fixpoint."""
    case = bench.case
    names = [*case.arguments, *case.outputs]
    count = len(case.arguments)
    for dtype, arrays in case.inputs.items():
        given: list[str | None] = [str(array.dtype) for array in arrays[:count]]
        with attempting("infer_type"):
            inputs, outputs = bench.prop.infer_type([*given], [None] * len(case.outputs))
            again = bench.prop.infer_type([*inputs], [*outputs])
            bench.prop.infer_type([None] * count, [None] * len(case.outputs))
        for name, before, got, later in zip(
            names, [*given, *outputs], [*inputs, *outputs], [*again[0], *again[1]], strict=True
        ):
            if got is None:
                problem = f"infer_type leaves {name} unknown though every input is {dtype}"
                yield Violation(problem, hint="answer a type for every output")
            elif got != before or later != got:
                problem = f"infer_type changes the type of {name} that it is given"
                yield Violation(problem, str(before), str(later), "keep what is known")


class _Trial:
    """The true shapes of a case, and what inference says of parts of them."""

    def __init__(self, bench: CaseRunner) -> None:
        case = bench.case
        self.prop = bench.prop
        self.count = len(case.arguments)
        self.names = [*case.arguments, *case.outputs]
        self.inputs: list[Shape] = case.input_shapes
        self.truth: list[Shape] = [*self.inputs, *case.output_shapes]

    def infer(self, said: str, partial: PartialShapes) -> PartialShapes:
        """One inference step; raises Breach where it contradicts partial but true knowledge."""
        with attempting(f"infer_shape where {said}"):
            try:
                found = self.prop.infer_shape([*partial[: self.count]], [*partial[self.count :]])
            except ShapeContradiction as error:
                raise Breach(
                    Violation(
                        f"infer_shape sees a contradiction where {said}: {error}",
                        hint="too little knowledge is no error: answer None for what does not "
                        "follow",
                    )
                ) from error
            return self._checked(found)

    def _checked(self, found: PartialInference) -> PartialShapes:
        counts = len(found.inputs), len(found.outputs), len(found.auxiliary)
        wanted = (
            self.count,
            len(self.names) - self.count,
            len(self.prop.list_auxiliary_states()),
        )
        if counts != wanted:
            raise Breach(
                Violation(
                    "infer_shape answers another number of (inputs, outputs, auxiliary states)",
                    str(wanted),
                    str(counts),
                    "one shape for each, None where it is not known",
                )
            )
        return [*found.inputs, *found.outputs]

    def complete(self) -> Iterator[Violation]:
        """All inputs give all outputs and states, and all together give themselves."""
        outputs: PartialShapes = [None] * (len(self.names) - self.count)
        found = self.infer("every input is known", [*self.inputs, *outputs])
        for name, shape in zip(self.names, found, strict=True):
            if not is_known(shape):
                problem = f"infer_shape leaves {name} unknown though every input is known"
                yield Violation(problem, "a shape", show(shape), "every output follows from inputs")
        again = self.infer("everything is known", [*self.truth])
        for name, got, want in zip(self.names, again, self.truth, strict=True):
            if got != want:
                problem = f"infer_shape changes the shape of {name} when asked once more"
                yield Violation(problem, show(want), show(got), _CONTRADICTION_HINT)

    def partial(self) -> Iterator[tuple[str, PartialShapes]]:
        """Parts of the truth, and what a message says of each."""
        truth: PartialShapes = [*self.truth]
        for position, name in enumerate(self.names):
            yield f"{name} is unknown", _with(truth, position, None)
            only: PartialShapes = [None] * len(truth)
            yield f"only {name} is known", _with(only, position, truth[position])
            for axis in range(len(self.truth[position])):
                hidden = tuple(None if i == axis else d for i, d in enumerate(self.truth[position]))
                said = f"{name} is {show(hidden)}"
                yield said, _with(truth, position, hidden)
                yield f"{said} and all else unknown", _with(only, position, hidden)
        yield "only ranks are known", [(None,) * len(shape) for shape in self.truth]
        yield "nothing is known", [None] * len(truth)

    def never_false(self, said: str, partial: PartialShapes) -> Iterator[Violation]:
        """Whatever follows from a part of the truth agrees with the truth, and is stable."""
        found = self.infer(said, partial)
        for _ in self.names:
            later = self.infer(said, found)
            if later == found:
                break
            found = later
        for name, given, got, want in zip(self.names, partial, found, self.truth, strict=True):
            # A label may have one of several shapes, and one of them unless it is given.
            if name in self.prop.label_arguments:
                continue
            if not _holds(got, want):
                problem = f"infer_shape infers a false shape of {name} where {said}"
                yield Violation(
                    problem, show(want), show(got), "infer only what follows for every shape"
                )
            elif not _keeps(got, given):
                problem = f"infer_shape forgets what it knew of {name} where {said}"
                yield Violation(problem, show(given), show(got), _CONTRADICTION_HINT)

    def contradiction(self, position: int, wrong: Shape) -> Iterator[Violation]:
        """An output that the inputs do not give is refused."""
        given = _with([*self.truth], position, wrong)
        with attempting(f"infer_shape with {self.names[position]} {show(wrong)}"):
            try:
                found = self.prop.infer_shape([*given[: self.count]], [*given[self.count :]])
            except ShapeContradiction:
                return
        got = [*found.inputs, *found.outputs]
        yield Violation(
            f"infer_shape accepts {self.names[position]} {show(wrong)} for inputs that give "
            f"{show(self.truth[position])}",
            "a ShapeContradiction",
            show(got[position]),
            _CONTRADICTION_HINT,
        )


def _with(shapes: PartialShapes, position: int, shape: PartialShape) -> PartialShapes:
    changed = [*shapes]
    changed[position] = shape
    return changed


def _holds(got: PartialShape, want: Shape) -> bool:
    """Whether all that is known of a shape is so."""
    if got is None:
        return True
    return len(got) == len(want) and all(g in (None, w) for g, w in zip(got, want, strict=True))


def _keeps(got: PartialShape, given: PartialShape) -> bool:
    """Whether all that was given is still known."""
    if given is None:
        return True
    return got is not None and all(
        before is None or before == now for before, now in zip(given, got, strict=True)
    )
