"""Intrinsics: functions whose calls generate LLVM code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mxrun.codegen.sequential.arithmetic import Untyped, converted
from mxrun.codegen.sequential.kinds import INT64, NOTHING, Kind, Operand, Pointer, TypedValue

Intrinsic: TypeAlias = Callable[..., Operand]
"""Generates the code of a call: receives the builder and the operands; raises Untyped for others
than it takes."""


def typed(
    result: Kind | Pointer | None, *kinds: Kind | Pointer
) -> Callable[[Callable[..., Any]], Intrinsic]:
    """Decorator for a generator that works with LLVM values.

    kinds: types of the operands, to which they are converted. result: type of the LLVM value that
    the generator returns; None if it returns none.
    """

    def decorate(generate: Callable[..., Any]) -> Intrinsic:
        def call(builder: Any, *operands: Operand) -> Operand:
            if len(operands) != len(kinds):
                raise Untyped(f"{len(kinds)} operands are needed, not {len(operands)}")
            codes = [
                operand_of(builder, each, kind) for each, kind in zip(operands, kinds, strict=True)
            ]
            found = generate(builder, *codes)
            return NOTHING if result is None else TypedValue(result, found)

        return call

    return decorate


def number(operand: Operand) -> TypedValue:
    """Return an operand that exists at run time; raises Untyped for others."""
    if not isinstance(operand, TypedValue):
        given = "a tuple" if isinstance(operand, tuple) else repr(operand.content)
        raise Untyped(f"a number is needed, not {given}")
    return operand


def operand_of(builder: Any, operand: Operand, kind: Kind | Pointer) -> Any:
    """Return an operand as the LLVM value of a kind; a float is no integer."""
    value = number(operand)
    is_float = isinstance(value.kind, Kind) and value.kind.is_float
    if kind == INT64 and is_float:
        raise Untyped(f"an integer is needed, not {value.kind}")
    return converted(builder, value, kind).code
