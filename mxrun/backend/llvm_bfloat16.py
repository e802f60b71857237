"""LLVM code between bfloat16 as it lies in memory and float32: for numbers and for vectors.

bfloat16 is the upper half of a float32. Integers do the work, because the instructions that some
processors have for it take denormal numbers for 0, as oneDNN's reorders and products do with them:
these loops give the same bits everywhere.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

_HALF, _WHOLE = ir.IntType(16), ir.IntType(32)
# The bit of a float32 that makes a NaN a quiet one.
_QUIET = 0x400000


def widened(builder: Any, bits: Any) -> Any:
    """Numbers of 16 bits as float32: exact."""
    wide = builder.zext(bits, _like(bits.type, _WHOLE))
    shifted = builder.shl(wide, _number(wide.type, 16))
    return builder.bitcast(shifted, _like(bits.type, ir.FloatType()))


def rounded(builder: Any, value: Any) -> Any:
    """The 16 bits of the nearest bfloat16, of two that are as near the even one.

    What is too large becomes infinite; NaN keeps its sign and its upper bits and is quiet.
    """
    bits = builder.bitcast(value, _like(value.type, _WHOLE))
    kind = bits.type
    odd = builder.and_(builder.lshr(bits, _number(kind, 16)), _number(kind, 1))
    nearest = builder.add(bits, builder.add(odd, _number(kind, 0x7FFF)))
    quiet = builder.or_(bits, _number(kind, _QUIET))
    is_number = builder.fcmp_ordered("ord", value, value)
    upper = builder.lshr(builder.select(is_number, nearest, quiet), _number(kind, 16))
    return builder.trunc(upper, _like(kind, _HALF))


def _like(kind: Any, element: Any) -> Any:
    """`element`, or as many of it as the type has."""
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element


def _number(kind: Any, number: int) -> Any:
    """An integer, in every lane of the type."""
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)
