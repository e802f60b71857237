"""Fusions: chains of operators that one operator computes in fewer passes over memory.

An operator's file says which chains it serves:

    @fusion("batch norm and rectifier", "BatchNorm", "Activation")
    def rectified(batch_norm, activation):
        if activation.parameters.act_type != "relu":
            return None
        return create("_batch_norm_limited", ...)

Every operator of a chain reads the first output of the one before, which nobody else reads. The
operator that takes their place has

- as arguments those of the first operator, then those that the others read besides, in their order,
- as auxiliary states those of the first,
- as outputs the last one's first, then what the first has beside its first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mxrun.base.registry import Registry
from mxrun.operator.register import AnyProperty

# Of the chain's properties; None where these parameters cannot be served.
Fuse = Callable[..., AnyProperty | None]


@dataclass(frozen=True)
class Fusion:
    """A chain of operators, by their registered names, and what takes its place.

    inference: whether that has no gradient, so that it takes a chain's place in inference alone.
    """

    operators: tuple[str, ...]
    fuse: Fuse
    inference: bool


FUSIONS: Registry[Fusion] = Registry("fusion")


def fusion(name: str, *operators: str, inference: bool = False) -> Callable[[Fuse], Fuse]:
    """Decorator: the function makes one property of those of a chain of `operators`."""

    def add(fuse: Fuse) -> Fuse:
        FUSIONS.add(name, Fusion(operators, fuse, inference))
        return fuse

    return add
