"""Several ways to compute one operator: implementations, element types and the derivative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mxrun.operator.contract import call
from mxrun.operator.contract.call import Conditions
from mxrun.operator.contract.case import DOUBLE, SINGLE, Bench
from mxrun.operator.contract.memory import Array
from mxrun.operator.contract.problem import Problem, differing, number
from mxrun.operator.contract.reading import ABSOLUTE, RELATIVE
from mxrun.operator.numpy_kernel import NUMPY

# Central differences in float64: the steps, and how near the derivative must be.
STEPS = (1e-6, 1e-7)
GRADIENT_RELATIVE, GRADIENT_ABSOLUTE = 1e-5, 1e-8
# Elements up to which the one with the wrong derivative is looked for.
_SEARCHED = 2048


def implementations(bench: Bench) -> Iterator[Problem]:
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


def element_types(bench: Bench) -> Iterator[Problem]:
    """The readable body in float32 gives what it gives in float64, but for rounding.

    A loss is left out: of what cannot be, it is -log of its type's smallest number.
    """
    case = bench.case
    single, double = (bench.accepted(NUMPY, dtype) for dtype in (SINGLE, DOUBLE))
    hint = "compute in the type of the inputs"
    for index, name in enumerate(case.outputs):
        if index == bench.prop.loss_output:
            continue
        one, other = single.outputs[index], double.outputs[index]
        problem = f"numpy gives another {name} in float32 than in float64"
        wide = other.astype(one.dtype)
        yield from differing(problem, one, wide, hint, RELATIVE, ABSOLUTE)


def gradients(bench: Bench) -> Iterator[Problem]:
    """Backward in float64 is the derivative along a random direction of each argument.

    Of <out_grad, outputs>, over the visible outputs whose gradient backward declares to read: no
    other is a path of the gradient. Where there is a loss, of that, but for one factor and under an
    out_grad of ones.
    """
    case = bench.case
    asked = [i for i in case.asked if case.inputs[DOUBLE][i].dtype == DOUBLE]
    if not case.differentiable or not asked:
        return
    slope = _Slope(bench)
    for index in asked:
        direction = np.random.default_rng(index).standard_normal(case.input_shapes[index])
        analytic = float((slope.gradients[index] * direction).sum())
        # A smaller step where the function bends much between the ends.
        for step in STEPS:
            numeric, noise = slope.along(index, direction, step)
            if abs(analytic - numeric) <= noise + GRADIENT_RELATIVE * abs(numeric):
                break
        else:
            yield slope.problem(index, analytic, numeric)


class _Slope:
    """The objective of a bench around its inputs, and what backward says of it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.inputs = list(bench.case.inputs[DOUBLE])
        self.loss = bench.prop.loss_output
        self.out_grad = bench.out_grad(DOUBLE)
        if bench.case.objective is None and self.loss is not None:
            self.out_grad = [np.ones_like(array) for array in self.out_grad]
        run = bench.accepted(NUMPY, DOUBLE)
        arguments = self.inputs[: len(bench.case.arguments)]
        data = call.BackwardData(self.out_grad, arguments, run.outputs)
        blank = bench.case.blank_gradients(DOUBLE)
        self.gradients = call.backward(NUMPY, bench.prop, data, blank, run).gradients
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

    def problem(self, index: int, analytic: float, numeric: float) -> Problem:
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
            return Problem(problem, f"{slopes[worst]:.6g}", number(gradient, worst), hint, worst)
        return Problem(
            f"{problem} along a random direction", f"{numeric:.6g}", f"{analytic:.6g}", hint
        )

    def _factor(self) -> float:
        """What the gradient is of the loss's derivative, along the first argument's gradient."""
        index = self.bench.case.asked[0]
        direction = self.gradients[index]
        length = float((direction * direction).sum())
        slope, noise = self.along(index, direction)
        return 1.0 if abs(slope) <= noise else length / slope
