"""Checks of shape and type inference, from complete and from partial knowledge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mxrun.base.tensor import PartialShape, Shape
from mxrun.contract.case import CaseRunner
from mxrun.contract.problem import Breach, Violation, attempting
from mxrun.operator.property import PartialInference, PartialShapes
from mxrun.operator.shape import ShapeContradiction, is_known, show

_CONTRADICTION_HINT = (
    "join shapes with unify(), which raises ShapeContradiction only if two sides disagree"
)


def shapes(runner: CaseRunner) -> Iterator[Violation]:
    """Check shape inference with all inputs, with each part unknown, and with contradictions."""
    inference = _CaseInference(runner)
    yield from inference.complete()
    for description, partial in inference.partial():
        yield from inference.never_false(description, partial)
    for position in range(inference.count, len(inference.names)):
        shape = inference.truth[position]
        wrong = [tuple(d + (i == axis) for i, d in enumerate(shape)) for axis in range(len(shape))]
        for other in [*wrong, (*shape, 2)]:
            yield from inference.contradiction(position, other)


def no_known_shapes(runners: Sequence[CaseRunner]) -> Iterator[Violation]:
    """Check that shapes inferred from parameters alone hold for all cases with them."""
    for runner in runners:
        inference = _CaseInference(runner)
        nothing: PartialShapes = [None] * len(inference.names)
        found = inference.infer("nothing is known", nothing)
        for other in runners:
            if other.prop.parameters != runner.prop.parameters:
                continue
            truth = _CaseInference(other).truth
            for name, got, want in zip(inference.names, found, truth, strict=True):
                if not _holds(got, want):
                    yield Violation(
                        f"infer_shape gives {name} a shape though none is known",
                        f"? ({show(want)} in the case {other.case.name!r})",
                        show(got),
                        hint="return None for a shape that no argument, output or parameter "
                        "determines",
                    )
                    return


def types(runner: CaseRunner) -> Iterator[Violation]:
    """Check type inference: complete from the inputs, keeping given types, and a fixpoint."""
    case = runner.case
    names = [*case.arguments, *case.outputs]
    count = len(case.arguments)
    for dtype, arrays in case.inputs.items():
        given: list[str | None] = [str(array.dtype) for array in arrays[:count]]
        with attempting("infer_type"):
            inputs, outputs = runner.prop.infer_type([*given], [None] * len(case.outputs))
            again = runner.prop.infer_type([*inputs], [*outputs])
            runner.prop.infer_type([None] * count, [None] * len(case.outputs))
        for name, before, got, later in zip(
            names, [*given, *outputs], [*inputs, *outputs], [*again[0], *again[1]], strict=True
        ):
            if got is None:
                problem = f"infer_type leaves {name} unknown though every input is {dtype}"
                yield Violation(problem, hint="return a type for every output")
            elif got != before or later != got:
                problem = f"infer_type changes the type of {name} that it is given"
                yield Violation(problem, str(before), str(later), hint="keep known types")


class _CaseInference:
    """True shapes of a case, and shape inference from parts of them."""

    def __init__(self, runner: CaseRunner) -> None:
        case = runner.case
        self.prop = runner.prop
        self.count = len(case.arguments)
        self.names = [*case.arguments, *case.outputs]
        self.inputs: list[Shape] = case.input_shapes
        self.truth: list[Shape] = [*self.inputs, *case.output_shapes]

    def infer(self, description: str, partial: PartialShapes) -> PartialShapes:
        """Run one inference step; raises Breach if it refuses true partial knowledge."""
        with attempting(f"infer_shape where {description}"):
            try:
                found = self.prop.infer_shape([*partial[: self.count]], [*partial[self.count :]])
            except ShapeContradiction as error:
                raise Breach(
                    Violation(
                        f"infer_shape sees a contradiction where {description}: {error}",
                        hint="incomplete knowledge is no error: return None for unknown shapes",
                    )
                ) from error
            return self._checked(found)

    def _checked(self, found: PartialInference) -> PartialShapes:
        counts = len(found.inputs), len(found.outputs), len(found.auxiliary)
        expected = (
            self.count,
            len(self.names) - self.count,
            len(self.prop.list_auxiliary_states()),
        )
        if counts != expected:
            raise Breach(
                Violation(
                    "infer_shape returns another number of (inputs, outputs, auxiliary states)",
                    str(expected),
                    str(counts),
                    hint="return one shape for each, None if it is unknown",
                )
            )
        return [*found.inputs, *found.outputs]

    def complete(self) -> Iterator[Violation]:
        """Check that inputs determine all other shapes, and that all shapes are a fixpoint."""
        outputs: PartialShapes = [None] * (len(self.names) - self.count)
        found = self.infer("every input is known", [*self.inputs, *outputs])
        for name, shape in zip(self.names, found, strict=True):
            if not is_known(shape):
                problem = f"infer_shape leaves {name} unknown though every input is known"
                yield Violation(
                    problem, "a shape", show(shape), hint="every output follows from inputs"
                )
        again = self.infer("everything is known", [*self.truth])
        for name, got, want in zip(self.names, again, self.truth, strict=True):
            if got != want:
                problem = (
                    f"infer_shape changes the shape of {name} when called with complete shapes"
                )
                yield Violation(problem, show(want), show(got), hint=_CONTRADICTION_HINT)

    def partial(self) -> Iterator[tuple[str, PartialShapes]]:
        """Yield parts of the true shapes, each with its description for messages."""
        truth: PartialShapes = [*self.truth]
        for position, name in enumerate(self.names):
            yield f"{name} is unknown", _with(truth, position, None)
            only: PartialShapes = [None] * len(truth)
            yield f"only {name} is known", _with(only, position, truth[position])
            for axis in range(len(self.truth[position])):
                hidden = tuple(None if i == axis else d for i, d in enumerate(self.truth[position]))
                description = f"{name} is {show(hidden)}"
                yield description, _with(truth, position, hidden)
                yield f"{description} and all else unknown", _with(only, position, hidden)
        yield "only ranks are known", [(None,) * len(shape) for shape in self.truth]
        yield "nothing is known", [None] * len(truth)

    def never_false(self, description: str, partial: PartialShapes) -> Iterator[Violation]:
        """Check that shapes inferred from a part of the truth are true and stable."""
        found = self.infer(description, partial)
        for _ in self.names:
            later = self.infer(description, found)
            if later == found:
                break
            found = later
        for name, given, got, want in zip(self.names, partial, found, self.truth, strict=True):
            # A label may have one of several shapes; inference assumes one of them if none is
            # given.
            if name in self.prop.label_arguments:
                continue
            if not _holds(got, want):
                problem = f"infer_shape infers a false shape of {name} where {description}"
                yield Violation(
                    problem,
                    show(want),
                    show(got),
                    hint="infer only shapes that follow in every case",
                )
            elif not _preserves(got, given):
                problem = f"infer_shape drops the given shape of {name} where {description}"
                yield Violation(problem, show(given), show(got), hint=_CONTRADICTION_HINT)

    def contradiction(self, position: int, wrong: Shape) -> Iterator[Violation]:
        """Check that an output shape which contradicts the inputs is refused."""
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
            hint=_CONTRADICTION_HINT,
        )


def _with(shapes: PartialShapes, position: int, shape: PartialShape) -> PartialShapes:
    changed = [*shapes]
    changed[position] = shape
    return changed


def _holds(got: PartialShape, want: Shape) -> bool:
    """Return whether the known part of a shape is true."""
    if got is None:
        return True
    return len(got) == len(want) and all(g in (None, w) for g, w in zip(got, want, strict=True))


def _preserves(got: PartialShape, given: PartialShape) -> bool:
    """Return whether everything that was given is still known."""
    if given is None:
        return True
    return got is not None and all(
        before is None or before == now for before, now in zip(given, got, strict=True)
    )
