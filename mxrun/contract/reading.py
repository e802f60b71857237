"""Checks that a call depends on nothing but its declared tensors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mxrun.contract import call
from mxrun.contract.call import BackwardRun, Conditions, ForwardRun
from mxrun.contract.case import SINGLE, CaseRunner, Variant
from mxrun.contract.memory import Array
from mxrun.contract.problem import (
    Breach,
    Violation,
    differing,
    enumerated,
    first_difference,
    number,
)
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.operator import Operator
from mxrun.operator.property import ResourceKind
from mxrun.operator.register import AnyProperty, Implementation

THREADS = (1, 2, 3)
# float32: another kernel may use another summation order.
RELATIVE, ABSOLUTE = 1e-4, 2e-5


def undeclared_inputs(runner: CaseRunner) -> Iterator[Violation]:
    """Compare backward with undeclared tensors absent, and present but NaN."""
    case = runner.case
    for variant in runner.variants if case.differentiated else ():
        absent = runner.backward(variant.implementation, variant.dtype).gradients
        run = runner.run_backward(variant.implementation, poison=True, dtype=variant.dtype)
        poisoned = run.gradients
        for index in case.differentiated:
            yield from differing(
                f"{variant} backward reads a tensor that it does not declare: with "
                f"NaN in those it gives another gradient of {case.arguments[index]}",
                poisoned[index],
                absent[index],
                "name the tensor in declare_backward_dependency, or do not read it",
            )


def larger_tensors(runner: CaseRunner) -> Iterator[Violation]:
    """Check calls on slices of larger tensors, as far as the kernels declare support."""
    for variant in runner.variants:
        runs: list[ForwardRun | BackwardRun] = [
            runner.accepted(variant.implementation, variant.dtype)
        ]
        runs += (
            [runner.backward(variant.implementation, variant.dtype)]
            if runner.case.differentiated
            else []
        )
        for run in runs:
            kernel, trial = run.kernel, run.trial
            if not kernel.pitched_inputs and not kernel.pitched_outputs:
                continue
            apart = trial.with_pitched_memory()
            apart.run()
            for dense, lying, spec in zip(
                trial.outputs, apart.outputs, kernel.outputs, strict=True
            ):
                if spec is None or dense.memory is None or lying.memory is None:
                    continue
                yield from differing(
                    f"{trial.whose} computes another {dense.name} for slices of larger tensors",
                    lying.memory.elements(),
                    dense.memory.elements(),
                    "use the pitches of the Handles as row strides, or declare no tensor pitched",
                )


def unread_outputs(runner: CaseRunner) -> Iterator[Violation]:
    """Check that an absent output gradient is treated like zeros, for each visible output."""
    case, prop = runner.case, runner.prop
    # Backward is not called if all gradients it declares to read are absent.
    read = [i for i in range(prop.num_visible_outputs) if i in call.declared(prop)]
    unread = read if len(read) > 1 else []
    for variant in runner.variants if case.differentiated else ():
        run = runner.accepted(variant.implementation, variant.dtype)
        data = runner.backward_data(run, variant.dtype)
        blank = case.blank_gradients(variant.dtype)
        for output in unread:
            silent = list(data.out_grad)
            silent[output] = np.zeros_like(silent[output])
            zeros = replace(data, out_grad=silent)
            want = call.backward(variant.implementation, prop, zeros, blank, run).gradients
            whose = f"where nothing reads {case.outputs[output]}, {variant} backward"
            hint = (
                "the gradient of an unread output is absent: treat it as zero if "
                f"{case.outputs[output]!r} is not in call.output_gradients"
            )
            try:
                absent = call.backward(
                    variant.implementation, prop, data, blank, run, unread=(output,)
                )
            except Breach as breach:
                yield Violation(f"{whose} fails: {breach.problem.problem}", hint=hint)
                continue
            for index in case.differentiated:
                problem = f"{whose} gives another gradient of {case.arguments[index]} than of zeros"
                got = absent.gradients[index]
                yield from differing(problem, got, want[index], hint, RELATIVE, ABSOLUTE)


def repetition(runner: CaseRunner) -> Iterator[Violation]:
    """Check that results do not depend on memory content, nor on the number of threads."""
    case = runner.case
    for variant in runner.variants:
        first = runner.accepted(variant.implementation, variant.dtype)
        names = [*case.outputs, *(f"gradient of {case.arguments[i]}" for i in case.differentiated)]
        base = [*first.outputs, *_gradients(runner, variant, first, call.STANDARD)]
        numbers = THREADS if variant.implementation is not NUMPY else THREADS[:1]
        for threads in numbers:
            other = _all(runner, variant, Conditions(threads, garbage=0x42))
            # On one thread the other call is the cached one.
            again = [base if threads == 1 else _all(runner, variant, Conditions(threads)), other]
            whose = f"{variant} at threads={threads}"
            for name, one, other, known in zip(names, *again, base, strict=True):
                yield from differing(
                    f"{whose} gives {name} that depends on previous memory content, or differs "
                    "from call to call",
                    other,
                    one,
                    "write every element, keep nothing between calls, take random numbers from "
                    "call.random",
                )
                yield from differing(
                    f"{whose} gives another {name} than at threads=1",
                    one,
                    known,
                    "cut the work into tasks by shapes alone",
                )


def _all(runner: CaseRunner, variant: Variant, conditions: Conditions) -> list[Array]:
    """Return outputs and gradients under conditions that must not affect them."""
    fill = np.nan if conditions.garbage == call.GARBAGE else 48.0
    before = runner.case.blank_outputs(variant.dtype, fill)
    run = runner.run(variant.implementation, before, dtype=variant.dtype, conditions=conditions)
    assert run is not None
    return [*run.outputs, *_gradients(runner, variant, run, conditions, fill)]


def _gradients(
    runner: CaseRunner,
    variant: Variant,
    run: ForwardRun,
    conditions: Conditions,
    fill: float = np.nan,
) -> list[Array]:
    if not runner.case.differentiated:
        return []
    before = runner.case.blank_gradients(variant.dtype, fill)
    done = runner.run_backward(
        variant.implementation, before, dtype=variant.dtype, conditions=conditions, following=run
    )
    return [done.gradients[index] for index in runner.case.differentiated]


def shared_body(runner: CaseRunner) -> Iterator[Violation]:
    """Check that an Operator object shared by two networks gives each the right results."""
    body = runner.prop.create_operator()
    attributes = dict(getattr(body, "__dict__", {}))
    shared = _with_body(runner.prop, body)
    pair = (runner, runner.reversed_case)
    names = [
        *runner.case.outputs,
        *(f"gradient of {runner.case.arguments[i]}" for i in runner.case.differentiated),
    ]
    alone = [_shared(each, each.prop, None) for each in pair]
    runs = [
        call.forward(
            NUMPY,
            shared,
            each.case.inputs[SINGLE],
            each.case.blank_outputs(SINGLE),
            is_train=each.case.is_train,
        )
        for each in pair
    ]
    yield from _changed_attributes(body, attributes)
    for index in (1, 0, 1):
        got = _shared(pair[index], shared, runs[index])
        for name, one, other in zip(names, got, alone[index], strict=True):
            yield from differing(
                f"an Operator object shared by two networks mixes up their {name}",
                one,
                other,
                "an operator holds no state: weights are inputs, scratch is requested, other data "
                "is an auxiliary state",
            )


def _changed_attributes(body: Operator, before: Mapping[str, object]) -> Iterator[Violation]:
    """Yield a violation for attributes that a call has set on an Operator object."""
    now = getattr(body, "__dict__", {})
    changed = [name for name in now if name not in before or now[name] is not before[name]]
    if changed:
        yield Violation(
            f"a call leaves {enumerated(changed)} on its Operator object, outside the plan",
            hint="compute it again, or make it a hidden output that backward reads",
        )


def _shared(runner: CaseRunner, prop: AnyProperty, run: ForwardRun | None) -> list[Array]:
    """Return outputs and gradients of a case under another property."""
    case = runner.case
    run = run or call.forward(
        NUMPY, prop, case.inputs[SINGLE], case.blank_outputs(SINGLE), is_train=case.is_train
    )
    assert run is not None
    if not case.differentiated:
        return run.outputs
    data = runner.backward_data(run, SINGLE)
    done = call.backward(NUMPY, prop, data, case.blank_gradients(SINGLE), run)
    return [*run.outputs, *(done.gradients[index] for index in case.differentiated)]


def _with_body(prop: AnyProperty, body: Operator) -> AnyProperty:
    """Return the property with a single Operator object for all its kernels."""

    def create_operator(self: AnyProperty) -> Operator:
        return body

    kind = type(type(prop).__name__, (type(prop),), {"create_operator": create_operator})
    shared: AnyProperty = kind(prop.parameters)
    return shared


def determinism(runner: CaseRunner) -> Iterator[Violation]:
    """Check that two identical calls give the same bits.

    Yields at most one violation, because other results of a nondeterministic operator mean nothing.
    """
    case = runner.case
    for implementation in runner.implementations:
        before = {library: state() for library, state in _DRAWS.items()}
        names = [
            *case.outputs,
            *(f"the gradient of {case.arguments[i]}" for i in case.differentiated),
        ]
        first, second = _results(runner, implementation), _both(runner, implementation)
        drawn = [library for library, state in _DRAWS.items() if state() != before[library]]
        for name, one, other in zip(names, first, second, strict=True):
            index = first_difference(other, one)
            if index is None:
                continue
            reason = f": it draws from {enumerated(drawn)}" if drawn else ""
            yield Violation(
                f"{implementation.name} gives other numbers in a second call with the same inputs: "
                f"{name} differs{reason}",
                number(one, index),
                number(other, index),
                hint=f"{_REQUEST_RANDOM}; otherwise depend on the inputs only",
                index=index,
            )
            return


def _results(runner: CaseRunner, implementation: Implementation) -> list[Array]:
    """Return the outputs and gradients of the cached calls."""
    run = runner.accepted(implementation)
    if not runner.case.differentiated:
        return run.outputs
    gradients = runner.backward(implementation).gradients
    return [*run.outputs, *(gradients[index] for index in runner.case.differentiated)]


def _both(runner: CaseRunner, implementation: Implementation) -> list[Array]:
    """Return the outputs and gradients of one forward and one backward call."""
    run = runner.run(implementation)
    assert run is not None
    if not runner.case.differentiated:
        return run.outputs
    done = runner.run_backward(implementation, following=run)
    return [*run.outputs, *(done.gradients[index] for index in runner.case.differentiated)]


def random_numbers(runner: CaseRunner) -> Iterator[Violation]:
    """Check that other libraries' random generators are not used."""
    for implementation in runner.implementations:
        before = [state() for state in _DRAWS.values()]
        run = runner.run(implementation)
        if runner.case.differentiated:
            runner.run_backward(implementation, following=run)
        for (library, state), then in zip(_DRAWS.items(), before, strict=True):
            if state() != then:
                yield Violation(
                    f"{implementation.name} draws from {library}, which the run's seed does not "
                    "control",
                    hint=_REQUEST_RANDOM,
                )


