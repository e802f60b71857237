"""Code of basic intrinsics, declared in `intrinsics`, and of functions of Python and NumPy."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from llvmlite import ir

from mxrun.codegen import intrinsics, llvm_block, philox, scalar_logarithm
from mxrun.codegen.llvm_target import call_function
from mxrun.codegen.scalar_operations import float64_code
from mxrun.codegen.sequential import half_warp
from mxrun.codegen.sequential.arithmetic import Untyped, converted, extreme
from mxrun.codegen.sequential.intrinsic import Intrinsic, number, operand_of, typed
from mxrun.codegen.sequential.kinds import (
    BFLOAT16,
    BLOCK,
    BOOL,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    NOTHING,
    NUMBERS,
    TABLE,
    UINT8,
    UINT64,
    Kind,
    Operand,
    Pointer,
    Record,
    Static,
    TypedValue,
)
from mxrun.codegen.target import is_card
from mxrun.codegen.vectors import LANES

_WORD = ir.IntType(64)


def _word(builder: Any, table: Any, index: Any) -> Any:
    """Load an entry of a table as 64 bits."""
    return builder.load(builder.gep(table, [index]))


def _pointer_reader(element: Kind) -> Intrinsic:
    kind = Pointer(element)

    @typed(kind, TABLE, INT64)
    def read_pointer(builder: Any, table: Any, index: Any) -> Any:
        return llvm_block.address(builder, _word(builder, table, index), kind.code)

    return read_pointer


@typed(FLOAT32, TABLE, INT64)
def real(builder: Any, table: Any, index: Any) -> Any:
    """Load the lower half of the entry as a float32."""
    bits = builder.trunc(_word(builder, table, index), ir.IntType(32))
    return builder.bitcast(bits, FLOAT32.code)


def share(builder: Any, count: Operand) -> Operand:
    """Compute the task's part of `count` elements."""
    begin, end = llvm_block.share(builder, operand_of(builder, count, INT64))
    return TypedValue(INT64, begin), TypedValue(INT64, end)


def current_task(builder: Any) -> Operand:
    """Take the function's arguments."""
    _, task, tasks, _ = builder.function.args
    return TypedValue(INT64, task), TypedValue(INT64, tasks)


@typed(INT64)
def worker(builder: Any) -> Any:
    """Take the function's argument."""
    return builder.function.args[3]


@typed(INT64, BLOCK, INT64, INT64)
def fetch_add(builder: Any, counters: Any, index: Any, value: Any) -> Any:
    """Add with sequential consistency: what was written before is seen by who reads the sum."""
    return builder.atomic_rmw("add", builder.gep(counters, [index]), value, "seq_cst")


@typed(INT64, BLOCK, INT64, INT64, INT64)
def exchange_word(builder: Any, words: Any, index: Any, expected: Any, value: Any) -> Any:
    """Compare and exchange with sequential consistency."""
    place = builder.gep(words, [index])
    pair = builder.cmpxchg(place, expected, value, "seq_cst", "seq_cst")
    return builder.extract_value(pair, 0)


@typed(INT64, BLOCK, INT64)
def load_word(builder: Any, words: Any, index: Any) -> Any:
    """Load so that later reads come after it."""
    return builder.load_atomic(builder.gep(words, [index]), "acquire", 8)


@typed(None, BLOCK, INT64, INT64)
def store_word(builder: Any, words: Any, index: Any, value: Any) -> Any:
    """Store so that earlier writes come before it."""
    builder.store_atomic(value, builder.gep(words, [index]), "release", 8)


@typed(None)
def spin(builder: Any) -> Any:
    """Execute the processor's instruction for polling loops; ISB SY takes about as long."""
    if os.uname().machine == "aarch64":
        call_function(builder, "llvm.aarch64.isb", ir.VoidType(), [ir.Constant(INT32.code, 15)])
    else:
        call_function(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])


@typed(INT64, *[INT64] * 7)
def call_address(builder: Any, function: Any, *arguments: Any) -> Any:
    """Call a C function through an integer address."""
    kind = ir.FunctionType(_WORD, [_WORD] * 6)
    return builder.call(builder.inttoptr(function, kind.as_pointer()), arguments)


def map_symbol(number: int) -> str:
    """Return the name of the function of a map."""
    return f"map_{number}"


def run_map(builder: Any, call: Operand, number: Operand, words: Operand, at: Operand) -> Operand:
    """Call the function of a map, whose code becomes part of the object."""
    index = operand_of(builder, number, INT64)
    if not isinstance(call, Static) or not isinstance(call.content, Record):
        raise Untyped("maps are those of the function's arguments")
    block = builder.gep(operand_of(builder, words, BLOCK), [operand_of(builder, at, INT64)])
    after = builder.append_basic_block("mapped")
    choice = builder.switch(index, after)
    for each in range(call.content.maps):
        case = builder.append_basic_block("map")
        choice.add_case(INT64.code(each), case)
        builder.position_at_end(case)
        function = llvm_block.function_of(builder.module, map_symbol(each))
        if is_card():
            half_warp.wait(builder)
            builder.call(function, [block, half_warp.lane(builder, _WORD), _WORD(LANES), _WORD(0)])
            half_warp.wait(builder)
        else:
            # One task, which is the first, of the first worker.
            builder.call(function, [block, _WORD(0), _WORD(1), _WORD(0)])
        builder.branch(after)
    builder.position_at_end(after)
    return NOTHING


