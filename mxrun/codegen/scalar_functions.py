"""Scalar functions that a map's function may call, in addition to Python's operators.

Each function works on Python numbers and NumPy arrays directly; on a `ScalarValue` it creates a
graph node. For float32, NumPy's functions are evaluated in float64 and rounded once: compiled code
is measured against this reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.codegen.scalar_value import (
    BOOL,
    FLOATS,
    ScalarGraph,
    ScalarValue,
    UnsupportedMap,
    arithmetic,
)

VOCABULARY: dict[str, Function] = {}


@dataclass(frozen=True)
class Function:
    """Scalar function; `formula` evaluates it with NumPy.

    composite: the formula uses scalar functions, so that it can replace the function on a device
        without it.
    floating: the function is defined for floating-point types only.
    truth: the result is a truth value.
    """

    name: str
    formula: Callable[..., Any]
    description: str
    composite: bool = False
    floating: bool = True
    truth: bool = False

    def __call__(self, *arguments: Any) -> Any:
        """Return the function's value, or a graph node for a ScalarValue."""
        values = [argument for argument in arguments if isinstance(argument, ScalarValue)]
        if values:
            return self._node(values[0].graph, arguments)
        kind = np.result_type(*arguments)
        # Like in compiled code, undefined results are infinity or NaN without a warning.
        with np.errstate(all="ignore"):
            if kind != np.float32 or not self.floating:
                return self.formula(*_beside_integers(*arguments))
            own = (np.asarray(argument, kind) for argument in arguments)
            wide = self.formula(*(argument.astype(np.float64) for argument in own))
            return np.asarray(wide).astype(np.float32)[()]

    def _node(self, graph: ScalarGraph, arguments: tuple[Any, ...]) -> ScalarValue:
        value = arithmetic(self.name, *arguments)
        if self.floating and value.dtype not in FLOATS:
            raise UnsupportedMap(
                f"{self.name} of {value.dtype} values", "only floating-point maps support it"
            )
        return value if not self.truth else graph.add(self.name, BOOL, _arguments_of(value))


def _arguments_of(value: ScalarValue) -> tuple[ScalarValue, ...]:
    return tuple(ScalarValue(value.graph, index) for index in value.node.arguments)


def _function(name: str, formula: Callable[..., Any], description: str, **options: bool) -> Any:
    VOCABULARY[name] = Function(name, formula, description, **options)
    return VOCABULARY[name]


def _beside_integers(*arguments: Any) -> tuple[Any, ...]:
    """Convert integral Python floats beside integer arrays to integers, as compiled code does.

    NumPy would convert everything to float64, which cannot represent every int64.
    """
    kinds = {np.asarray(a).dtype for a in arguments if not isinstance(a, float)}
    if not kinds or not all(kind.kind in "iu" for kind in kinds):
        return arguments
    limits = np.iinfo(np.result_type(*kinds))
    return tuple(
        int(a) if isinstance(a, float) and a.is_integer() and limits.min <= a <= limits.max else a
        for a in arguments
    )


def _power(x: Any, y: Any) -> Any:
    """Compute C's pow; for integers the truncated power, and 0 for 0 to a negative power."""
    if np.result_type(x, y).kind == "f":
        # NumPy computes powers of 1/2 as square roots, which differ for -infinity and -0.
        rooted = (y == 0.5) & ((x == 0) | (x == -np.inf))
        return np.power(np.where(rooted, np.abs(x), x), y)[()]
    # Negative powers of 1 and -1 are 1 or -1; those of other integers truncate to 0.
    negative = np.asarray(y) < 0
    value = np.power(x, np.where(negative, y & 1, y))
    return np.where(negative & (np.abs(x) != 1), 0, value)[()]


