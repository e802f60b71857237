"""Scalar expression graphs, recorded by calling a Python function with `ScalarValue` arguments.

Nodes are interned, which eliminates common subexpressions. Two kinds of operations share one form:
scalar functions (exp, tanh, where, ...), in which a map's function is written, and machine
operations (fused multiply-add, bits, shifts), to which `scalar_lowering` converts them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from mxrun.base.dataclass import dataclass

BOOL = "bool"
FLOATS = ("float32", "float64")
# Types for which a map may be compiled.
MAP_DTYPES = (*FLOATS, "int32", "int64", "uint8")

Number = bool | int | float


def number_dtype(dtype: str) -> str:
    """Return the type of Python numbers in a map: the operands' type, but int64 for integers.

    Numbers that do not fit uint8 can then be compared with it, and sums and products have the bits
    of arithmetic modulo a power of two.
    """
    return dtype if dtype in FLOATS else "int64"


def to_int64(number: float) -> int:
    """Convert a number to int64: truncated, clamped to the range, 0 for NaN."""
    limits = np.iinfo(np.int64)
    if math.isnan(number):
        return 0
    within = max(min(number, float(limits.max)), float(limits.min))
    return min(int(within), int(limits.max))


class UnsupportedMap(Exception):
    """Operation on a value that no compiled map can perform."""

    def __init__(self, problem: str, hint: str = "", name: str = "") -> None:
        super().__init__(problem)
        self.problem, self.hint, self.name = problem, hint, name


@dataclass(frozen=True)
class LoopForm:
    """Form of a map's loop.

    dtype: type of the operands.
    steps: step of each operand: 1, or 0 for a single element that is broadcast.
    adds: for each output, whether the result is added to it instead of replacing it.
    result_dtypes: type of each output; empty: that of the operands.
    stored: types in memory of each output and each operand, if some float32 tensors are stored as
        bfloat16.
    in_place: whether the outputs usually overwrite operands, which are read anyway.
    """

    dtype: str
    steps: tuple[int, ...]
    adds: tuple[bool, ...] = (False,)
    result_dtypes: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()
    in_place: bool = False

    @property
    def output_dtypes(self) -> tuple[str, ...]:
        """Type of each output."""
        return self.result_dtypes or (self.dtype,) * len(self.adds)

    @property
    def memory(self) -> tuple[str, ...]:
        """Types in memory of each output and each operand."""
        return self.stored or (*self.output_dtypes, *(self.dtype,) * len(self.steps))


@dataclass(frozen=True)
class ScalarNode:
    """One operation: result type, indices of the argument nodes, and a constant."""

    operation: str
    dtype: str
    arguments: tuple[int, ...] = ()
    detail: Number | tuple[float, ...] | None = None


@dataclass
class ScalarGraph:
    """Nodes in topological order.

    instructions: the machine's optional operations, for a graph of machine operations.
    """

    instructions: frozenset[str] = frozenset()
    nodes: list[ScalarNode] = field(default_factory=list)
    _places: dict[tuple[ScalarNode, str], int] = field(default_factory=dict)

    def add(
        self,
        operation: str,
        dtype: str,
        arguments: tuple[ScalarValue, ...] = (),
        detail: Number | tuple[float, ...] | None = None,
    ) -> ScalarValue:
        """Return the value of a node, which is created unless an equal one exists."""
        node = ScalarNode(operation, dtype, tuple(argument.index for argument in arguments), detail)
        # repr distinguishes -0.0 from 0.0 and True from 1, and makes NaN equal to itself.
        index = self._places.setdefault((node, repr(detail)), len(self.nodes))
        if index == len(self.nodes):
            self.nodes.append(node)
        return ScalarValue(self, index)

    def constant(self, number: Any, dtype: str) -> ScalarValue:
        """Return a constant of type `dtype`; raises Refused if the type cannot represent it."""
        if dtype == BOOL:
            return self.add("constant", BOOL, (), bool(number))
        if dtype in FLOATS:
            with np.errstate(over="ignore"):
                return self.add("constant", dtype, (), float(np.dtype(dtype).type(number)))
        limits = np.iinfo(dtype)
        if not math.isfinite(number) or number != int(number):
            raise UnsupportedMap(f"{number!r} in a map of {dtype}", "integers only")
        if not limits.min <= number <= limits.max:
            raise UnsupportedMap(f"{number!r} does not fit {dtype}")
        return self.add("constant", dtype, (), int(number))

    def describe(self) -> str:
        """Return one line per node: equal texts mean equal functions."""
        return "\n".join(
            f"{node.operation} {node.dtype} {node.arguments} {node.detail!r}" for node in self.nodes
        )


def rare_contexts(graph: ScalarGraph, results: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return every node that the results need, with the choices under which it is needed.

    Choices are the `rarely` nodes, outermost first, whose rare value is on all paths from the node
    to a result.
    """
    found: dict[int, tuple[int, ...]] = dict.fromkeys(results, ())
    for index in range(max(results), -1, -1):
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
    """Symbolic number with which a map's function is called.

    Python's operators create nodes. Numbers combined with a value take its type; truth values count
    as 0 and 1. A value has no truth value of its own: use `where` for choices.
    """

    graph: ScalarGraph
    index: int

    @property
    def node(self) -> ScalarNode:
        """Operation that computes the value."""
        return self.graph.nodes[self.index]

    @property
    def dtype(self) -> str:
        """Type of the value."""
        return self.node.dtype

    def constant(self, number: Any) -> ScalarValue:
        """Return a number as a value of this value's type."""
        return self.graph.constant(number, self.dtype)

    def make(self, operation: str, *others: ScalarValue, dtype: str | None = None) -> ScalarValue:
        """Return a node that reads this value and others; its type is this value's by default."""
        return self.graph.add(operation, dtype or self.dtype, (self, *others))

    def convert(self, dtype: str) -> ScalarValue:
        """Convert to another type; numbers other than 0 are true."""
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
        raise UnsupportedMap(
            "a compiled map cannot branch on a value (if, and, or, not, max, min, x if c else y)",
            "use where(c, x, y), maximum, minimum, logical_and, logical_or, logical_not",
        )

    def __float__(self) -> float:
        raise UnsupportedMap(
            "a value of a compiled map is not a Python number",
            "call the functions of mxrun.operator.scalar, not math",
        )

    __int__ = __index__ = __float__

    def __array_ufunc__(
        self, function: Any, method: str, *inputs: Any, **options: Any
    ) -> ScalarValue:
        """Apply an operator to NumPy scalars and values; refuse all other NumPy functions."""
        name = function.__name__
        if method == "__call__" and not options and name in _UFUNCS:
            # Converted to Python numbers, because NumPy scalars would call this method again.
            return _UFUNCS[name](*(x.item() if isinstance(x, np.generic) else x for x in inputs))
        raise UnsupportedMap(f"numpy.{name} in a compiled map", name=name)


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
    """Return a node whose operands are converted to one type.

    The type is that of the first operand that is neither a truth value nor a Python number;
    integers of several types take the widest.
    """
    values = [operand for operand in operands if isinstance(operand, ScalarValue)]
    graph = values[0].graph
    numbers = [value.dtype for value in values if value.dtype != BOOL]
    dtype = numbers[0] if numbers else BOOL
    if not set(numbers) & {*FLOATS}:
        dtype = max(numbers, key=lambda kind: np.dtype(kind).itemsize, default=BOOL)
    plain = [operand for operand in operands if not isinstance(operand, ScalarValue)]
    if dtype == BOOL and operation not in (*_LOGICAL, *_COMPARISONS[2:]):
        raise UnsupportedMap(
            f"{operation} of truth values", "where(c, 1, 0) converts them to numbers"
        )
    if operation in _LOGICAL and dtype in FLOATS:
        raise UnsupportedMap(
            f"{operation} of {dtype} values", "logical_and, logical_or, logical_not"
        )
    for number in plain:
        if not isinstance(number, (bool, int, float, np.number, np.bool_)):
            raise UnsupportedMap(f"{operation} with {type(number).__name__}")
    arguments = tuple(
        operand.convert(dtype)
        if isinstance(operand, ScalarValue)
        else graph.constant(operand, dtype)
        for operand in operands
    )
    found = {argument.dtype for argument in arguments}
    if found != {dtype}:
        raise UnsupportedMap(f"{operation} of {', '.join(sorted(found))}")
    return graph.add(operation, BOOL if operation in _COMPARISONS else dtype, arguments)


def _divided(left: Any, right: Any) -> ScalarValue:
    quotient = arithmetic("divide", left, right)
    if quotient.dtype not in FLOATS:
        raise UnsupportedMap(
            f"a quotient of {quotient.dtype} values", "only floating-point maps support it"
        )
    return quotient
