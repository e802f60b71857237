"""The operations of a machine that the elementary functions are made of.

Each makes one node, which `scalar_llvm` turns into one instruction over a vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mxrun.backend.scalar_value import FLOATS, Number, ScalarValue

# What some machines do with float32 in one instruction; the same results take several elsewhere,
# but for the lookup, which elsewhere costs so much that functions go another way.
OPTIONAL = frozenset({"scale", "exponent", "mantissa", "lookup"})

_WHOLE = 12582912.0  # 1.5 * 2^23: added to a number, it leaves the nearest whole one in the bits
_ONE_BITS, _THREE_QUARTERS_BITS = 0x3F800000, 0x3F400000
_BITS = {"float32": "int32", "float64": "int64", "int32": "float32", "int64": "float64"}


def fma(x: ScalarValue, y: ScalarValue | Number, z: ScalarValue | Number) -> ScalarValue:
    """x * y + z, rounded once."""
    return x.make("fma", _like(x, y), _like(x, z))


def select(condition: ScalarValue, x: ScalarValue | Number, y: ScalarValue | Number) -> ScalarValue:
    """x where the truth value `condition` holds, else y; one of both is a Value."""
    model = x if isinstance(x, ScalarValue) else y
    assert isinstance(model, ScalarValue)
    left, right = _like(model, x), _like(model, y)
    return condition.graph.add("select", left.dtype, (condition, left, right))


def rarely(condition: ScalarValue, x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """As `select`, where x is dear and seldom needed: what only x reads is computed for a vector
    in which the condition holds somewhere.
    """
    return condition.graph.add("rarely", x.dtype, (condition, x, y))


def at_most(x: ScalarValue, limit: ScalarValue | Number) -> ScalarValue:
    """limit where x is greater; NaN stays."""
    return select(_like(x, limit) < x, limit, x)


def at_least(x: ScalarValue, limit: ScalarValue | Number) -> ScalarValue:
    """limit where x is less; NaN stays."""
    return select(x < limit, limit, x)


def magnitude(x: ScalarValue) -> ScalarValue:
    """|x|, which of a floating-point number clears the sign bit."""
    return x.make("magnitude") if x.dtype in FLOATS else select(x < 0, -x, x)


def copy_sign(x: ScalarValue, sign: ScalarValue) -> ScalarValue:
    """|x| with the sign of another value, that of zeros included."""
    return x.make("copy_sign", sign)


def square_root(x: ScalarValue) -> ScalarValue:
    """The square root, correctly rounded."""
    return x.make("square_root")


def nearest_even(x: ScalarValue) -> ScalarValue:
    """The nearest whole number, the even one of two."""
    return x.make("nearest_even")


def round_down(x: ScalarValue) -> ScalarValue:
    """The largest whole number that is not above x."""
    return x.make("round_down")


def round_up(x: ScalarValue) -> ScalarValue:
    """The smallest whole number that is not below x."""
    return x.make("round_up")


def truncate(x: ScalarValue) -> ScalarValue:
    """x without its fraction."""
    return x.make("truncate")


def bits(x: ScalarValue) -> ScalarValue:
    """The bits of a floating-point number as an integer, or the other way round."""
    return x.make("bits", dtype=_BITS[x.dtype])


def call(function: str, *arguments: ScalarValue) -> ScalarValue:
    """A function of the C library's, called for every element."""
    return arguments[0].graph.add("call", arguments[0].dtype, arguments, function)


def table(index: ScalarValue, entries: Sequence[int]) -> ScalarValue:
    """The 64-bit entry at an int64 index within the table."""
    return index.graph.add("table", "int64", (index,), tuple(entries))


def scale(x: ScalarValue, k: ScalarValue) -> ScalarValue:
    """x * 2^k, rounded once, of float32 x from 1/2 to 2 and whole k from -252 to 252."""
    if "scale" in x.graph.instructions:
        return x.make("scale", k)
    both = bits(k + _WHOLE)
    # Two factors, because one alone may be no normal number.
    first = both >> 1
    second = both - first
    return x * bits((first << 23) + _ONE_BITS) * bits((second << 23) + _ONE_BITS)


def exponent_and_mantissa(x: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """k and m with x = 2^k * m, m from 3/4 to 3/2, of a positive float32 number.

    Of 0, infinity and NaN k is -infinity, infinity and NaN, and m is 1 or NaN; of what is below
    zero m is NaN.
    """
    if x.graph.instructions >= OPTIONAL:
        m = x.make("mantissa")
        return x.make("exponent") - m.make("exponent"), m
    small = x < 2.0**-126
    above = bits(select(small, x * 2.0**23, x)) - _THREE_QUARTERS_BITS
    k = (above >> 23).convert("float32") - select(small, x.constant(23.0), 0.0)
    m = bits((above & 0x7FFFFF) + _THREE_QUARTERS_BITS)
    k = select(x < math.inf, select(x == 0.0, -math.inf, k), x)
    usual = (x > 0.0) & (x < math.inf)
    return k, select(usual, m, select(x >= 0.0, x.constant(1.0), math.nan))


def looks_up(x: ScalarValue) -> bool:
    """Whether the machine has `lookup`."""
    return "lookup" in x.graph.instructions


def lookup(index: ScalarValue, entries: Sequence[float]) -> ScalarValue:
    """The float32 entry of 32 that the last five bits of an int32 index name."""
    return index.graph.add("lookup", "float32", (index,), tuple(entries))


def polynomial(x: ScalarValue, coefficients: Sequence[ScalarValue | float]) -> ScalarValue:
    """The sum of coefficients[i] * x^i by Horner's rule."""
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = fma(x, total, coefficient)
    return _like(x, total)


def _like(x: ScalarValue, other: ScalarValue | Number) -> ScalarValue:
    return other if isinstance(other, ScalarValue) else x.constant(other)