@typed(FLOAT32, FLOAT32, FLOAT32)
def clipped(builder: Any, value: Any, limit: Any) -> Any:
    """Clip the value to [-limit, limit]; NaN if it is not finite."""
    low = builder.fneg(limit)
    raised = builder.select(builder.fcmp_ordered(">", low, value), low, value)
    found = builder.select(builder.fcmp_ordered("<", limit, raised), limit, raised)
    # value - value is 0 for finite values and NaN for others: no branch, so that loops are
    # vectorised.
    return builder.fadd(found, builder.fsub(value, value))


def random_words(builder: Any, key: Operand, step: Operand, position: Operand) -> Operand:
    """Compute Philox4x32-10 of the counter (position, step)."""
    given = (operand_of(builder, each, INT64) for each in (key, step, position))
    return tuple(TypedValue(UINT64, word) for word in _philox(builder, *given))


def _philox(builder: Any, key: Any, step: Any, position: Any) -> list[Any]:
    """Generate code for the four words of one counter, as 64-bit values.

    The 32-bit values are in 64-bit registers, where their products are exact, and the rounds are
    unrolled: LLVM vectorises a loop over `position`.
    """
    half, low = ir.Constant(_WORD, 32), ir.Constant(_WORD, 0xFFFFFFFF)
    x = [part for word in (position, step) for part in _halves(builder, word)]
    keys = _halves(builder, key)
    for turn in range(philox.ROUNDS):
        if turn:
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


def _cast(kind: Kind) -> Intrinsic:
    def cast(builder: Any, value: Operand) -> Operand:
        return converted(builder, number(value), kind)

    return cast


def _extreme(sign: str) -> Intrinsic:
    def find(builder: Any, *values: Operand) -> Operand:
        if len(values) < 2:
            raise Untyped("min and max need two numbers")
        return extreme(builder, sign, list(map(number, values)))

    return find


def _function(name: str) -> Intrinsic:
    """Return an intrinsic of LLVM for one float; of an integer it is that of the float64."""

    def call(builder: Any, value: Operand) -> Operand:
        given = number(value)
        kind = FLOAT32 if given.kind == FLOAT32 else FLOAT64
        code = converted(builder, given, kind).code
        full = f"llvm.{name}.{'f32' if kind == FLOAT32 else 'f64'}"
        return TypedValue(kind, call_function(builder, full, kind.code, [code]))

    return call


def _logarithm(builder: Any, value: Operand) -> Operand:
    """Compute in float64; the logarithm of a float32 number is rounded once."""
    given = number(value)
    wide = converted(builder, given, FLOAT64).code
    result = TypedValue(FLOAT64, float64_code(builder, scalar_logarithm.log, wide))
    return converted(builder, result, FLOAT32) if given.kind == FLOAT32 else result


def _absolute(builder: Any, value: Operand) -> Operand:
    given = number(value)
    if isinstance(given.kind, Kind) and given.kind.is_float:
        return _function("fabs")(builder, given)
    if given.kind == UINT64:
        return given
    code = converted(builder, given, INT64).code
    negative = builder.icmp_signed("<", code, _WORD(0))
    return TypedValue(INT64, builder.select(negative, builder.neg(code), code))


@typed(BOOL, FLOAT64)
def _is_nan(builder: Any, value: Any) -> Any:
    return builder.fcmp_unordered("uno", value, value)


BASIC: dict[Any, Intrinsic] = {
    intrinsics.bfloat16s: _pointer_reader(BFLOAT16),
    intrinsics.call_address: call_address,
    intrinsics.clipped: clipped,
    intrinsics.current_task: current_task,
    # Loops over `each` are statements; elsewhere it is nothing.
    intrinsics.each: typed(None, INT64, INT64, INT64)(lambda *_: None),
    intrinsics.exchange_word: exchange_word,
    intrinsics.fetch_add: fetch_add,
    intrinsics.float32s: _pointer_reader(FLOAT32),
    intrinsics.float64s: _pointer_reader(FLOAT64),
    intrinsics.load_word: load_word,
    intrinsics.int32s: _pointer_reader(INT32),
    intrinsics.int64s: _pointer_reader(INT64),
    intrinsics.integer: typed(INT64, TABLE, INT64)(_word),
    intrinsics.random_words: random_words,
    intrinsics.real: real,
    intrinsics.run_map: run_map,
    intrinsics.share: share,
    intrinsics.spin: spin,
    intrinsics.store_word: store_word,
    intrinsics.uint8s: _pointer_reader(UINT8),
    intrinsics.worker: worker,
    **{number_type: _cast(kind) for number_type, kind in NUMBERS.items()},
    min: _extreme("<"),
    max: _extreme(">"),
    abs: _absolute,
    math.sqrt: _function("sqrt"),
    np.sqrt: _function("sqrt"),
    math.log: _logarithm,
    math.isnan: _is_nan,
}
# Those that each thread of a card can call by itself.
SCALAR = BASIC.keys() - {intrinsics.run_map}
