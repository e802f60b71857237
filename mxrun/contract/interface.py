"""Checks of an operator's declarations: names, parameters, documentation, hints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mxrun.base import flags
from mxrun.base.params import from_strings
from mxrun.contract import call
from mxrun.contract.case import SINGLE, CaseRunner
from mxrun.contract.problem import Violation, attempting, enumerated
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind
from mxrun.operator.register import AnyProperty


def documentation(runners: Sequence[CaseRunner]) -> Iterator[Violation]:
    """Check that the operator and each of its parameters are documented."""
    prop = runners[0].prop
    kind = type(prop)
    if flags.docstrings() and not (kind.__doc__ or "").strip():
        hint = "begin the class with a docstring: the formula, shapes, what backward reads"
        yield Violation(f"the property {kind.__name__} has no docstring", hint=hint)
    if prop.nonstandard_gradient and not prop.nonstandard_gradient.endswith("."):
        problem = "nonstandard_gradient is not a sentence"
        yield Violation(
            problem, hint="describe the gradient that backward computes instead of the derivative"
        )
    for name, field in prop.parameter_type.model_fields.items():
        if not (field.description or "").endswith("."):
            hint = f'{name}: ... = Field(..., description="A sentence.")'
            yield Violation(f"the parameter {name} is not documented by a sentence", hint=hint)
        if field.is_required() and not field.examples:
            hint = f"{name}: ... = Field(..., examples=[value]), under which it is shown"
            yield Violation(f"the required parameter {name} has no example", hint=hint)


def names(runner: CaseRunner) -> Iterator[Violation]:
    """Check that arguments, outputs and states have unique names, and that references are valid."""
    prop, case = runner.prop, runner.case
    states = prop.list_auxiliary_states()
    for methods, group in (
        ("list_arguments and list_auxiliary_states", (*case.arguments, *states)),
        ("list_outputs", case.outputs),
    ):
        twice = sorted({name for name in group if group.count(name) > 1})
        if twice or not group:
            got = f"{enumerated(twice)} twice" if twice else "none"
            yield Violation(f"{methods}: every tensor needs a name of its own", "names", got)
    visible, loss = prop.num_visible_outputs, prop.loss_output
    if not 1 <= visible <= len(case.outputs):
        expected = f"1 to {len(case.outputs)}, as many as list_outputs at most"
        yield Violation("num_visible_outputs does not fit", expected, str(visible))
    if loss is not None and not 0 <= loss < len(case.outputs):
        expected = f"the index of one of {list(case.outputs)}"
        yield Violation("loss_output is not the index of an output", expected, str(loss))
    kinds = prop.list_gradients()
    if len(kinds) != len(case.arguments):
        problem = "list_gradients returns another number of kinds than there are arguments"
        yield Violation(problem, str(len(case.arguments)), str(len(kinds)))
    for name, kind in zip(case.arguments, kinds, strict=False):
        if name in prop.label_arguments and kind is GradientKind.COMPUTES:
            hint = "labels have a gradient of zero"
            yield Violation(f"the label {name} has a computed gradient", hint=hint)
    yield from _states(runner)
    yield from _view(runner)


def _states(runner: CaseRunner) -> Iterator[Violation]:
    """Check that state updates and overwritten inputs pair tensors of the same shape."""
    prop, case = runner.prop, runner.case
    states = prop.list_auxiliary_states()
    shapes = [array.shape for array in case.inputs[SINGLE]]
    outputs = dict(zip(case.outputs, case.output_shapes, strict=True))
    for update in prop.list_state_updates():
        if update.state not in states or update.output not in outputs:
            got = f"{update.state} from {update.output}"
            expected = f"a state of {list(states)} and an output of {list(outputs)}"
            yield Violation("list_state_updates names what does not exist", expected, got)
            continue
        state = shapes[len(case.arguments) + states.index(update.state)]
        if state != outputs[update.output]:
            problem = f"the state {update.state} has another shape than the output it averages"
            yield Violation(problem, str(list(outputs[update.output])), str(list(state)))
    tensors = {**dict(zip(case.arguments, shapes, strict=False)), **outputs}
    for carried in prop.list_carried_states():
        if carried.state not in states or carried.value not in tensors:
            got = f"{carried.state} from {carried.value}"
            expected = f"a state of {list(states)} and a tensor of {list(tensors)}"
            yield Violation("list_carried_states names what does not exist", expected, got)
        elif shapes[len(case.arguments) + states.index(carried.state)] != tensors[carried.value]:
            problem = f"the state {carried.state} has another shape than {carried.value}"
            yield Violation(problem, str(list(tensors[carried.value])))
    for source, target in prop.list_mutated_inputs().items():
        places = (source < len(shapes), target < len(case.outputs))
        if not all(places) or shapes[source] != case.output_shapes[target]:
            problem = "list_mutated_inputs pairs an input with an output of another shape"
            yield Violation(problem, "one shape", f"input {source} and output {target}")


def _view(runner: CaseRunner) -> Iterator[Violation]:
    """Check that a view's output has the bytes of its input."""
    if not runner.prop.is_view:
        return
    output = runner.accepted(NUMPY).outputs[0]
    if output.tobytes() != runner.case.inputs[SINGLE][0].tobytes():
        hint = "a view has another shape, and the same elements in the same order"
        yield Violation("is_view is set, but the output is not the bytes of the input", hint=hint)


