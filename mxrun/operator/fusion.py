"""Fusions: chains of operators replaced by one operator that makes fewer passes over memory.

An operator's file registers the chains that it replaces:

    @fusion("batch norm and rectifier", "BatchNorm", "Activation")
    def rectified(batch_norm, activation):
        if activation.parameters.act_type != "relu":
            return None
        return create("_batch_norm_limited", ...)

Each operator of a chain reads the first output of its predecessor, and no other operator reads that
output. The fused operator has

- arguments: those of the first operator, then the remaining arguments of the others, in order,
- auxiliary states: those of the first operator,
- outputs: the first output of the last operator, then the further outputs of the first.

A fusion that keeps the value between two operators allows it one further reader, after the chain.
The fused operator's outputs are the first output of the last operator, that value, and the further
outputs of the last operator.
"""

from __future__ import annotations

from collections.abc import Callable

from mxrun.base.dataclass import dataclass
from mxrun.base.registry import Registry
from mxrun.operator.register import AnyProperty

# Called with the properties of the chain; returns None if their parameters are not supported.
FusionRule = Callable[..., AnyProperty | None]


@dataclass(frozen=True)
class Fusion:
    """Chain of operators, by registered name, and the function that makes the fused operator.

    inference: True if the fused operator has no gradient, so that it is used in inference only.
    keeps: True if the value between the two operators is an output of the fused one.
    """

    operators: tuple[str, ...]
    fuse: FusionRule
    inference: bool
    keeps: bool


FUSIONS: Registry[Fusion] = Registry("fusion")


def fusion(
    name: str, *operators: str, inference: bool = False, keeps: bool = False
) -> Callable[[FusionRule], FusionRule]:
    """Decorator: register a function that makes the fused property of a chain of `operators`."""

    def add(fuse: FusionRule) -> FusionRule:
        FUSIONS.add(name, Fusion(operators, fuse, inference, keeps), operators=operators)
        return fuse

    return add
