"""Choose between the kernels that one implementation has for a step.

A kernel is made of parts, and for a part there may be several pieces of code (`Choices`). The
preferred kernel takes the first of each. A choice goes from part to part: the candidates differ in
one, and the fastest is taken before the next is looked at.
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

# A candidate must be faster than the preferred one by more than times of the same code differ.
_FASTER = 0.97

Prepare = Callable[[Choices], Kernel | None]


class Chooser(Protocol):
    """Times candidates."""

    def __call__(self, question: str, candidates: Mapping[str, Kernels]) -> Mapping[str, Candidate]:
        """What the candidates take, by their names; `question` is all else that it depends on.

        The first one is the preferred. A candidate may be left out that is not worth a time.
        """


def fastest(
    prepare: Prepare,
    surroundings: Callable[[Kernel], Iterable[Kernel]],
    question: str,
    chooser: Chooser,
) -> Kernel | None:
    """The fastest kernel, with what all candidates took; None where there is no kernel.

    surroundings: the reorders that a kernel asks for.
    """
    choices = Choices()
    preferred = prepare(choices)
    offered = choices.offered()
    if preferred is None or not offered:
        return preferred
    taken: dict[str, str] = {}
    timed: dict[str, Candidate] = {}

    def kernels(wanted: Mapping[str, str]) -> Sequence[Kernel]:
        kernel = _prepared(prepare, wanted)
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
    """The fastest of the candidates for a part, by its name, and what was found of each.

    The first one unless another is clearly faster.
    """
    first = next(iter(candidates))
    found = chooser(f"{question}\npart: {part}", candidates) if len(candidates) > 1 else {}
    best = min(found, key=lambda name: found[name].seconds, default=first)
    faster = best != first and found[best].seconds < _FASTER * found[first].seconds
    return best if faster else first, tuple(found.values())


def named(prepare: Prepare, name: str) -> Kernel | None:
    """The kernel whose implementation has this name; the preferred one where there is none."""
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
    """What is computed, in words: equal words mean equal work."""
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
    lines.append(f"requests: {', '.join(wish.name for wish in request.requests)}")
    return "\n".join([*lines, f"threads: {request.threads}"])


def _prepared(prepare: Prepare, wanted: Mapping[str, str]) -> Kernel:
    kernel = prepare(Choices(wanted))
    assert kernel is not None, "code that was offered is refused"
    return kernel
