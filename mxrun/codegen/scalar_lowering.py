"""Lowering of a map's graph from scalar functions to machine operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType

from mxrun.codegen import (
    scalar_circular,
    scalar_double,
    scalar_error_function,
    scalar_exponential,
    scalar_float32,
    scalar_float32_logarithm,
    scalar_gamma,
    scalar_logarithm,
    scalar_remainder,
)
from mxrun.codegen.scalar_functions import VOCABULARY, expanded
from mxrun.codegen.scalar_instructions import (
    copy_sign,
    fma,
    magnitude,
    nearest_even,
    round_down,
    round_up,
    select,
    square_root,
    truncate,
)
from mxrun.codegen.scalar_value import BOOL, ScalarGraph, ScalarValue


def lowered(
    graph: ScalarGraph, results: Sequence[int], instructions: frozenset[str]
) -> tuple[ScalarGraph, tuple[int, ...]]:
    """Lower a graph for a machine with these instructions; return it and its results' nodes."""
    dtype = graph.nodes[0].dtype
    graph, results = expanded(graph, results, _LOWERINGS[dtype].__contains__)
    machine = ScalarGraph(instructions)
    values: list[ScalarValue] = []
    for node in graph.nodes:
        arguments = [values[index] for index in node.arguments]
        if node.operation in VOCABULARY:
            values.append(_LOWERINGS[arguments[0].dtype][node.operation](*arguments))
        else:
            values.append(machine.add(node.operation, node.dtype, tuple(arguments), node.detail))
    return machine, tuple(values[result].index for result in results)


def _sign(x: ScalarValue) -> ScalarValue:
    # The sum makes -0 to 0, and leaves NaN.
    return select(x > 0, x.constant(1), select(x < 0, x.constant(-1), x + 0))


def _integer_sign(x: ScalarValue) -> ScalarValue:
    return (x > 0).convert(x.dtype) - (x < 0).convert(x.dtype)


def _round(x: ScalarValue) -> ScalarValue:
    truncated = truncate(x)
    away = magnitude(x - truncated) >= 0.5
    return select(away, truncated + copy_sign(x.constant(1.0), x), truncated)


def _maximum(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    return select((x > y) | (x != x), x, y)


def _minimum(x: ScalarValue, y: ScalarValue) -> ScalarValue:
    return select((x < y) | (x != x), x, y)


def _false(x: ScalarValue) -> ScalarValue:
    return x.graph.constant(False, BOOL)


def _true(x: ScalarValue) -> ScalarValue:
    return x.graph.constant(True, BOOL)


def _same(x: ScalarValue) -> ScalarValue:
    return x


_ANY: dict[str, Callable[..., ScalarValue]] = {
    "abs": magnitude,
    "maximum": _maximum,
    "minimum": _minimum,
}
_INTEGERS = {
    **_ANY,
    "sign": _integer_sign,
    **dict.fromkeys(("floor", "ceil", "trunc", "fix", "rint", "round"), _same),
    "isnan": _false,
    "isinf": _false,
    "isfinite": _true,
}
_FLOATING: dict[str, Callable[..., ScalarValue]] = {
    **_ANY,
    "sign": _sign,
    "floor": round_down,
    "ceil": round_up,
    "trunc": truncate,
    "fix": truncate,
    "rint": nearest_even,
    "round": _round,
    "sqrt": square_root,
    "fma": fma,
    "isnan": lambda x: x != x,
    "isinf": lambda x: magnitude(x) == math.inf,
    "isfinite": lambda x: magnitude(x) < math.inf,
}


def _of(module: ModuleType) -> dict[str, Callable[..., ScalarValue]]:
    """Return the functions of a module that are named like scalar functions."""
    return {name: getattr(module, name) for name in VOCABULARY if hasattr(module, name)}


_DOUBLE = {
    name: function
    for module in (
        *(scalar_exponential, scalar_logarithm, scalar_circular),
        *(scalar_error_function, scalar_gamma, scalar_remainder),
    )
    for name, function in _of(module).items()
}
# Maps of float32 compute in float32 what is frequent in networks, and the rest in float64.
_WIDENED = {
    name: scalar_double.widened(function)
    for name, function in {**_DOUBLE, **_of(scalar_double)}.items()
}
_LOWERINGS: dict[str, dict[str, Callable[..., ScalarValue]]] = {
    "float32": {
        **_FLOATING,
        **_WIDENED,
        **_of(scalar_float32_logarithm),
        **_of(scalar_float32),
    },
    "float64": {**_FLOATING, **_DOUBLE},
    **dict.fromkeys(("int32", "int64", "uint8"), _INTEGERS),
}
