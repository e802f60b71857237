"""numba implementations of the intrinsics that are declared in `jit`.

Imported only when a function must be compiled, because importing numba takes a quarter of a second.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from mxrun.backend import philox
from mxrun.backend.call import HEADER_SLOTS
from mxrun.backend.reduction_intrinsics import REDUCTIONS
from mxrun.backend.scan_intrinsics import SCANS
from mxrun.backend.vector_intrinsics import VECTORS

_WORD = ir.IntType(64)


def _slot(builder: Any, arguments: Any) -> Any:
    """Generate code that loads argument `index` of a block."""
    block, index = arguments
    position = builder.add(index, ir.Constant(index.type, HEADER_SLOTS))
    return builder.load(builder.gep(block, [position]))


def _pointer_reader(element: Any) -> Any:
    @intrinsic
    def read_pointer(typing_context: Any, block: Any, index: Any) -> Any:
        result = types.CPointer(element)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(_slot(builder, arguments), context.get_value_type(result))

        return result(block, types.int64), generate

    return read_pointer


bfloat16s = _pointer_reader(types.uint16)
float32s = _pointer_reader(types.float32)
float64s = _pointer_reader(types.float64)
int32s = _pointer_reader(types.int32)
int64s = _pointer_reader(types.int64)
uint8s = _pointer_reader(types.uint8)


@intrinsic
def integer(typing_context: Any, block: Any, index: Any) -> Any:
    """Load the slot unchanged."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _slot(builder, arguments)

    return types.int64(block, types.int64), generate


@intrinsic
def real(typing_context: Any, block: Any, index: Any) -> Any:
    """Load the lower half of the slot as a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.trunc(_slot(builder, arguments), ir.IntType(32))
        return builder.bitcast(value, ir.FloatType())

    return types.float32(block, types.int64), generate


def _runtime_call(position: int, otherwise: int) -> Any:
    @intrinsic
    def call_runtime(typing_context: Any, block: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            slot = builder.gep(arguments[0], [ir.Constant(_WORD, position)])
            address = builder.load(slot)
            number = cgutils.alloca_once_value(builder, ir.Constant(_WORD, otherwise))
            with builder.if_then(builder.icmp_unsigned("!=", address, address.type(0))):
                function = ir.FunctionType(ir.IntType(32), [])
                pointer = builder.inttoptr(address, function.as_pointer())
                builder.store(builder.sext(builder.call(pointer, []), _WORD), number)
            return builder.load(number)

        return types.int64(block), generate

    return call_runtime


# Both call the runtime's function in the block's header; without one, the team has one thread.
_thread_number = _runtime_call(0, otherwise=0)
_team_size = _runtime_call(1, otherwise=1)


@intrinsic
def call_address(
    typing_context: Any, function: Any, a0: Any, a1: Any, a2: Any, a3: Any, a4: Any, a5: Any
) -> Any:
    """Call a C function through an integer address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_WORD, [_WORD] * 6)
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.int64(*[types.int64] * 7), generate


@njit
def share(block: Any, count: Any) -> Any:
    """Return the calling thread's part of `count` elements."""
    team = _team_size(block)
    # A chunk is a multiple of 16 elements, so that no two threads write to one cache line.
    chunk = (count + team * 16 - 1) // (team * 16) * 16
    begin = min(count, _thread_number(block) * chunk)
    return begin, min(count, begin + chunk)


@njit
def clipped(value: Any, limit: Any) -> Any:
    """Clip the value to [-limit, limit]; NaN if it is not finite."""
    # value - value is 0 for finite values and NaN for others: no branch, so that loops are
    # vectorised.
    return min(max(value, -limit), limit) + (value - value)


def _philox(builder: Any, key: Any, step: Any, number: Any) -> list[Any]:
    """Generate code for the four words of one counter, as 64-bit values.

    The 32-bit values are in 64-bit registers, where their products are exact, and the rounds are
    unrolled: LLVM vectorises a loop over `number`.
    """
    half, low = ir.Constant(_WORD, 32), ir.Constant(_WORD, 0xFFFFFFFF)
    x = [part for word in (number, step) for part in _halves(builder, word)]
    keys = _halves(builder, key)
    for round_number in range(philox.ROUNDS):
        if round_number:
            raised = zip(keys, (philox.W0, philox.W1), strict=True)
            keys = [builder.and_(builder.add(k, ir.Constant(_WORD, w)), low) for k, w in raised]
        p0 = builder.mul(x[0], ir.Constant(_WORD, philox.M0))
        p1 = builder.mul(x[2], ir.Constant(_WORD, philox.M1))
        x = [
            builder.xor(builder.xor(builder.lshr(p1, half), x[1]), keys[0]),
            builder.and_(p1, low),
            builder.xor(builder.xor(builder.lshr(p0, half), x[3]), keys[1]),
            builder.and_(p0, low),
        ]
    return x


def _halves(builder: Any, word: Any) -> list[Any]:
    """Return the lower and the upper 32 bits."""
    lower = builder.and_(word, ir.Constant(_WORD, 0xFFFFFFFF))
    return [lower, builder.lshr(word, ir.Constant(_WORD, 32))]


@intrinsic
def random_words(typing_context: Any, key: Any, step: Any, number: Any) -> Any:
    """Compute Philox4x32-10 of the counter (number, step)."""
    result = types.UniTuple(types.uint64, 4)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_tuple(builder, result, _philox(builder, *arguments))

    return result(types.int64, types.int64, types.int64), generate


VOCABULARY = {
    "bfloat16s": bfloat16s,
    "call_address": call_address,
    "clipped": clipped,
    "float32s": float32s,
    "float64s": float64s,
    "int32s": int32s,
    "int64s": int64s,
    "integer": integer,
    "random_words": random_words,
    "real": real,
    "share": share,
    "uint8s": uint8s,
    **REDUCTIONS,
    **SCANS,
    **VECTORS,
}
