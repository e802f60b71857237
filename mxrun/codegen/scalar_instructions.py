"""Machine operations that the elementary functions are composed of.

Each function creates one node, which `scalar_llvm` compiles to one vector instruction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mxrun.codegen.scalar_value import FLOATS, Number, ScalarValue

# Float32 operations that are single instructions of AVX-512. Elsewhere several instructions give
# the same result or, in place of the approximate reciprocals, the rounded ones. The lookup is too
# slow there: functions then use another algorithm.
AVX512 = frozenset({"scale", "exponent", "mantissa", "lookup", "reciprocal", "reciprocal_root"})
# Operations that the oldest processors of x86-64 lack: x * y + z rounded once, and rounding to
# integers.
FMA, ROUNDING = "fma", "rounding"

# 26 bits of the fraction of float64.
_UPPER_HALF = -(2**27)
# Floating-point numbers from here on are integers.
_INTEGERS = {"float32": 2.0**23, "float64": 2.0**52}
_ROUNDING_SHIFT = 12582912.0  # 1.5 * 2^23: adding it leaves the nearest integer in the lowest bits
_ONE_BITS, _THREE_QUARTERS_BITS = 0x3F800000, 0x3F400000
_BITS = {"float32": "int32", "float64": "int64", "int32": "float32", "int64": "float64"}


def fma(x: ScalarValue, y: ScalarValue | Number, z: ScalarValue | Number) -> ScalarValue:
    """Compute x * y + z, rounded once.

    Machines without this instruction round twice, which differs where the exact result is almost
    halfway between two numbers. A result that needs no rounding is exact there, too.
    """
    y, z = _like(x, y), _like(x, z)
    if FMA in x.graph.instructions:
        return x.make("fma", y, z)
    if x.dtype == "float32":
        wide_x, wide_y, wide_z = (each.convert("float64") for each in (x, y, z))
        return (wide_x * wide_y + wide_z).convert("float32")
    product = x * y
    total = product + z
    part = total - product
    rest = (product - (total - part)) + (z - part) + _product_rest(x, y, product)
    # The rest is NaN where the result is infinite, and 0 would make -0 to 0.
    return select((magnitude(total) < math.inf) & (rest != 0.0), total + rest, total)


def multiply_add(x: ScalarValue, y: ScalarValue | Number, z: ScalarValue | Number) -> ScalarValue:
    """Compute x * y + z of float64, rounded once or twice, whichever is faster."""
    return fma(x, y, z) if FMA in x.graph.instructions else x * y + z


def _product_rest(x: ScalarValue, y: ScalarValue, product: ScalarValue) -> ScalarValue:
    """Return x * y - product of float64 numbers, from the halves of both."""
    upper_x, upper_y = (bits(bits(each) & _UPPER_HALF) for each in (x, y))
    lower_x, lower_y = x - upper_x, y - upper_y
    rest = upper_x * upper_y - product
    return rest + upper_x * lower_y + lower_x * upper_y + lower_x * lower_y


def select(condition: ScalarValue, x: ScalarValue | Number, y: ScalarValue | Number) -> ScalarValue:
    """Select x where the truth value `condition` holds, else y.

    At least one of x and y is a ScalarValue.
    """
    model = x if isinstance(x, ScalarValue) else y
    assert isinstance(model, ScalarValue)
    left, right = _like(model, x), _like(model, y)
    return condition.graph.add("select", left.dtype, (condition, left, right))


def rarely(condition: ScalarValue, x: ScalarValue, y: ScalarValue) -> ScalarValue:
    """Select like `select`, for an x that is expensive and rarely needed.

    Nodes that only x reads are computed only for vectors in which the condition holds for some
    element.
    """
    return condition.graph.add("rarely", x.dtype, (condition, x, y))


def at_most(x: ScalarValue, limit: ScalarValue | Number) -> ScalarValue:
    """Return min(x, limit); NaN stays."""
    return select(_like(x, limit) < x, limit, x)


def at_least(x: ScalarValue, limit: ScalarValue | Number) -> ScalarValue:
    """Return max(x, limit); NaN stays."""
    return select(x < limit, limit, x)


def magnitude(x: ScalarValue) -> ScalarValue:
    """Return |x|; for floating-point numbers this clears the sign bit."""
    return x.make("magnitude") if x.dtype in FLOATS else select(x < 0, -x, x)


def copy_sign(x: ScalarValue, sign: ScalarValue) -> ScalarValue:
    """Return |x| with the sign of another value, including that of zeros."""
    return x.make("copy_sign", sign)


def square_root(x: ScalarValue) -> ScalarValue:
    """Compute the square root, correctly rounded."""
    return x.make("square_root")


def reciprocal(x: ScalarValue) -> ScalarValue:
    """Compute 1 / x for normal float32 numbers, with a relative error of at most 2^-14."""
    return x.make("reciprocal") if "reciprocal" in x.graph.instructions else 1.0 / x


def reciprocal_root(x: ScalarValue) -> ScalarValue:
    """Compute 1 / sqrt(x) of float32 numbers with a relative error of at most 2^-14."""
    if "reciprocal_root" in x.graph.instructions:
        return x.make("reciprocal_root")
    return 1.0 / square_root(x)


def nearest_even(x: ScalarValue) -> ScalarValue:
    """Round to the nearest integer, ties to even."""
    if ROUNDING in x.graph.instructions:
        return x.make("nearest_even")
    shift = copy_sign(x.constant(_INTEGERS[x.dtype]), x)
    return select(magnitude(x) < _INTEGERS[x.dtype], copy_sign(x + shift - shift, x), x)


def round_down(x: ScalarValue) -> ScalarValue:
    """Return the largest integer not above x."""
    if ROUNDING in x.graph.instructions:
        return x.make("round_down")
    near = nearest_even(x)
    return select(near > x, near - 1.0, near)


def round_up(x: ScalarValue) -> ScalarValue:
    """Return the smallest integer not below x."""
    return x.make("round_up") if ROUNDING in x.graph.instructions else -round_down(-x)


def truncate(x: ScalarValue) -> ScalarValue:
    """Round towards zero."""
    if ROUNDING in x.graph.instructions:
        return x.make("truncate")
    return copy_sign(round_down(magnitude(x)), x)


def bits(x: ScalarValue) -> ScalarValue:
    """Reinterpret the bits of a floating-point number as an integer, or the reverse."""
    return x.make("bits", dtype=_BITS[x.dtype])


def scale(x: ScalarValue, k: ScalarValue) -> ScalarValue:
    """Compute x * 2^k, rounded once, for float32 x from 1/2 to 2 and integer k from -252 to 252."""
    if "scale" in x.graph.instructions:
        return x.make("scale", k)
    both = bits(k + _ROUNDING_SHIFT)
    # Two factors, because a single one may not be a normal number.
    first = both >> 1
    second = both - first
    return x * bits((first << 23) + _ONE_BITS) * bits((second << 23) + _ONE_BITS)


def exponent_and_mantissa(x: ScalarValue) -> tuple[ScalarValue, ScalarValue]:
    """Return k and m with x = 2^k * m, m from 3/4 to 3/2, for a positive float32 number.

    For 0, infinity and NaN, k is -infinity, infinity and NaN, and m is 1 or NaN; for negative
    numbers m is NaN.
    """
    if "mantissa" in x.graph.instructions:
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
    """Return whether the machine has `lookup`."""
    return "lookup" in x.graph.instructions


def lookup(index: ScalarValue, entries: Sequence[float]) -> ScalarValue:
    """Look up one of 32 float32 entries by the last five bits of an int32 index."""
    return index.graph.add("lookup", "float32", (index,), tuple(entries))


def polynomial(x: ScalarValue, coefficients: Sequence[ScalarValue | float]) -> ScalarValue:
    """Compute the sum of coefficients[i] * x^i by Horner's rule."""
    if FMA not in x.graph.instructions:
        return _polynomial_of_float64(x, coefficients)
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = fma(x, total, coefficient)
    return _like(x, total)


def _polynomial_of_float64(
    x: ScalarValue, coefficients: Sequence[ScalarValue | float]
) -> ScalarValue:
    """Compute it in float64, where rounding products does not matter to float32 numbers."""
    wide: Any = x.convert("float64")
    own = [e.convert("float64") if isinstance(e, ScalarValue) else e for e in coefficients]
    total: Any = own[-1]
    for coefficient in reversed(own[:-1]):
        total = wide * total + coefficient
    return _like(wide, total).convert(x.dtype)


def _like(x: ScalarValue, other: ScalarValue | Number) -> ScalarValue:
    return other if isinstance(other, ScalarValue) else x.constant(other)
