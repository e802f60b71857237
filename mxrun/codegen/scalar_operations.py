"""LLVM code of the machine operations of `scalar_instructions`.

They work on vectors of `LANES` elements, or on numbers and shorter vectors of native functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from mxrun.base.dtype import BFLOAT16
from mxrun.codegen.llvm_target import call_function, call_lanewise, like
from mxrun.codegen.processor import processor
from mxrun.codegen.scalar_instructions import AVX512, FMA, ROUNDING
from mxrun.codegen.scalar_value import BOOL, FLOATS, ScalarGraph, ScalarNode, ScalarValue

# Elements of a vector. Two registers of 512 bits side by side hide the latency of long dependency
# chains (tanh over 3 million floats: 1.05 ms, with one 1.32); float64 takes four.
LANES = 32

# Float32 elements of an AVX-512 instruction.
_REGISTER = 16

WORD = ir.IntType(64)
INDEX = ir.IntType(32)
TYPES: dict[str, Any] = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    "int32": ir.IntType(32),
    "int64": WORD,
    "uint8": ir.IntType(8),
    BOOL: ir.IntType(1),
    # Only in memory.
    BFLOAT16: ir.IntType(16),
}
SIZES = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1, BFLOAT16: 2}
_SIGNED = ("int32", "int64")


def vector_of(element: Any, count: int = LANES) -> Any:
    """Return the type of a vector."""
    return ir.VectorType(element, count)


def instructions() -> frozenset[str]:
    """Return the optional operations of the processor."""
    chosen = processor()
    # Processors other than x86's have both, under other names.
    is_plain = chosen.has("sse2") and not chosen.has("fma")
    found = frozenset() if is_plain else frozenset({FMA, ROUNDING})
    return found | AVX512 if chosen.has("avx512f") else found


def float64_code(
    builder: Any, function: Callable[[ScalarValue], ScalarValue], argument: Any
) -> Any:
    """Generate the code of a function without rare elements, of a float64 number or vector."""
    graph = ScalarGraph(instructions())
    result = function(graph.add("operand", "float64", (), 0))
    count = argument.type.count if isinstance(argument.type, ir.VectorType) else 0
    operations = OperationGenerator(builder, count)
    values: list[Any] = []
    for node in graph.nodes:
        if node.operation == "operand":
            values.append(argument)
        elif node.operation == "constant":
            values.append(operations.constant(node))
        else:
            sources = [graph.nodes[index].dtype for index in node.arguments]
            own = [values[index] for index in node.arguments]
            values.append(operations.computed(node, sources, own))
    return values[result.index]


class OperationGenerator:
    """Generator of the code of single operations, of vectors of `count` elements or of numbers.

    count: 0 for numbers.
    """

    def __init__(self, builder: Any, count: int = LANES) -> None:
        self.builder, self.count = builder, count

    def constant(self, node: ScalarNode) -> Any:
        """Return a constant."""
        element = TYPES[node.dtype]
        if not self.count:
            return ir.Constant(element, node.detail)
        return ir.Constant(vector_of(element, self.count), [node.detail] * self.count)

    def computed(self, node: ScalarNode, sources: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Return the result of an operation; `sources` are the types of its arguments."""
        element = TYPES[node.dtype]
        result = vector_of(element, self.count) if self.count else element
        builder, operation = self.builder, node.operation
        if operation in _AVX512:
            return self._avx512(operation, arguments)
        if operation == "lookup":
            return self._looked_up(node, arguments[0])
        if operation in _INTRINSICS:
            return call_lanewise(builder, _INTRINSICS[operation], *arguments)
        if operation in _COMPARISONS:
            return self._compared(_COMPARISONS[operation], sources[0], arguments)
        if operation == "select":
            return builder.select(*arguments)
        if operation == "bits":
            return builder.bitcast(arguments[0], result)
        if operation == "convert":
            return self._converted(arguments[0], sources[0], node.dtype, result)
        if operation == "negative":
            return (builder.fneg if node.dtype in FLOATS else builder.neg)(arguments[0])
        floating, integral = _ARITHMETIC[operation]
        return getattr(builder, floating if node.dtype in FLOATS else integral)(*arguments)

    def _avx512(self, operation: str, arguments: Sequence[Any]) -> Any:
        """Call a masked AVX-512 intrinsic.

        Its arguments are vectors, immediates, the pass-through value, the mask and, if its name
        begins with `mask`, the rounding mode.
        """
        name, numbers = _AVX512[operation]
        register = ir.VectorType(ir.FloatType(), _REGISTER)
        mask = ir.Constant(ir.IntType(_REGISTER), -1)
        constants = [ir.Constant(INDEX, number) for number in numbers]
        # The current rounding mode.
        mode = [ir.Constant(INDEX, 4)] if name.startswith("mask") else []
        parts = []
        for first in range(0, LANES, _REGISTER):
            own = [self._lanes_of(argument, first, _REGISTER) for argument in arguments]
            actual = [*own, *constants, own[0], mask, *mode]
            full = f"llvm.x86.avx512.{name}.ps.512"
            parts.append(call_function(self.builder, full, register, actual))
        return self._joined(parts)

    def _looked_up(self, node: ScalarNode, index: Any) -> Any:
        """Look up entries of a table in two registers."""
        assert isinstance(node.detail, tuple)
        register = ir.VectorType(ir.FloatType(), _REGISTER)
        lower, upper = (
            ir.Constant(register, list(node.detail[first : first + _REGISTER]))
            for first in (0, _REGISTER)
        )
        parts = []
        for first in range(0, LANES, _REGISTER):
            actual = [lower, self._lanes_of(index, first, _REGISTER), upper]
            full = "llvm.x86.avx512.vpermi2var.ps.512"
            parts.append(call_function(self.builder, full, register, actual))
        return self._joined(parts)

    def _lanes_of(self, value: Any, first: int, count: int) -> Any:
        mask = ir.Constant(ir.VectorType(INDEX, count), list(range(first, first + count)))
        return self.builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)

    def _joined(self, parts: Sequence[Any]) -> Any:
        """Concatenate two vectors."""
        first, second = parts
        mask = ir.Constant(ir.VectorType(INDEX, LANES), list(range(LANES)))
        return self.builder.shuffle_vector(first, second, mask)

    def _compared(self, sign: str, dtype: str, arguments: Sequence[Any]) -> Any:
        builder = self.builder
        if dtype in FLOATS:
            compare = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
        else:
            compare = builder.icmp_signed if dtype in _SIGNED else builder.icmp_unsigned
        return compare(sign, *arguments)

    def _converted(self, value: Any, source: str, target: str, result: Any) -> Any:
        builder = self.builder
        if source in FLOATS and target in FLOATS:
            return (builder.fpext if target == "float64" else builder.fptrunc)(value, result)
        if target in FLOATS:
            signed = source in _SIGNED
            return (builder.sitofp if signed else builder.uitofp)(value, result)
        if source in FLOATS and target == "uint8":
            # Like C: by way of an int, of which the lowest bits remain.
            return builder.trunc(builder.fptosi(value, like(result, INDEX)), result)
        if source in FLOATS:
            return builder.fptosi(value, result)
        if TYPES[target].width < TYPES[source].width:
            return builder.trunc(value, result)
        return (builder.sext if source in _SIGNED else builder.zext)(value, result)


_INTRINSICS = {
    "fma": "fma",
    "magnitude": "fabs",
    "copy_sign": "copysign",
    "square_root": "sqrt",
    "nearest_even": "rint",
    "round_down": "floor",
    "round_up": "ceil",
    "truncate": "trunc",
}
# Name and immediate operands. 11 of a mantissa: interval 3/4 to 3/2, NaN for negative numbers.
_AVX512: dict[str, tuple[str, tuple[int, ...]]] = {
    "scale": ("mask.scalef", ()),
    "exponent": ("mask.getexp", ()),
    "mantissa": ("mask.getmant", (11,)),
    "reciprocal": ("rcp14", ()),
    "reciprocal_root": ("rsqrt14", ()),
}
_COMPARISONS = {"less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!="}
_ARITHMETIC = {
    "add": ("fadd", "add"),
    "subtract": ("fsub", "sub"),
    "multiply": ("fmul", "mul"),
    "divide": ("fdiv", ""),
    "and": ("", "and_"),
    "or": ("", "or_"),
    "xor": ("", "xor"),
    "shift_left": ("", "shl"),
    "shift_right": ("", "ashr"),
}
