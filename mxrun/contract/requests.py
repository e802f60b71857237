"""Checks of write requests: every combination for all outputs, and every in-place hint."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from mxrun.contract import call
from mxrun.contract.case import SINGLE, CaseRunner
from mxrun.contract.memory import Array
from mxrun.contract.problem import Violation, differing, first_difference
from mxrun.operator.kernel import OpReqType

# Initial content of an output whose request is null or add.
SENTINEL = 3.0
# float32: another combination of requests may select another kernel with another summation order.
RELATIVE, ABSOLUTE = 1e-5, 1e-5
# Number of outputs up to which all combinations are tried: 3^3 calls.
_ALL_MIXES = 3

NULL, WRITE, INPLACE, ADD = OpReqType
Mix = tuple[OpReqType, ...]


def forward_requests(runner: CaseRunner) -> Iterator[Violation]:
    """Check outputs under every combination of null, write and add."""
    names, states = runner.case.outputs, call.overwritten_states(runner.prop)
    choices = [(WRITE,) if i in states else (NULL, WRITE, ADD) for i in range(len(names))]
    for variant in runner.variants:
        plain = runner.accepted(variant.implementation, variant.dtype)
        for mix in mixes(choices):
            before = _before(runner.case.blank_outputs(variant.dtype), mix)
            run = runner.run(variant.implementation, before, mix, dtype=variant.dtype)
            if run is not None:
                exact = () if NULL in mix else plain.kernel.adding
                got, written = run.outputs, plain.outputs
                yield from _each(f"{variant} forward", names, mix, got, written, before, exact)


def backward_requests(runner: CaseRunner) -> Iterator[Violation]:
    """Check input gradients under every combination of null, write and add."""
    case = runner.case
    names = [f"gradient of {name}" for name in case.arguments]
    choices = [
        (NULL, WRITE, ADD) if i in case.differentiated else (NULL,) for i in range(len(names))
    ]
    for variant in runner.variants if case.differentiated else ():
        plain = runner.backward(variant.implementation, variant.dtype)
        for mix in mixes(choices):
            if all(request is NULL for request in mix):
                continue
            before = _before(case.blank_gradients(variant.dtype), mix)
            run = runner.run_backward(variant.implementation, before, mix, dtype=variant.dtype)
            exact = () if NULL in (mix[i] for i in case.differentiated) else plain.kernel.adding
            got, written = run.gradients, plain.gradients
            yield from _each(f"{variant} backward", names, mix, got, written, before, exact)


def mixes(choices: Sequence[Sequence[OpReqType]]) -> Iterator[Mix]:
    """Yield every combination of requests for a few outputs.

    For more outputs, yield each request on all of them, and each request on a single one.
    """
    free = [index for index, choice in enumerate(choices) if len(choice) > 1]
    if len(free) <= _ALL_MIXES:
        yield from itertools.product(*choices)
        return
    for rest, alone in itertools.product((NULL, WRITE, ADD), repeat=2):
        places = free if alone is not rest else free[:1]
        for place in places:
            mix = [rest if index in free else NULL for index in range(len(choices))]
            mix[place] = alone
            yield tuple(mix)


def forward_in_place(runner: CaseRunner) -> Iterator[Violation]:
    """Check outputs in the memory of inputs, for each hint alone and for several at once."""
    prop, case = runner.prop, runner.case
    inputs, outputs = len(case.inputs[SINGLE]), len(case.outputs)
    hints = prop.forward_inplace_option(range(inputs), range(outputs))
    mutated = [(source, target) for source, target in prop.list_mutated_inputs().items()]
    for variant in runner.variants:
        written = runner.accepted(variant.implementation, variant.dtype).outputs
        for places in _choices([*hints, *mutated]):
            requests = [INPLACE if i in places else WRITE for i in range(outputs)]
            run = runner.run(variant.implementation, None, requests, places, dtype=variant.dtype)
            if run is None:
                continue
            names = [*case.arguments, *prop.list_auxiliary_states()]
            whose = f"{variant} forward with {_described(places, case.outputs, names)}"
            hint = "drop the pair from forward_inplace_option, or read each element before writing"
            yield from _bits(whose, case.outputs, run.outputs, written, hint)


def backward_in_place(runner: CaseRunner) -> Iterator[Violation]:
    """Check input gradients computed in place, for each hint alone and for several at once."""
    prop, case = runner.prop, runner.case
    outputs, arguments = len(case.outputs), len(case.arguments)
    positions = range(2 * outputs + arguments)
    hints = [
        (source, target)
        for source, target in prop.backward_inplace_option(
            positions[:outputs],
            positions[outputs : outputs + arguments],
            positions[outputs + arguments :],
            range(arguments),
        )
        if target in case.differentiated
    ]
    names = [f"gradient of {name}" for name in case.arguments]
    for variant in runner.variants if hints else ():
        written = runner.backward(variant.implementation, variant.dtype).gradients
        for places in _choices(hints):
            requests = call.default_requests(prop)
            for target in places:
                requests[target] = INPLACE
            run = runner.run_backward(
                variant.implementation, None, requests, places, dtype=variant.dtype
            )
            where = _described(places, names, call.names_of(prop))
            hint = "drop the pair from backward_inplace_option, or read each element before writing"
            indices = case.differentiated
            yield from _bits(
                f"{variant} backward with {where}",
                [names[i] for i in indices],
                [run.gradients[i] for i in indices],
                [written[i] for i in indices],
                hint,
            )


def _before(blank: Sequence[Array], mix: Mix) -> list[Array]:
    """Return initial contents: NaN for a write request, a sentinel for null and add."""
    return [
        array if request is WRITE else np.full_like(array, SENTINEL)
        for array, request in zip(blank, mix, strict=True)
    ]


def _each(
    whose: str,
    names: Sequence[str],
    mix: Mix,
    got: Sequence[Array],
    written: Sequence[Array],
    before: Sequence[Array],
    exact: Collection[int],
) -> Iterator[Violation]:
    """Compare each output with its request.

    exact: outputs for which the kernel guarantees the bits of a separate addition.
    """
    combination = ", ".join(request.name.lower() for request in mix)
    results = zip(names, mix, got, written, before, strict=True)
    for index, (name, request, result, value, old) in enumerate(results):
        which = f"{name} under the requests ({combination})" if len(mix) > 1 else name
        if request is NULL:
            problem = f"{whose} writes {which}, whose request is null"
            hint = "store results with call.store(NAME=value)"
            yield from differing(problem, result, old, hint)
        elif request is WRITE:
            problem = f"{whose} writes another {which} than if every output is written"
            hint = "an output must not depend on the requests of the others"
            yield from differing(problem, result, value, hint, RELATIVE, ABSOLUTE)
        else:
            yield from _added(whose, which, result, value, old, index in exact)


def _added(
    whose: str, which: str, got: Array, value: Array, old: Array, exact: bool
) -> Iterator[Violation]:
    total = (value + old).astype(got.dtype)
    overwritten = first_difference(got, value, RELATIVE, ABSOLUTE) is None
    problem = f"{whose} ignores the add request of {which}"
    if not overwritten:
        problem = f"{whose} adds something else to {which} than it writes"
    hint = f"{SENTINEL:g} was there: store results with call.store(NAME=value)"
    if exact:
        hint = f"{SENTINEL:g} was there: leave the output out of `adding`, or round before the sum"
    tolerances = () if exact else (RELATIVE, ABSOLUTE)
    yield from differing(problem, got, total, hint, *tolerances)


def _choices(hints: Sequence[tuple[int, int]]) -> Iterator[Mapping[int, int]]:
    """Yield {target: source} for each hint alone, then for as many as can share memory at once."""
    pairs = list(dict.fromkeys(hints))
    for source, target in pairs:
        yield {target: source}
    together: dict[int, int] = {}
    for source, target in pairs:
        if target not in together and source not in together.values():
            together[target] = source
    if len(together) > 1:
        yield together


def _described(places: Mapping[int, int], targets: Sequence[str], sources: Sequence[str]) -> str:
    return ", ".join(f"{targets[target]} over {sources[i]}" for target, i in places.items())


def _bits(
    whose: str, names: Sequence[str], got: Sequence[Array], want: Sequence[Array], hint: str
) -> Iterator[Violation]:
    for name, one, other in zip(names, got, want, strict=True):
        yield from differing(f"{whose} gives another {name} than out of place", one, other, hint)
