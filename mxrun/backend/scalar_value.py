"""Scalar functions as graphs: what is left of a Python function that was called with `Value`s.

A graph's nodes are interned: what a function computes twice is in it once. Two kinds of operations
share one form: those of the vocabulary (exp, tanh, where, ...), which a map's function is written
in, and those of a machine (fused multiply-add, bits, shifts), which `scalar_lowering` makes of
them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BOOL = "bool"
FLOATS = ("float32", "float64")
# What a map may be compiled for.
MAP_DTYPES = (*FLOATS, "int32", "int64", "uint8")

Number = bool | int | float


def number_dtype(dtype: str) -> str:
    """The type of the numbers beside a map's operands: theirs, but int64 where they are integers.

    So what no uint8 holds can be compared with one, and sums and products have the bits of any
    other arithmetic modulo a power of two.
    """
    return dtype if dtype in FLOATS else "int64"


def whole_number(number: float) -> int:
    """A number as an int64: its fraction is cut off, beyond the range is the nearest; NaN is 0."""
    limits = np.iinfo(np.int64)
    if math.isnan(number):
        return 0
    within = max(min(number, float(limits.max)), float(limits.min))
    return min(int(within), int(limits.max))


class Refused(Exception):
    """A function asks a value for something that no compiled map can do."""

    def __init__(self, problem: str, hint: str = "", name: str = "") -> None:
        super().__init__(problem)
        self.problem, self.hint, self.name = problem, hint, name


@dataclass(frozen=True)
class LoopForm:
    """A map's loop: the type and the steps of its operands (1, or 0 for one element that all
    share), whether the result is added to the output instead of replacing it, the output's type
    (None: the operands'), and where some float32 tensors lie in memory as bfloat16, what the
    output and each operand lie there as.
    """

    dtype: str
    steps: tuple[int, ...]
    adds: bool
    result_dtype: str | None = None
    stored: tuple[str, ...] = ()

    @property
    def output_dtype(self) -> str:
        """The type of the output."""
        return self.result_dtype or self.dtype

    @property
    def memory(self) -> tuple[str, ...]:
        """The types in memory of the output and of each operand."""
        return self.stored or (self.output_dtype, *(self.dtype,) * len(self.steps))


@dataclass(frozen=True)
class ScalarNode:
    """One operation: the type of its result, the nodes it reads and a constant or name."""

    operation: str
    dtype: str
    arguments: tuple[int, ...] = ()
    detail: Number | str | tuple[float, ...] | None = None


@dataclass
class ScalarGraph:
    """Nodes in an order in which every node stands behind those it reads.

    instructions: the optional operations that the machine has, of a graph that is meant for one.
    """

    instructions: frozenset[str] = frozenset()
    nodes: list[ScalarNode] = field(default_factory=list)
    _places: dict[tuple[ScalarNode, str], int] = field(default_factory=dict)

    def add(
        self,
        operation: str,
        dtype: str,
        arguments: tuple[ScalarValue, ...] = (),
        detail: Number | str | tuple[float, ...] | None = None,
    ) -> ScalarValue:
        """The node's value, new or as it is."""
        node = ScalarNode(operation, dtype, tuple(argument.index for argument in arguments), detail)
        # -0.0 equals 0.0, True equals 1, and NaN not itself: their spellings tell them apart.
        index = self._places.setdefault((node, repr(detail)), len(self.nodes))
        if index == len(self.nodes):
            self.nodes.append(node)
        return ScalarValue(self, index)

    def constant(self, number: Any, dtype: str) -> ScalarValue:
        """A number as a value of `dtype`; raises Refused for what the type cannot hold."""
        if dtype == BOOL:
            return self.add("constant", BOOL, (), bool(number))
        if dtype in FLOATS:
            with np.errstate(over="ignore"):
                return self.add("constant", dtype, (), float(np.dtype(dtype).type(number)))
        limits = np.iinfo(dtype)
        if not math.isfinite(number) or number != int(number):
            raise Refused(f"{number!r} in a map of {dtype}", "whole numbers only")
        if not limits.min <= number <= limits.max:
            raise Refused(f"{number!r} does not fit {dtype}")
        return self.add("constant", dtype, (), int(number))

    def describe(self) -> str:
        """Every node on a line: equal texts are equal functions."""
        return "\n".join(
            f"{node.operation} {node.dtype} {node.arguments} {node.detail!r}" for node in self.nodes
        )


def contexts(graph: ScalarGraph, result: int) -> dict[int, tuple[int, ...]]:
    """Every node that the result needs, with the choices that it is needed under.

    They are the `rarely` nodes, outermost first, whose rare value all ways to the result pass.
    """
    found: dict[int, tuple[int, ...]] = {result: ()}
    for index in range(result, -1, -1):
        if index not in found:
            continue
        node = graph.nodes[index]
        for position, argument in enumerate(node.arguments):
            rare = node.operation == "rarely" and position == 1
            choices = (*found[index], index) if rare else found[index]
            known = found.get(argument, choices)
            pairs = enumerate(zip(choices, known, strict=False))
            length = min(len(choices), len(known))
            apart = next((place for place, (one, other) in pairs if one != other), length)
            found[argument] = choices[:apart]
    return found


@dataclass(frozen=True, eq=False)
class ScalarValue:
    """What a map's function sees in place of numbers.

    Python's operators make nodes; numbers beside a value take its type, truth values count as 0
    and 1. A value has no truth of its own: choices are `where`.
    """

    graph: ScalarGraph
    index: int

    @property
    def node(self) -> ScalarNode:
        """The operation that gives the value."""
        return self.graph.nodes[self.index]

    @property
    def dtype(self) -> str:
        """The type of the value."""
        return self.node.dtype

    def constant(self, number: Any) -> ScalarValue:
        """A number beside this value, as a value of its type."""
        return self.graph.constant(number, self.dtype)

    def make(self, operation: str, *others: ScalarValue, dtype: str | None = None) -> ScalarValue:
        """A node that reads this value and others; its type is this value's if not given."""
        return self.graph.add(operation, dtype or self.dtype, (self, *others))

    def convert(self, dtype: str) -> ScalarValue:
        """The value as a number of another type; other numbers than 0 are true."""
        if dtype == self.dtype:
            return self
        node = self.node
        if node.operation == "constant":
            return self.graph.constant(node.detail, dtype)
        return self != 0 if dtype == BOOL else self.make("convert", dtype=dtype)

    def __add__(self, other: Any) -> ScalarValue:
        return arithmetic("add", self, other)

    def __radd__(self, other: Any) -> ScalarValue:
        return arithmetic("add", other, self)

    def __sub__(self, other: Any) -> ScalarValue:
        return arithmetic("subtract", self, other)

    def __rsub__(self, other: Any) -> ScalarValue:
        return arithmetic("subtract", other, self)

    def __mul__(self, other: Any) -> ScalarValue:
        return arithmetic("multiply", self, other)

    def __rmul__(self, other: Any) -> ScalarValue:
        return arithmetic("multiply", other, self)

    def __truediv__(self, other: Any) -> ScalarValue:
        return _divided(self, other)

    def __rtruediv__(self, other: Any) -> ScalarValue:
        return _divided(other, self)

    def __pow__(self, other: Any) -> ScalarValue:
        if not isinstance(other, ScalarValue) and other == 2:
            return self * self
        return arithmetic("pow", self, other)

    def __rpow__(self, other: Any) -> ScalarValue:
        return arithmetic("pow", other, self)

    def __and__(self, other: Any) -> ScalarValue:
        return arithmetic("and", self, other)

    def __rand__(self, other: Any) -> ScalarValue:
        return arithmetic("and", other, self)

    def __or__(self, other: Any) -> ScalarValue:
        return arithmetic("or", self, other)

    def __ror__(self, other: Any) -> ScalarValue:
        return arithmetic("or", other, self)

    def __xor__(self, other: Any) -> ScalarValue:
        return arithmetic("xor", self, other)

    def __rxor__(self, other: Any) -> ScalarValue:
        return arithmetic("xor", other, self)

    def __lshift__(self, other: Any) -> ScalarValue:
        return arithmetic("shift_left", self, other)

    def __rshift__(self, other: Any) -> ScalarValue:
        return arithmetic("shift_right", self, other)

    def __invert__(self) -> ScalarValue:
        return self ^ (True if self.dtype == BOOL else -1)

    def __neg__(self) -> ScalarValue:
        return self.make("negative")

    def __pos__(self) -> ScalarValue:
        return self

    def __abs__(self) -> ScalarValue:
        return self.make("abs")

    def __lt__(self, other: Any) -> ScalarValue:
        return arithmetic("less", self, other)

    def __gt__(self, other: Any) -> ScalarValue:
        return arithmetic("less", other, self)

    def __le__(self, other: Any) -> ScalarValue:
        return arithmetic("less_equal", self, other)

    def __ge__(self, other: Any) -> ScalarValue:
        return arithmetic("less_equal", other, self)

    def __eq__(self, other: Any) -> ScalarValue:  # type: ignore[override]
        return arithmetic("equal", self, other)

    def __ne__(self, other: Any) -> ScalarValue:  # type: ignore[override]
        return arithmetic("not_equal", self, other)

    def __bool__(self) -> bool:
        raise Refused(
            "a compiled map cannot branch on a value (if, and, or, not, max, min, x if c else y)",
            "where(c, x, y) chooses; maximum, minimum, logical_and, logical_or, logical_not",
        )

    def __float__(self) -> float:
        raise Refused(
            "a value of a compiled map is no Python number",
            "call the vocabulary of mxrun.operator.scalar, not math",
        )

    __int__ = __index__ = __float__

    def __array_ufunc__(
        self, function: Any, method: str, *inputs: Any, **options: Any
    ) -> ScalarValue:
        """NumPy's numbers beside a value; any other function of NumPy is refused."""
        name = function.__name__
        if method == "__call__" and not options and name in _UFUNCS:
            # As Python's numbers, or they would ask here again.
            return _UFUNCS[name](*(x.item() if isinstance(x, np.generic) else x for x in inputs))
        raise Refused(f"numpy.{name} in a compiled map", name=name)


_UFUNCS: dict[str, Callable[..., ScalarValue]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "power": operator.pow,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}

_COMPARISONS = ("less", "less_equal", "equal", "not_equal")
_LOGICAL = ("and", "or", "xor")


def arithmetic(operation: str, *operands: Any) -> ScalarValue:
    """A node whose operands have one type: that of the first that is no truth value or number.

    Integers of several types take the widest.
    """
    values = [operand for operand in operands if isinstance(operand, ScalarValue)]
    graph = values[0].graph
    numbers = [value.dtype for value in values if value.dtype != BOOL]
    dtype = numbers[0] if numbers else BOOL
    if not set(numbers) & {*FLOATS}:
        dtype = max(numbers, key=lambda kind: np.dtype(kind).itemsize, default=BOOL)
    plain = [operand for operand in operands if not isinstance(operand, ScalarValue)]
    if dtype == BOOL and operation not in (*_LOGICAL, *_COMPARISONS[2:]):
        raise Refused(f"{operation} of truth values", "where(c, 1, 0) makes numbers of them")
    if operation in _LOGICAL and dtype in FLOATS:
        raise Refused(f"{operation} of {dtype} values", "logical_and, logical_or, logical_not")
    for number in plain:
        if not isinstance(number, (bool, int, float, np.number, np.bool_)):
            raise Refused(f"{operation} with {type(number).__name__}")
    arguments = tuple(
        operand.convert(dtype)
        if isinstance(operand, ScalarValue)
        else graph.constant(operand, dtype)
        for operand in operands
    )
    found = {argument.dtype for argument in arguments}
    if found != {dtype}:
        raise Refused(f"{operation} of {', '.join(sorted(found))}")
    return graph.add(operation, BOOL if operation in _COMPARISONS else dtype, arguments)


def _divided(left: Any, right: Any) -> ScalarValue:
    quotient = arithmetic("divide", left, right)
    if quotient.dtype not in FLOATS:
        raise Refused(f"a quotient of {quotient.dtype} values", "only of floating-point maps")
    return quotient
