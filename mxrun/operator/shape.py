"""Partial shapes and their unification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from mxrun.base.errors import Diagnostic
from mxrun.base.tensor import PartialShape, Shape

Dimensions = tuple[int | None, ...]


class ShapeContradiction(Exception):
    """Two inferences give different shapes for one tensor of an operator.

    `argument` is the operator's name of the tensor. `rule` is the source of the inferred shape, in
    the operator's own terms.
    """

    def __init__(self, argument: str, given: object, inferred: object, rule: str = "") -> None:
        self.argument, self.given, self.inferred, self.rule = argument, given, inferred, rule
        super().__init__(f"{argument} is {given}, but {rule or 'inference'} gives {inferred}")


class NestedContradiction(ShapeContradiction):
    """Contradictions within a network that is an operator's body; `diagnostics` describe them."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("body", "", self.diagnostics[0].problem)


@overload
def unify(
    argument: str, given: PartialShape, inferred: Dimensions, rule: str = ""
) -> Dimensions: ...
@overload
def unify(
    argument: str, given: PartialShape, inferred: PartialShape, rule: str = ""
) -> PartialShape: ...
def unify(
    argument: str, given: PartialShape, inferred: PartialShape, rule: str = ""
) -> PartialShape:
    """Unify two partial shapes of one tensor; raises ShapeContradiction if they disagree."""
    if given is None or inferred is None or given == inferred:
        return inferred if given is None else given
    if len(given) != len(inferred):
        raise ShapeContradiction(argument, show(given), show(inferred), rule)
    joined = []
    for old, new in zip(given, inferred, strict=True):
        if old is not None and new is not None and old != new:
            raise ShapeContradiction(argument, show(given), show(inferred), rule)
        joined.append(new if old is None else old)
    return tuple(joined)


def is_known(shape: PartialShape) -> bool:
    """Return whether the rank and every dimension are known."""
    return shape is not None and None not in shape


def require_complete(shape: PartialShape) -> Shape:
    """Return a complete shape, typed as such; raises ValueError if it is incomplete."""
    if shape is None:
        raise ValueError("the shape is not known")
    dimensions = tuple(dimension for dimension in shape if dimension is not None)
    if len(dimensions) != len(shape):
        raise ValueError(f"the shape {show(shape)} is not complete")
    return dimensions


def product(dimensions: Sequence[int | None]) -> int | None:
    """Return the product of the dimensions, or None if one of them is unknown."""
    result = 1
    for dimension in dimensions:
        if dimension is None:
            return None
        result *= dimension
    return result


def unify_product(
    argument: str, shape: Dimensions, total: int | None, rule: str
) -> tuple[Dimensions, int | None]:
    """Make the product of `shape` equal `total`: complete the total or one unknown dimension.

    Raises ShapeContradiction if no dimension makes them equal.
    """
    unknown = [axis for axis, dimension in enumerate(shape) if dimension is None]
    if not unknown:
        (total,) = unify(argument, (product(shape),), (total,), rule)
    elif len(unknown) == 1 and total is not None:
        rest = product([dimension for dimension in shape if dimension is not None]) or 1
        if total % rest:
            raise ShapeContradiction(argument, show(shape), f"{total} elements", rule)
        completed = list(shape)
        completed[unknown[0]] = total // rest
        return tuple(completed), total
    return shape, total


def show(shape: PartialShape) -> str:
    """Format a partial shape: `[64, ?, 28, 28]`, or `?` if even the rank is unknown."""
    if shape is None:
        return "?"
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"
