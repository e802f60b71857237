"""LLVM code that converts between bfloat16 in memory and float32, for scalars and vectors.

bfloat16 is the upper half of a float32. The conversion uses integer instructions, because the
bfloat16 instructions of some processors treat denormal numbers as 0, as do oneDNN's reorders and
products that use them. These loops give the same bits everywhere.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

_INT16, _INT32 = ir.IntType(16), ir.IntType(32)
# Bit of a float32 that makes a NaN quiet.
_QUIET = 0x400000


def widened(builder: Any, bits: Any) -> Any:
    """Convert 16-bit values to float32, exactly."""
    wide = builder.zext(bits, _like(bits.type, _INT32))
    shifted = builder.shl(wide, constant(wide.type, 16))
    return builder.bitcast(shifted, _like(bits.type, ir.FloatType()))


def rounded(builder: Any, value: Any) -> Any:
    """Round to bfloat16, ties to even; return the 16 bits.

    Values that are too large become infinite; NaN stays NaN with its sign and upper bits, and is
    quiet.
    """
    bits = builder.bitcast(value, _like(value.type, _INT32))
    kind = bits.type
    odd = builder.and_(builder.lshr(bits, constant(kind, 16)), constant(kind, 1))
    nearest = builder.add(bits, builder.add(odd, constant(kind, 0x7FFF)))
    quiet = builder.or_(bits, constant(kind, _QUIET))
    is_number = builder.fcmp_ordered("ord", value, value)
    upper = builder.lshr(builder.select(is_number, nearest, quiet), constant(kind, 16))
    return builder.trunc(upper, _like(kind, _INT16))


def _like(kind: Any, element: Any) -> Any:
    """Return `element`, or a vector of it with as many lanes as `kind`."""
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element


def constant(kind: Any, number: float) -> Any:
    """Return a constant of a type, broadcast if the type is a vector."""
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)
