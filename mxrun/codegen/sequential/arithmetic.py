"""Conversions and arithmetic of numbers in native functions.

The rules are those of NumPy's scalars: integers are int64 in arithmetic, an operation on an integer
and a float is float64, on two float32 float32. Integer division rounds down, and by zero gives 0.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from mxrun.base.errors import InternalError
from mxrun.codegen.sequential.kinds import (
    BOOL,
    FLOAT64,
    INT64,
    UINT64,
    Kind,
    Pointer,
    TypedValue,
)

_COMPARISONS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


class Untyped(InternalError):
    """Code outside of the language of native functions; says where it is, once that is known."""

    line: int = 0
    file: str = ""

    def at(self, line: int) -> Untyped:
        """Return the error with the line of the innermost statement."""
        self.line = self.line or line
        return self

    def within(self, file: str) -> Untyped:
        """Return the error with the file of the innermost function."""
        self.file = self.file or file
        return self

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {super().__str__()}" if self.file else super().__str__()


def converted(builder: Any, value: TypedValue, kind: Kind | Pointer) -> TypedValue:
    """Convert a number; raises Untyped for addresses and vectors of another type."""
    if value.kind == kind:
        return value
    source = value.kind
    if not (_is_number(source) and _is_number(kind)):
        raise Untyped(f"cannot convert {source} to {kind}")
    if kind == BOOL:
        return truth(builder, value)
    return TypedValue(kind, _cast(builder, value.code, source, kind))


def _is_number(kind: Kind | Pointer) -> bool:
    return isinstance(kind, Kind) and not kind.is_vector


def _cast(builder: Any, code: Any, source: Any, kind: Any) -> Any:
    if source.is_float and kind.is_float:
        widens = kind == FLOAT64
        return (builder.fpext if widens else builder.fptrunc)(code, kind.code)
    if source.is_float:
        return (builder.fptosi if kind.is_signed else builder.fptoui)(code, kind.code)
    if kind.is_float:
        return (builder.sitofp if source.is_signed else builder.uitofp)(code, kind.code)
    if kind.code.width < source.code.width:
        return builder.trunc(code, kind.code)
    if kind.code.width == source.code.width:
        return code
    return (builder.sext if source.is_signed else builder.zext)(code, kind.code)


def common(left: Kind | Pointer, right: Kind | Pointer) -> Kind | Pointer:
    """Return the kind to which both convert without loss; raises Untyped if there is none."""
    if left == right:
        return left
    if not isinstance(left, Kind) or not isinstance(right, Kind):
        raise Untyped(f"{left} and {right} cannot be one variable")
    if left.is_vector or right.is_vector or UINT64 in (left, right):
        raise Untyped(f"{left} and {right} cannot be one variable")
    if left.is_float or right.is_float:
        return FLOAT64
    return INT64


def truth(builder: Any, value: TypedValue) -> TypedValue:
    """Return whether a number is not zero."""
    if value.kind == BOOL:
        return value
    if not isinstance(value.kind, Kind) or value.kind.is_vector:
        raise Untyped(f"{value.kind} is neither true nor false")
    zero = value.code.type(0)
    if value.kind.is_float:
        return TypedValue(BOOL, builder.fcmp_unordered("!=", value.code, zero))
    return TypedValue(BOOL, builder.icmp_unsigned("!=", value.code, zero))


def binary(builder: Any, operator: ast.operator, left: TypedValue, right: TypedValue) -> TypedValue:
    """Generate an arithmetic operation."""
    kind = _common_number(left, right)
    if isinstance(operator, ast.Div) and not kind.is_float:
        kind = FLOAT64
    a, b = converted(builder, left, kind).code, converted(builder, right, kind).code
    table = _FLOAT if kind.is_float else _UNSIGNED if kind == UINT64 else _SIGNED
    if type(operator) not in table:
        raise Untyped(f"no {type(operator).__name__} of {left.kind} and {right.kind}")
    return TypedValue(kind, table[type(operator)](builder, a, b))


def compared(builder: Any, operator: ast.cmpop, left: TypedValue, right: TypedValue) -> TypedValue:
    """Generate a comparison; only != is true for NaN."""
    kind = _common_number(left, right)
    a, b = converted(builder, left, kind).code, converted(builder, right, kind).code
    sign = _COMPARISONS.get(type(operator))
    if sign is None:
        raise Untyped(f"no {type(operator).__name__} of numbers")
    return TypedValue(BOOL, _compare(builder, kind, sign, a, b))


def _compare(builder: Any, kind: Any, sign: str, a: Any, b: Any) -> Any:
    if kind.is_float:
        compare = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
    else:
        compare = builder.icmp_unsigned if kind == UINT64 else builder.icmp_signed
    return compare(sign, a, b)


def negated(builder: Any, value: TypedValue) -> TypedValue:
    """Generate -value."""
    kind = _common_number(value, value)
    code = converted(builder, value, kind).code
    return TypedValue(kind, builder.fneg(code) if kind.is_float else builder.neg(code))


def extreme(builder: Any, sign: str, values: list[TypedValue]) -> TypedValue:
    """Generate the smallest or largest of several numbers; of equal ones the first."""
    kind = values[0].kind
    for value in values[1:]:
        kind = _common_number(TypedValue(kind, None), value)
    found, *others = (converted(builder, each, kind).code for each in values)
    for each in others:
        found = builder.select(_compare(builder, kind, sign, each, found), each, found)
    return TypedValue(kind, found)


def _common_number(left: TypedValue, right: TypedValue) -> Kind:
    kind = common(left.kind, right.kind)
    if not isinstance(kind, Kind) or kind.is_vector:
        raise Untyped(f"{left.kind} and {right.kind} have no arithmetic")
    return kind if kind.is_float or kind == UINT64 else INT64


def _floor_divided(builder: Any, a: Any, b: Any) -> Any:
    quotient, remainder, is_zero = _divided(builder, a, b)
    down = builder.sub(quotient, builder.zext(_rounds_up(builder, remainder, b), a.type))
    return builder.select(is_zero, a.type(0), down)


def _modulo(builder: Any, a: Any, b: Any) -> Any:
    _, remainder, is_zero = _divided(builder, a, b)
    raised = builder.add(remainder, b)
    found = builder.select(_rounds_up(builder, remainder, b), raised, remainder)
    return builder.select(is_zero, a.type(0), found)


def _divided(builder: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Return quotient and remainder, rounded to zero, and whether the divisor is 0.

    The processor stops at a division by 0, and at one of the least integer by -1: these are done
    by 1.
    """
    is_zero = builder.icmp_signed("==", b, b.type(0))
    least = builder.icmp_signed("==", a, a.type(-(2**63)))
    overflows = builder.and_(least, builder.icmp_signed("==", b, b.type(-1)))
    divisor = builder.select(builder.or_(is_zero, overflows), b.type(1), b)
    return builder.sdiv(a, divisor), builder.srem(a, divisor), is_zero


