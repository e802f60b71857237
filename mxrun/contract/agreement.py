"""Checks that implementations, element types and the numeric derivative agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mxrun.base.device import CPU
from mxrun.contract import call
from mxrun.contract.call import Conditions
from mxrun.contract.case import DOUBLE, SINGLE, CaseRunner
from mxrun.contract.memory import Array
from mxrun.contract.problem import Violation, differing, number
from mxrun.contract.reading import ABSOLUTE, RELATIVE
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind
from mxrun.operator.register import Implementation

# Central differences in float64: step sizes, and tolerances of the derivative.
STEPS = (1e-6, 1e-7)
GRADIENT_RELATIVE, GRADIENT_ABSOLUTE = 1e-5, 1e-8
# If the slopes at all these steps agree, they are not rounding noise, however small they are. The
# gradient must then match them within 1 %.
_STEADY, _STEADY_RELATIVE = (1e-5, *STEPS), 1e-2
# Slopes at the two steps differ by less than this, unless the function jumps in between.
_SMOOTH = 1e-3
# Number of random directions to try, each over half as many elements, until one crosses no jump.
_HALVINGS = 8
# Largest tensor, in elements, that is searched for the element with the wrong derivative.
_SEARCHED = 2048


def implementations(runner: CaseRunner) -> Iterator[Violation]:
    """Compare every implementation with the NumPy body on the CPU.

    Each runs on every kind of device that it has kernels for, on the CPU on 1 and 2
    threads.
    """
    for implementation in runner.implementations:
        for kind in call.kinds_of(implementation):
            if kind != CPU:
                conditions, where = Conditions(kind=kind), f"on {kind}"
                yield from compared(runner, implementation, conditions, where)
            elif implementation is not NUMPY:
                for threads in (1, 2):
                    conditions, where = Conditions(threads, kind), f"at threads={threads}"
                    yield from compared(runner, implementation, conditions, where)


def compared(
    runner: CaseRunner,
    implementation: Implementation,
    conditions: Conditions,
    where: str,
    repeated: bool = False,
) -> Iterator[Violation]:
    """Compare an implementation with the NumPy body on the CPU, unless it declines the case.

    where: in messages. repeated: whether a second call has to give the same bits.
    """
    got = _results(runner, implementation, conditions)
    if got is None:
        return
    case, reference = runner.case, runner.accepted(NUMPY)
    want = list(reference.outputs)
    if case.differentiated:
        body = runner.backward(NUMPY)
        want += [body.gradients[i] for i in case.differentiated]
    names = [*case.outputs, *(f"gradient of {case.arguments[i]}" for i in case.differentiated)]
    whose = f"{implementation.name} {where}"
    for name, one, other in zip(names, got, want, strict=True):
        hint = (
            "the NumPy body is the reference: change the implementation, or let it "
            "decline unsupported cases"
        )
        problem = f"{whose} gives another {name} than numpy"
        yield from differing(problem, one, other, hint, RELATIVE, ABSOLUTE)
    if repeated:
        again = _results(runner, implementation, conditions)
        assert again is not None
        for name, one, other in zip(names, again, got, strict=True):
            problem = f"{whose} gives another {name} in a second call"
            yield from differing(problem, one, other, "results may depend on nothing else")


def _results(
    runner: CaseRunner, implementation: Implementation, conditions: Conditions
) -> list[Array] | None:
    """Return outputs and gradients; both backward calls read the outputs of the NumPy body."""
    run = runner.run(implementation, conditions=conditions)
    if run is None:
        return None
    case, results = runner.case, list(run.outputs)
    if case.differentiated:
        data = runner.backward_data(runner.accepted(NUMPY), SINGLE)
        blank = case.blank_gradients(SINGLE)
        mine = call.backward(implementation, runner.prop, data, blank, run, conditions=conditions)
        results += [mine.gradients[i] for i in case.differentiated]
    return results


def element_types(runner: CaseRunner) -> Iterator[Violation]:
    """Compare the NumPy body, forward and backward, in float32 and float64, up to rounding.

    A loss is left out: for probability 0 it is -log of the smallest number of its type.
    """
    case = runner.case
    single, double = (runner.accepted(NUMPY, dtype) for dtype in (SINGLE, DOUBLE))
    pairs = [
        (name, single.outputs[index], double.outputs[index])
        for index, name in enumerate(case.outputs)
        if index != runner.prop.loss_output
    ]
    if case.differentiated:
        one, other = (runner.backward(NUMPY, dtype).gradients for dtype in (SINGLE, DOUBLE))
        pairs += [
            (f"gradient of {case.arguments[i]}", one[i], other[i]) for i in case.differentiated
        ]
    for name, narrow, wide in pairs:
        problem = f"numpy gives another {name} in float32 than in float64"
        hint = "compute in the type of the inputs"
        yield from differing(problem, narrow, wide.astype(narrow.dtype), hint, RELATIVE, ABSOLUTE)


def gradients(runner: CaseRunner) -> Iterator[Violation]:
    """Compare backward in float64 with the derivative along a random direction of each argument.

    The objective is <out_grad, outputs>, over the visible outputs whose gradient backward declares
    to read. If there is a loss, the objective is the loss, up to one factor and with an out_grad of
    ones. Left out are gradients that deliberately are not the derivative (`nonstandard_gradient`),
    and outputs with integer or lower-precision types, which central differences cannot resolve.
    """
    case = runner.case
    subjects = [i for i in _with_gradient(runner) if case.inputs[DOUBLE][i].dtype == DOUBLE]
    deliberate = runner.prop.nonstandard_gradient and runner.prop.loss_output is None
    if not case.differentiable or deliberate or not subjects:
        return
    if case.undefined:
        yield Violation(
            "no tried input values give finite outputs, so there is no derivative to compare",
            f"finite outputs for inputs that are {case.undefined}",
            "NaN or infinity",
            hint="if it is defined on another range, let a parameter set that range, and give an "
            "example of it for which some of these values are valid",
        )
        return
    slope = _Slope(runner)
    if any(case.output_types(DOUBLE)[i] != DOUBLE for i in slope.paths):
        return
    for index in subjects:
        random = np.random.default_rng(index)
        for halving in range(_HALVINGS):
            direction = random.standard_normal(case.input_shapes[index])
            direction *= random.random(direction.shape) < 0.5**halving
            analytic, numeric, agree = slope.compared(index, direction)
            # If the function jumps along the direction, one over fewer elements may cross no jump.
            smooth = agree or slope.is_smooth(index, direction)
            if smooth:
                break
        # Step functions, declared with a zero gradient, may jump along every direction.
        if not agree and (smooth or index in case.differentiated):
            yield slope.problem(index, analytic, numeric)


def _with_gradient(runner: CaseRunner) -> list[int]:
    """Return the arguments with a computed or zero gradient, except labels.

    For losses only those with a computed gradient are returned.
    """
    case = runner.case
    if not case.is_train or runner.prop.loss_output is not None:
        return list(case.differentiated)
    return [
        index
        for index, kind in enumerate(runner.prop.list_gradients())
        if kind is not GradientKind.NONE
        and case.arguments[index] not in runner.prop.label_arguments
    ]


class _Slope:
    """Numeric derivative of a case's objective, and the gradient that backward computes."""

    def __init__(self, runner: CaseRunner) -> None:
        self.runner = runner
        self.inputs = list(runner.case.inputs[DOUBLE])
        self.loss = runner.prop.loss_output
        self.out_grad = runner.out_grad(DOUBLE)
        if runner.case.objective is None and self.loss is not None:
            self.out_grad = [np.ones_like(array) for array in self.out_grad]
        # Arguments without a computed gradient have a zero one.
        self.gradients = runner.case.blank_gradients(DOUBLE, 0.0)
        if runner.case.differentiated:
            run = runner.accepted(NUMPY, DOUBLE)
            arguments = self.inputs[: len(runner.case.arguments)]
            data = call.BackwardData(self.out_grad, arguments, run.outputs)
            self.gradients = call.backward(NUMPY, runner.prop, data, self.gradients, run).gradients
        visible = range(runner.prop.num_visible_outputs)
        self.paths = [i for i in visible if i in call.declared(runner.prop)] or visible
        # A loss's gradient is scaled by its parameters, by one common factor.
        self.factor = 1.0
        if runner.case.objective is None and self.loss is not None:
            self.factor = self._factor()

    def objective(self, inputs: Sequence[Array]) -> float:
        """Return the scalar whose derivative backward computes."""
        case = self.runner.case
        run = self.runner.run(NUMPY, inputs=inputs, dtype=DOUBLE)
        assert run is not None
        if case.objective is not None:
            return case.objective(list(inputs), run.outputs, self.out_grad)
        if self.loss is not None:
            return float(run.outputs[self.loss].sum()) * self.factor
        return sum(float((self.out_grad[i] * run.outputs[i]).sum()) for i in self.paths)

    def along(self, index: int, direction: Array, step: float = STEPS[0]) -> tuple[float, float]:
        """Return the derivative along a direction of one argument, and its rounding uncertainty."""
        ends = []
        for sign in (1, -1):
            moved = list(self.inputs)
            moved[index] = self.inputs[index] + sign * step * direction
            ends.append(self.objective(moved))
        noise = GRADIENT_ABSOLUTE * (STEPS[0] / step) * max(1.0, *map(abs, ends))
        return (ends[0] - ends[1]) / (2 * step), noise

    def compared(self, index: int, direction: Array) -> tuple[float, float, bool]:
        """Return backward's derivative along a direction, the numeric one, and if they agree."""
        analytic = float((self.gradients[index] * direction).sum())
        # The second, smaller step serves functions of large curvature.
        for step in STEPS:
            numeric, noise = self.along(index, direction, step)
            error, allowed = abs(analytic - numeric), GRADIENT_RELATIVE * abs(numeric)
            if error <= allowed + noise:
                lost = error > allowed and self._denied(index, direction, analytic)
                return analytic, numeric, not lost
        return analytic, numeric, False

    def _denied(self, index: int, direction: Array, analytic: float) -> bool:
        """Return whether a slope within the rounding uncertainty contradicts backward.

        It does if it is the same at all steps of `_STEADY` and differs from backward's at each.
        """
        slopes = np.array([self.along(index, direction, step)[0] for step in _STEADY])
        apart = np.abs(analytic - slopes) > _STEADY_RELATIVE * np.abs(slopes)
        steady = np.ptp(slopes) <= _SMOOTH * np.abs(slopes).min()
        return bool(slopes.any() and steady and apart.all())

    def is_smooth(self, index: int, direction: Array) -> bool:
        """Return whether both steps give the same slope; at a jump it grows as steps shrink."""
        (one, _), (other, noise) = (self.along(index, direction, step) for step in STEPS)
        return abs(one - other) <= noise + _SMOOTH * abs(other)

    def problem(self, index: int, analytic: float, numeric: float) -> Violation:
        """Return the violation, at the element of largest error if the tensor is small."""
        name = self.runner.case.arguments[index]
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
            return Violation(
                problem, f"{slopes[worst]:.6g}", number(gradient, worst), hint=hint, index=worst
            )
        return Violation(
            f"{problem} along a random direction", f"{numeric:.6g}", f"{analytic:.6g}", hint=hint
        )

    def _factor(self) -> float:
        """Return the ratio of backward's gradient to the loss's derivative.

        It is measured along the gradient of the first argument.
        """
        index = self.runner.case.differentiated[0]
        direction = self.gradients[index]
        length = float((direction * direction).sum())
        slope, noise = self.along(index, direction)
        return 1.0 if abs(slope) <= noise else length / slope