def parameters(runner: CaseRunner) -> Iterator[Violation]:
    """Check that parameters survive a round trip through strings, the form in saved models."""
    given = runner.prop.parameters
    strings = given.to_strings()
    again, problems = from_strings(type(given), strings)
    if again != given:
        text = ", ".join(f"{name}={value!r}" for name, value in strings.items())
        got = "; ".join(problem.problem for problem in problems) or str(again)
        hint = "use int, float, bool, str, Literal and tuples of them"
        yield Violation(
            f"its parameters do not survive a round trip through ({text})",
            str(given),
            got,
            hint=hint,
        )


def hints(runner: CaseRunner) -> Iterator[Violation]:
    """Check that in-place hints and backward dependencies name existing tensors."""
    prop, case = runner.prop, runner.case
    in_data, out_data = case.arguments, case.outputs
    out_grad = [f"gradient of {name}" for name in out_data]
    in_grad = [f"gradient of {name}" for name in in_data]
    all_inputs = [*in_data, *prop.list_auxiliary_states()]
    with attempting("forward_inplace_option"):
        pairs = prop.forward_inplace_option(all_inputs, out_data)
    yield from _pairs("forward_inplace_option", pairs, all_inputs, out_data)
    if not case.differentiated:
        return
    readable = [*out_grad, *in_data, *out_data]
    with attempting("declare_backward_dependency"):
        reads = prop.declare_backward_dependency(out_grad, in_data, out_data)
    strange = [name for name in reads if name not in readable]
    if strange or len(set(reads)) != len(reads):
        problem = "declare_backward_dependency names a tensor twice, or one that does not exist"
        yield Violation(problem, f"some of {readable}", str(reads))
    with attempting("backward_inplace_option"):
        pairs = prop.backward_inplace_option(out_grad, in_data, out_data, in_grad)
    yield from _pairs("backward_inplace_option", pairs, reads, in_grad)


def _pairs(
    method: str,
    pairs: Sequence[tuple[str, str]],
    sources: Sequence[str],
    targets: Sequence[str],
) -> Iterator[Violation]:
    for source, target in pairs:
        if source not in sources or target not in targets:
            yield Violation(
                f"{method} pairs tensors that cannot share memory",
                f"one of {list(sources)} and one of {list(targets)}",
                f"{source} and {target}",
                hint="the call must read the first and write the second",
            )


def costs(runner: CaseRunner) -> Iterator[Violation]:
    """Check that FLOPs and resource sizes are valid numbers."""
    prop, case = runner.prop, runner.case
    specs = [call.spec_of(array) for array in case.inputs[SINGLE][: len(case.arguments)]]
    with attempting("flops"):
        flops: Any = prop.flops(case.input_shapes, case.output_shapes)
    if not isinstance(flops, int) or flops < 0:
        yield Violation("flops is not a valid count", "an integer, 0 or more", repr(flops))
    for method in ("forward_resource", "backward_resource"):
        with attempting(method):
            requests = getattr(prop, method)(specs)
        for request in requests:
            if request.nbytes < 0:
                yield Violation(
                    f"{method} requests a negative number of bytes", "bytes", str(request.nbytes)
                )


def describe(prop: AnyProperty) -> str:
    """Return the given parameters in the form used in reports."""
    given = prop.parameters.to_strings()
    return ", ".join(f"{name}={value}" for name, value in given.items())