def _numpy_state() -> tuple[object, ...]:
    """Return the state of NumPy's global generator."""
    name, key, *rest = np.random.get_state()
    return name, np.asarray(key).tobytes(), *rest


# States of generators that the run's seed does not control.
_DRAWS: Mapping[str, Callable[[], object]] = {
    "numpy.random": _numpy_state,
    "random": random.getstate,
}
_REQUEST_RANDOM = (
    "for random numbers return ResourceRequest(ResourceKind.RANDOM) from forward_resource and take "
    "call.random(i).bits(n)"
)


def draws_by_step(runners: Sequence[CaseRunner]) -> Iterator[Violation]:
    """Check that an operator which requests random numbers gives other results at another step."""
    asking = [
        runner
        for runner in runners
        if runner.case.is_train
        and any(
            request.kind is ResourceKind.RANDOM
            for request in call.resources(runner.prop, runner.case.inputs[SINGLE])
        )
    ]
    if not asking:
        return
    for runner in asking:
        later = runner.run(NUMPY, conditions=Conditions(step=call.RANDOM[1] + 1))
        assert later is not None
        now = runner.accepted(NUMPY)
        if any(
            first_difference(one, other) is not None
            for one, other in zip(now.outputs, later.outputs, strict=True)
        ):
            return
    yield Violation(
        "it requests random numbers, but its outputs are the same at every step",
        hint="draw from call.random(i), whose numbers depend on the step, or request none",
    )