def _unsigned_quotient(builder: Any, a: Any, b: Any) -> Any:
    is_zero = builder.icmp_unsigned("==", b, b.type(0))
    quotient = builder.udiv(a, builder.select(is_zero, b.type(1), b))
    return builder.select(is_zero, a.type(0), quotient)


def _unsigned_remainder(builder: Any, a: Any, b: Any) -> Any:
    is_zero = builder.icmp_unsigned("==", b, b.type(0))
    return builder.urem(a, builder.select(is_zero, b.type(1), b))


def _rounds_up(builder: Any, remainder: Any, b: Any) -> Any:
    """Return whether the quotient, which LLVM rounds to zero, was rounded up."""
    differ = builder.icmp_signed("<", builder.xor(remainder, b), b.type(0))
    return builder.and_(builder.icmp_signed("!=", remainder, b.type(0)), differ)


_Code = Callable[[Any, Any, Any], Any]
_BITS: dict[type[ast.operator], _Code] = {
    ast.Add: ir.IRBuilder.add,
    ast.Sub: ir.IRBuilder.sub,
    ast.Mult: ir.IRBuilder.mul,
    ast.BitAnd: ir.IRBuilder.and_,
    ast.BitOr: ir.IRBuilder.or_,
    ast.BitXor: ir.IRBuilder.xor,
    ast.LShift: ir.IRBuilder.shl,
}
_SIGNED: dict[type[ast.operator], _Code] = {
    **_BITS,
    ast.RShift: ir.IRBuilder.ashr,
    ast.FloorDiv: _floor_divided,
    ast.Mod: _modulo,
}
_UNSIGNED: dict[type[ast.operator], _Code] = {
    **_BITS,
    ast.RShift: ir.IRBuilder.lshr,
    ast.FloorDiv: _unsigned_quotient,
    ast.Mod: _unsigned_remainder,
}
_FLOAT: dict[type[ast.operator], _Code] = {
    ast.Add: ir.IRBuilder.fadd,
    ast.Sub: ir.IRBuilder.fsub,
    ast.Mult: ir.IRBuilder.fmul,
    ast.Div: ir.IRBuilder.fdiv,
}
