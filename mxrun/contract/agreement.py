"""Several ways to compute one operator: implementations, element types and the derivative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mxrun.contract import call
from mxrun.contract.call import Conditions
from mxrun.contract.case import DOUBLE, SINGLE, CaseRunner
from mxrun.contract.memory import Array
from mxrun.contract.problem import Violation, differing, number
from mxrun.contract.reading import ABSOLUTE, RELATIVE
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind

# Central differences in float64: the steps, and how near the derivative must be.
STEPS = (1e-6, 1e-7)
GRADIENT_RELATIVE, GRADIENT_ABSOLUTE = 1e-5, 1e-8
# Where slopes at these steps too are alike, no rounding made them, however small they are; backward
# is held to them but for a hundredth.
_STEADY, _STEADY_RELATIVE = (1e-5, *STEPS), 1e-2
# Slopes at the two steps are nearer to each other than this, unless the function jumps in between.
_SMOOTH = 1e-3
# Directions that are tried, each along half of the elements, until none of them jumps.
_HALVINGS = 8
# Elements up to which the one with the wrong derivative is looked for.
_SEARCHED = 2048


def implementations(bench: CaseRunner) -> Iterator[Violation]:
    """Every implementation gives what the readable body gives, on teams of 1 and 2."""
    case, reference = bench.case, bench.accepted(NUMPY)
    others = [each for each in bench.implementations if each is not NUMPY]
    for implementation in others:
        for team in (1, 2):
            conditions = Conditions(team)
            run = bench.run(implementation, conditions=conditions)
            assert run is not None
            names, got, want = list(case.outputs), list(run.outputs), list(reference.outputs)
            if case.asked:
                # Both backwards after the same outputs.
                data = bench.backward_data(reference, SINGLE)
                blank = case.blank_gradients(SINGLE)
                mine = call.backward(
                    implementation, bench.prop, data, blank, run, conditions=conditions
                )
                body = bench.backward(NUMPY)
                names += [f"gradient of {case.arguments[i]}" for i in case.asked]
                got += [mine.gradients[i] for i in case.asked]
                want += [body.gradients[i] for i in case.asked]
            for name, one, other in zip(names, got, want, strict=True):
                problem = (
                    f"{implementation.name} on a team of {team} gives another {name} than numpy"
                )
                hint = (
                    "the readable body is the meaning: change the implementation, or let it "
                    "decline what it cannot do"
                )
                yield from differing(problem, one, other, hint, RELATIVE, ABSOLUTE)


def element_types(bench: CaseRunner) -> Iterator[Violation]:
    """The readable body, forward and backward, gives in float32 what it gives in float64.

    But for rounding. A loss is left out: of what cannot be, it is -log of its type's smallest
    number.
    """
    case = bench.case
    single, double = (bench.accepted(NUMPY, dtype) for dtype in (SINGLE, DOUBLE))
    pairs = [
        (name, single.outputs[index], double.outputs[index])
        for index, name in enumerate(case.outputs)
        if index != bench.prop.loss_output
    ]
    if case.asked:
        one, other = (bench.backward(NUMPY, dtype).gradients for dtype in (SINGLE, DOUBLE))
        pairs += [(f"gradient of {case.arguments[i]}", one[i], other[i]) for i in case.asked]
    for name, narrow, wide in pairs:
        problem = f"numpy gives another {name} in float32 than in float64"
        hint = "compute in the type of the inputs"
        yield from differing(problem, narrow, wide.astype(narrow.dtype), hint, RELATIVE, ABSOLUTE)


def gradients(bench: CaseRunner) -> Iterator[Violation]:
    """Backward in float64 is the derivative along a random direction of each argument.

    Of <out_grad, outputs>, over the visible outputs whose gradient backward declares to read: no
    other is a path of the gradient. Where there is a loss, of that, but for one factor and under an
    out_grad of ones.

    Left out is what no difference of outputs shows: a gradient that deliberately is no derivative
    (`nonstandard_gradient`), and outputs of a type with fewer digits, or none, behind the point.
    """
    case = bench.case
    subjects = [i for i in _with_gradient(bench) if case.inputs[DOUBLE][i].dtype == DOUBLE]
    deliberate = bench.prop.nonstandard_gradient and bench.prop.loss_output is None
    if not case.differentiable or deliberate or not subjects:
        return
    if case.undefined:
        yield Violation(
            "its outputs are finite for none of the values that were tried, so that there is no "
            "derivative to compare",
            f"finite outputs for inputs that are {case.undefined}",
            "NaN or infinity",
            "if it is defined elsewhere, make what it is defined by a parameter, and give as its "
            "example one under which some of these fit",
        )
        return
    slope = _Slope(bench)
    if any(case.output_types(DOUBLE)[i] != DOUBLE for i in slope.paths):
        return
    for index in subjects:
        random = np.random.default_rng(index)
        for halving in range(_HALVINGS):
            direction = random.standard_normal(case.input_shapes[index])
            direction *= random.random(direction.shape) < 0.5**halving
            analytic, numeric, agree = slope.compared(index, direction)
            # Where the function jumps on the way, fewer elements may meet no jump.
            smooth = agree or slope.is_smooth(index, direction)
            if smooth:
                break
        # A gradient of zero belongs to steps as well, and they may be everywhere.
        if not agree and (smooth or index in case.asked):
            yield slope.problem(index, analytic, numeric)


def _with_gradient(bench: CaseRunner) -> list[int]:
    """The arguments whose gradient is computed or, but for those of losses and labels, zero."""
    case = bench.case
    if not case.is_train or bench.prop.loss_output is not None:
        return list(case.asked)
    return [
        index
        for index, kind in enumerate(bench.prop.list_gradients())
        if kind is not GradientKind.NONE and case.arguments[index] not in bench.prop.label_arguments
    ]


class _Slope:
    """The objective of a bench around its inputs, and what backward says of it."""

    def __init__(self, bench: CaseRunner) -> None:
        self.bench = bench
        self.inputs = list(bench.case.inputs[DOUBLE])
        self.loss = bench.prop.loss_output
        self.out_grad = bench.out_grad(DOUBLE)
        if bench.case.objective is None and self.loss is not None:
            self.out_grad = [np.ones_like(array) for array in self.out_grad]
        # What backward is not asked for is zero.
        self.gradients = bench.case.blank_gradients(DOUBLE, 0.0)
        if bench.case.asked:
            run = bench.accepted(NUMPY, DOUBLE)
            arguments = self.inputs[: len(bench.case.arguments)]
            data = call.BackwardData(self.out_grad, arguments, run.outputs)
            self.gradients = call.backward(NUMPY, bench.prop, data, self.gradients, run).gradients
        visible = range(bench.prop.num_visible_outputs)
        self.paths = [i for i in visible if i in call.declared(bench.prop)] or visible
        # A loss's gradient is scaled as its parameters say: one factor for all of it.
        self.factor = 1.0
        if bench.case.objective is None and self.loss is not None:
            self.factor = self._factor()

    def objective(self, inputs: Sequence[Array]) -> float:
        """The scalar whose derivative backward gives."""
        case = self.bench.case
        run = self.bench.run(NUMPY, inputs=inputs, dtype=DOUBLE)
        assert run is not None
        if case.objective is not None:
            return case.objective(list(inputs), run.outputs, self.out_grad)
        if self.loss is not None:
            return float(run.outputs[self.loss].sum()) * self.factor
        return sum(float((self.out_grad[i] * run.outputs[i]).sum()) for i in self.paths)

    def along(self, index: int, direction: Array, step: float = STEPS[0]) -> tuple[float, float]:
        """The derivative along a direction of one argument, and how uncertain rounding makes it."""
        ends = []
        for sign in (1, -1):
            moved = list(self.inputs)
            moved[index] = self.inputs[index] + sign * step * direction
            ends.append(self.objective(moved))
        noise = GRADIENT_ABSOLUTE * (STEPS[0] / step) * max(1.0, *map(abs, ends))
        return (ends[0] - ends[1]) / (2 * step), noise

    def compared(self, index: int, direction: Array) -> tuple[float, float, bool]:
        """Backward's derivative along a direction, the numeric one, and whether they agree."""
        analytic = float((self.gradients[index] * direction).sum())
        # A smaller step where the function bends much between the ends.
        for step in STEPS:
            numeric, noise = self.along(index, direction, step)
            error, allowed = abs(analytic - numeric), GRADIENT_RELATIVE * abs(numeric)
            if error <= allowed + noise:
                lost = error > allowed and self._denied(index, direction, analytic)
                return analytic, numeric, not lost
        return analytic, numeric, False

    def _denied(self, index: int, direction: Array, analytic: float) -> bool:
        """Whether a slope that is lost beside the objective's rounding is steady, and another."""
        slopes = np.array([self.along(index, direction, step)[0] for step in _STEADY])
        apart = np.abs(analytic - slopes) > _STEADY_RELATIVE * np.abs(slopes)
        steady = np.ptp(slopes) <= _SMOOTH * np.abs(slopes).min()
        return bool(slopes.any() and steady and apart.all())

    def is_smooth(self, index: int, direction: Array) -> bool:
        """Whether the steps tell one slope: across a jump it would grow as they shrink."""
        (one, _), (other, noise) = (self.along(index, direction, step) for step in STEPS)
        return abs(one - other) <= noise + _SMOOTH * abs(other)

    def problem(self, index: int, analytic: float, numeric: float) -> Violation:
        """What is wrong, at the element where it is most wrong if that can be found in time."""
        name = self.bench.case.arguments[index]
        hint = "derive the gradient anew; backward multiplies by out_grad and sums over all paths"
        gradient = self.gradients[index]
        problem = f"backward's gradient of {name} is not the derivative"
        if gradient.size <= _SEARCHED:
            slopes = np.zeros(gradient.shape)
            for place in np.ndindex(*gradient.shape):
                unit = np.zeros(gradient.shape)
                unit[place] = 1
                slopes[place] = self.along(index, unit)[0]
            error = np.where(np.isfinite(gradient), np.abs(gradient - slopes), np.inf)
            worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), gradient.shape))
            return Violation(problem, f"{slopes[worst]:.6g}", number(gradient, worst), hint, worst)
        return Violation(
            f"{problem} along a random direction", f"{numeric:.6g}", f"{analytic:.6g}", hint
        )

    def _factor(self) -> float:
        """What the gradient is of the loss's derivative, along the first argument's gradient."""
        index = self.bench.case.asked[0]
        direction = self.gradients[index]
        length = float((direction * direction).sum())
        slope, noise = self.along(index, direction)
        return 1.0 if abs(slope) <= noise else length / slope
