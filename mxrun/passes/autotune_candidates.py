"""Autotuning of a step: choice between kernel variants of one implementation by timing.

A kernel consists of parts, and a part may have several variants of code (`Choices`). The preferred
kernel uses the first variant of each. Parts are tuned one after the other: the candidates differ in
one part, and its fastest variant is fixed before the next part is tuned.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from mxrun.base.tensor import TensorSpec
from mxrun.operator.choices import Choices
from mxrun.operator.kernel import BackwardRequest, Candidate, ForwardRequest, Kernel, Kernels
from mxrun.operator.register import AnyProperty

# Ratio to the preferred candidate's time below which another is chosen. Repeated timings of the
# same code differ by less.
_FASTER = 0.97

Prepare = Callable[[Choices], Kernel | None]


class Chooser(Protocol):
    """Interface of a callable that times candidates."""

    def __call__(self, question: str, candidates: Mapping[str, Kernels]) -> Mapping[str, Candidate]:
        """Return the measured times of the candidates by name.

        question: description of everything else that the times depend on. candidates: the preferred
        one first; those not worth timing may be left out of the result.
        """


def fastest(
    prepare: Prepare,
    surroundings: Callable[[Kernel], Iterable[Kernel]],
    question: str,
    chooser: Chooser,
) -> Kernel | None:
    """Return the fastest kernel, with the times of all candidates, or None if there is no kernel.

    surroundings: yields the reorders that a kernel requires.
    """
    choices = Choices()
    preferred = prepare(choices)
    offered = choices.offered()
    if preferred is None or not offered:
        return preferred
    taken: dict[str, str] = {}
    timed: dict[str, Candidate] = {}

    def kernels(selection: Mapping[str, str]) -> Sequence[Kernel]:
        kernel = _prepared(prepare, selection)
        return (kernel, *surroundings(kernel))

    for part, names in offered.items():
        candidates = {name: partial(kernels, {**taken, part: name}) for name in names}
        taken[part], found = decide(part, candidates, question, chooser)
        for candidate in found:
            timed.setdefault(candidate.implementation, candidate)
    return replace(_prepared(prepare, taken), candidates=tuple(timed.values()))


def decide(
    part: str, candidates: Mapping[str, Kernels], question: str, chooser: Chooser
) -> tuple[str, tuple[Candidate, ...]]:
    """Return the name of the fastest candidate for a part, and the times of all candidates.

    The first candidate is returned unless another is clearly faster.
    """
    first = next(iter(candidates))
    found = chooser(f"{question}\npart: {part}", candidates) if len(candidates) > 1 else {}
    best = min(found, key=lambda name: found[name].seconds, default=first)
    faster = best != first and found[best].seconds < _FASTER * found[first].seconds
    return best if faster else first, tuple(found.values())


def named(prepare: Prepare, name: str) -> Kernel | None:
    """Return the kernel whose implementation has this name, or else the preferred one."""
    choices = Choices()
    preferred = prepare(choices)
    if preferred is None or preferred.implementation == name:
        return preferred
    offered = choices.offered()
    for names in itertools.product(*offered.values()):
        kernel = prepare(Choices(dict(zip(offered, names, strict=True))))
        if kernel is not None and kernel.implementation == name:
            return kernel
    return preferred


def question_of(prop: AnyProperty, request: ForwardRequest | BackwardRequest) -> str:
    """Describe a computation in text that is equal for equal work."""
    lines = [f"operator: {prop.type_string}", f"parameters: {prop.parameters!r}"]
    groups: dict[str, Sequence[TensorSpec | None]]
    if isinstance(request, ForwardRequest):
        groups = {"inputs": request.inputs, "outputs": request.outputs}
        fixed = ", ".join(map(str, sorted(request.fixed)))
        lines.append(f"phase: {'training' if request.is_train else 'inference'}, fixed: {fixed}")
    else:
        groups = {
            "out_grad": request.out_grad,
            "in_data": request.in_data,
            "out_data": request.out_data,
            "in_grad": request.in_grad,
        }
        lines.append(f"phase: backward of {request.forward.implementation}")
    for name, specs in groups.items():
        lines.append(f"{name}: {', '.join(map(str, specs))}")
    lines.append(f"requests: {', '.join(constraints.name for constraints in request.requests)}")
    return "\n".join([*lines, f"threads: {request.device.threads}"])


def _prepared(prepare: Prepare, selection: Mapping[str, str]) -> Kernel:
    kernel = prepare(Choices(selection))
    assert kernel is not None, "code that was offered is refused"
    return kernel