def _by_element(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """Vectorise a Python function for arrays of float64."""
    vectorized = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(vectorized(x), np.float64)[()]


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a non-positive integer, or an overflow
        return math.inf


def _tgamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    try:
        return math.gamma(x)
    except ValueError:  # a negative integer
        return math.nan
    except OverflowError:
        return math.copysign(math.inf, x)


def _round(x: Any) -> Any:
    truncated = np.trunc(x)
    return np.where(np.abs(x - truncated) >= 0.5, truncated + np.sign(x), truncated)[()]


exp = _function("exp", np.exp, "e^x")
expm1 = _function("expm1", np.expm1, "e^x - 1, exact near 0")
log = _function("log", np.log, "natural logarithm")
log1p = _function("log1p", np.log1p, "log(1 + x), exact near 0")
log2 = _function("log2", np.log2, "logarithm to base 2")
log10 = _function("log10", np.log10, "logarithm to base 10")
sin = _function("sin", np.sin, "sine")
cos = _function("cos", np.cos, "cosine")
tan = _function("tan", np.tan, "tangent")
arcsin = _function("arcsin", np.arcsin, "inverse sine")
arccos = _function("arccos", np.arccos, "inverse cosine")
arctan = _function("arctan", np.arctan, "inverse tangent")
sinh = _function("sinh", np.sinh, "hyperbolic sine")
cosh = _function("cosh", np.cosh, "hyperbolic cosine")
tanh = _function("tanh", np.tanh, "hyperbolic tangent")
arcsinh = _function("arcsinh", np.arcsinh, "inverse hyperbolic sine")
arccosh = _function("arccosh", np.arccosh, "inverse hyperbolic cosine")
arctanh = _function("arctanh", np.arctanh, "inverse hyperbolic tangent")
sqrt = _function("sqrt", np.sqrt, "square root")
cbrt = _function("cbrt", np.cbrt, "cube root")
pow = _function("pow", _power, "x^y; special values follow C's pow")
mod = _function("mod", np.mod, "x - floor(x / y) * y, exact, with y's sign; NaN for y = 0")
fma = _function("fma", lambda x, y, z: x * y + z, "x * y + z; compiled code rounds once")
erf = _function("erf", _by_element(math.erf), "error function")
erfc = _function("erfc", _by_element(math.erfc), "1 - erf(x), exact for large x")
gamma = _function("gamma", _by_element(_tgamma), "gamma function; NaN at -1, -2, ...")
gammaln = _function("gammaln", _by_element(_lgamma), "log |gamma(x)|")

abs = _function("abs", np.abs, "|x|", floating=False)
sign = _function("sign", np.sign, "-1, 0 or 1; NaN for NaN", floating=False)
floor = _function("floor", np.floor, "largest integer not above x", floating=False)
ceil = _function("ceil", np.ceil, "smallest integer not below x", floating=False)
trunc = _function("trunc", np.trunc, "x rounded towards zero", floating=False)
fix = _function("fix", np.trunc, "x rounded towards zero", floating=False)
rint = _function("rint", np.rint, "nearest integer, ties to even", floating=False)
round = _function("round", _round, "nearest integer, ties away from zero", floating=False)
maximum = _function("maximum", np.maximum, "larger of two; NaN if one is", floating=False)
minimum = _function("minimum", np.minimum, "smaller of two; NaN if one is", floating=False)
isnan = _function("isnan", np.isnan, "whether x is NaN", floating=False, truth=True)
isinf = _function("isinf", np.isinf, "whether x is infinite", floating=False, truth=True)
isfinite = _function(
    "isfinite", np.isfinite, "neither NaN nor infinite", floating=False, truth=True
)


def where(condition: Any, x: Any, y: Any) -> Any:
    """Return x where the condition is not 0, else y; both are evaluated everywhere."""
    values = [value for value in (x, y, condition) if isinstance(value, ScalarValue)]
    if not values:
        return np.where(condition, *_beside_integers(x, y))[()]
    if not isinstance(condition, ScalarValue):
        return x if condition else y
    if not isinstance(x, ScalarValue) and not isinstance(y, ScalarValue):
        # Two Python numbers take the type of the map, which is that of the graph's first node.
        dtype = condition.graph.nodes[0].dtype
        x = condition.graph.constant(x, dtype)
    chosen = arithmetic("equal", x, y)
    left, right = _arguments_of(chosen)
    return left.graph.add("select", left.dtype, (condition.convert(BOOL), left, right))


def _truth(value: Any) -> Any:
    return (
        value.convert(BOOL)
        if isinstance(value, ScalarValue)
        else np.asarray(value).astype(bool)[()]
    )


def logical_and(x: Any, y: Any) -> Any:
    """Return whether neither is 0."""
    return _truth(x) & _truth(y)


def logical_or(x: Any, y: Any) -> Any:
    """Return whether at least one is not 0."""
    return _truth(x) | _truth(y)


def logical_xor(x: Any, y: Any) -> Any:
    """Return whether exactly one is not 0."""
    return _truth(x) ^ _truth(y)


def logical_not(x: Any) -> Any:
    """Return whether x is 0."""
    return ~_truth(x)


def _in_float64(formula: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Evaluate a formula in float64, because float32 would lose accuracy; round the result once."""

    def evaluated(x: Any) -> Any:
        if isinstance(x, ScalarValue):
            return formula(x.convert("float64")).convert(x.dtype)
        return formula(x)

    return evaluated


def _sigmoid(x: Any) -> Any:
    power = exp(-abs(x))
    return where(x < 0, power, 1.0) / (1.0 + power)


def _softplus(x: Any) -> Any:
    return maximum(x, 0.0) + log1p(exp(-abs(x)))


def _gelu(x: Any) -> Any:
    # Below -40 the result is -0; -inf * 0 would be NaN.
    within = maximum(x, -40.0)
    return within * (0.5 * erfc(within * -math.sqrt(0.5)))


def _erfinv(x: Any) -> Any:
    """Compute erfinv: Winitzki's approximation, with error 2e-3, and three Halley iterations."""
    a = abs(x)
    inverse, logarithm = 1 / 0.147, log1p(-a * a)
    middle = inverse * (2 / math.pi) + logarithm * 0.5
    y = sqrt(sqrt(middle * middle - logarithm * inverse) - middle)
    for _ in range(3):
        error = where(a < 0.5, erf(y) - a, (1.0 - a) - erfc(y))
        step = error * exp(y * y) * (math.sqrt(math.pi) / 2)
        y = y - step / (y * step + 1.0)
    y = where(x < 0, -y, y)
    return where(a == 1.0, x * math.inf, where(a == 0.0, x, y))


# Coefficients B(2k) / 2k, with Bernoulli numbers B, of digamma's asymptotic series.
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _digamma(x: Any) -> Any:
    """Compute digamma: the asymptotic series from 8 on, recurrence below, reflection below 0."""
    mirrored = x < 0
    y = where(mirrored, 1.0 - x, x)
    steps = 1.0 / y
    for k in range(1, 8):
        steps = steps + 1.0 / (y + float(k))
    far = where(y < 8.0, y + 8.0, y)
    square, series = 1.0 / (far * far), 0.0
    for number in reversed(_BERNOULLI):
        series = (series + number) * square
    value = log(far) - 0.5 / far - series - where(y < 8.0, steps, 0.0)
    part = x - rint(x)
    cotangent = where(part == 0, math.nan, math.pi / tan(part * math.pi))
    return where(mirrored, value - cotangent, value)


sigmoid = _function("sigmoid", _sigmoid, "1 / (1 + e^-x)", composite=True)
softplus = _function("softplus", _softplus, "log(1 + e^x)", composite=True)
gelu = _function("gelu", _gelu, "x * P(a normal variable < x)", composite=True)
erfinv = _function("erfinv", _in_float64(_erfinv), "inverse of erf", composite=True)
digamma = _function("digamma", _in_float64(_digamma), "derivative of gammaln", composite=True)
rsqrt = _function("rsqrt", lambda x: 1.0 / sqrt(x), "1 / sqrt(x)", composite=True)
rcbrt = _function("rcbrt", _in_float64(lambda x: 1.0 / cbrt(x)), "1 / cbrt(x)", composite=True)


def expanded(
    graph: ScalarGraph, results: Sequence[int], has: Callable[[str], bool]
) -> tuple[ScalarGraph, tuple[int, ...]]:
    """Expand the composite functions a device lacks; return the graph and its results' nodes."""
    written = ScalarGraph()
    values: list[ScalarValue] = []
    for node in graph.nodes:
        arguments = tuple(values[index] for index in node.arguments)
        word = VOCABULARY.get(node.operation)
        if word is not None and word.composite and not has(node.operation):
            values.append(word.formula(*arguments))
        else:
            values.append(written.add(node.operation, node.dtype, arguments, node.detail))
    return written, tuple(values[result].index for result in results)
