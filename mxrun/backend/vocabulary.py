"""numba's versions of the names that a native body may use (declared in `jit`).

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
from mxrun.backend.vector_vocabulary import VECTORS

_WORD = ir.IntType(64)


def _slot(builder: Any, arguments: Any) -> Any:
    """Code that loads argument `index` of a block."""
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


float32s = _pointer_reader(types.float32)
float64s = _pointer_reader(types.float64)
int32s = _pointer_reader(types.int32)
int64s = _pointer_reader(types.int64)
uint8s = _pointer_reader(types.uint8)


@intrinsic
def integer(typing_context: Any, block: Any, index: Any) -> Any:
    """The slot as it is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _slot(builder, arguments)

    return types.int64(block, types.int64), generate


@intrinsic
def real(typing_context: Any, block: Any, index: Any) -> Any:
    """The lower half of the slot, read as a float32."""

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


# Both ask the runtime in the block's header; without one, the caller is alone.
_thread_number = _runtime_call(0, otherwise=0)
_team_size = _runtime_call(1, otherwise=1)


@intrinsic
def call_address(
    typing_context: Any, function: Any, a0: Any, a1: Any, a2: Any, a3: Any, a4: Any, a5: Any
) -> Any:
    """A C call through an integer address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_WORD, [_WORD] * 6)
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.int64(*[types.int64] * 7), generate


@njit
def share(block: Any, count: Any) -> Any:
    """The calling thread's part of `count` elements."""
    team = _team_size(block)
    # A chunk is a multiple of 16 elements, so that no two threads write one cache line.
    chunk = (count + team * 16 - 1) // (team * 16) * 16
    begin = min(count, _thread_number(block) * chunk)
    return begin, min(count, begin + chunk)


@njit
def clipped(value: Any, limit: Any) -> Any:
    """The value brought into [-limit, limit]; NaN for one that is not finite."""
    # value - value is 0 for what is finite and NaN for what is not: no branch, so that loops
    # become vector code.
    return min(max(value, -limit), limit) + (value - value)


def _philox(builder: Any, key: Any, step: Any, number: Any) -> list[Any]:
    """Code for the four words of one counter, as 64-bit values.

    32-bit values live in 64-bit registers, where the product of two is exact, and the rounds stand
    one after the other: a loop over `number` becomes vector code.
    """
    half, low = ir.Constant(_WORD, 32), ir.Constant(_WORD, 0xFFFFFFFF)
    x = [part for word in (number, step) for part in _halves(builder, word)]
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
    """The lower and the upper 32 bits."""
    lower = builder.and_(word, ir.Constant(_WORD, 0xFFFFFFFF))
    return [lower, builder.lshr(word, ir.Constant(_WORD, 32))]


@intrinsic
def random_words(typing_context: Any, key: Any, step: Any, number: Any) -> Any:
    """Philox4x32-10 of the counter (number, step)."""
    result = types.UniTuple(types.uint64, 4)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_tuple(builder, result, _philox(builder, *arguments))

    return result(types.int64, types.int64, types.int64), generate


@njit
def arithmetic(kind: Any, left: Any, right: Any) -> Any:
    """The sum, difference, product or quotient, which loops take as selections of vector code."""
    if kind == 0:
        return left + right
    if kind == 1:
        return left - right
    if kind == 2:
        return left * right
    return left / right


# Lanes of a run's vectors, whatever the processor's are: the code generator splits or pads them.
_LANES = 32


def _lanes_of(value: Any, number: float) -> Any:
    """A constant of the value's type: one number, or that in every lane."""
    kind = value.type
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


def _greater(builder: Any, total: Any, value: Any) -> Any:
    above = builder.fcmp_ordered(">", value, total)
    return builder.select(
        builder.or_(above, builder.fcmp_unordered("uno", value, value)), value, total
    )


def _less(builder: Any, total: Any, value: Any) -> Any:
    below = builder.fcmp_ordered("<", value, total)
    return builder.select(
        builder.or_(below, builder.fcmp_unordered("uno", value, value)), value, total
    )


def _plus(builder: Any, total: Any, value: Any) -> Any:
    return builder.fadd(total, value)


def _times(builder: Any, total: Any, value: Any) -> Any:
    return builder.fmul(total, value)


def _itself(builder: Any, value: Any) -> Any:
    return value


def _unless_nan(number: float) -> Any:
    def taken(builder: Any, value: Any) -> Any:
        missing = builder.fcmp_unordered("uno", value, value)
        return builder.select(missing, _lanes_of(value, number), value)

    return taken


def _magnitude(builder: Any, value: Any) -> Any:
    negative = builder.fcmp_ordered("<", value, _lanes_of(value, 0.0))
    return builder.select(negative, builder.fneg(value), value)


def _square(builder: Any, value: Any) -> Any:
    return builder.fmul(value, value)


# (start, what is taken of an element, how two totals become one) of `jit.reduced_run`'s kinds.
_REDUCTIONS = (
    (0.0, _itself, _plus),
    (float("-inf"), _itself, _greater),
    (float("inf"), _itself, _less),
    (1.0, _itself, _times),
    (0.0, _unless_nan(0.0), _plus),
    (1.0, _unless_nan(1.0), _times),
    (0.0, _magnitude, _plus),
    (0.0, _square, _plus),
)


def _joined(builder: Any, join: Any, lanes: Any) -> Any:
    """All lanes as one: the upper half to the lower, until one is left."""
    count = lanes.type.count
    while count > 1:
        count //= 2
        halves = []
        for first in (0, count):
            chosen = [ir.Constant(ir.IntType(32), first + lane) for lane in range(count)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), count), chosen)
            halves.append(builder.shuffle_vector(lanes, lanes, mask))
        lanes = join(builder, *halves)
    return builder.extract_element(lanes, ir.Constant(ir.IntType(32), 0))


def _elements(builder: Any, data: Any, position: Any, count: int) -> Any:
    """The address of `count` elements as one vector."""
    kind = ir.VectorType(data.type.pointee, count)
    return builder.bitcast(builder.gep(data, [position]), kind.as_pointer())


def _reduce_run(builder: Any, reduction: Any, total: Any, data: Any, count: Any) -> None:
    """Code that joins `count` elements to the float64 that `total` points to."""
    start, take, join = reduction
    wide = ir.VectorType(ir.DoubleType(), _LANES)
    width = ir.Constant(_WORD, _LANES)
    turns = builder.sdiv(count, width)
    with builder.if_then(builder.icmp_signed(">", turns, ir.Constant(_WORD, 0))):
        lanes = cgutils.alloca_once(builder, wide)
        builder.store(ir.Constant(wide, [start] * _LANES), lanes)
        with cgutils.for_range(builder, turns) as loop:
            place = _elements(builder, data, builder.mul(loop.index, width), _LANES)
            value = builder.fpext(builder.load(place, align=4), wide)
            builder.store(join(builder, builder.load(lanes), take(builder, value)), lanes)
        whole = _joined(builder, join, builder.load(lanes))
        builder.store(join(builder, builder.load(total), whole), total)
    first = builder.mul(turns, width)
    with cgutils.for_range(builder, builder.sub(count, first)) as loop:
        place = builder.gep(data, [builder.add(first, loop.index)])
        value = builder.fpext(builder.load(place), ir.DoubleType())
        builder.store(join(builder, builder.load(total), take(builder, value)), total)


@intrinsic
def reduced_run(
    typing_context: Any, kind: Any, total: Any, data: Any, position: Any, count: Any
) -> Any:
    """`total` and `count` elements as one, in vectors of a fixed number of lanes."""
    pointer = types.CPointer(types.float32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, before, elements, first, size = arguments
        place = cgutils.alloca_once_value(builder, before)
        run = builder.gep(elements, [first])
        for index, reduction in enumerate(_REDUCTIONS):
            with builder.if_then(builder.icmp_signed("==", number, ir.Constant(_WORD, index))):
                _reduce_run(builder, reduction, place, run, size)
        return builder.load(place)

    word = types.int64
    return types.float64(word, types.float64, pointer, word, word), generate


def _join_rows(builder: Any, reduction: Any, totals: Any, data: Any, count: Any) -> None:
    """Code that joins element i of data to total i, in float32."""
    _, take, join = reduction
    width = ir.Constant(_WORD, _LANES)
    turns = builder.sdiv(count, width)
    first = builder.mul(turns, width)
    with cgutils.for_range(builder, turns) as loop:
        position = builder.mul(loop.index, width)
        place = _elements(builder, totals, position, _LANES)
        value = builder.load(_elements(builder, data, position, _LANES), align=4)
        total = builder.load(place, align=4)
        builder.store(join(builder, total, take(builder, value)), place, align=4)
    with cgutils.for_range(builder, builder.sub(count, first)) as loop:
        position = builder.add(first, loop.index)
        place = builder.gep(totals, [position])
        value = take(builder, builder.load(builder.gep(data, [position])))
        builder.store(join(builder, builder.load(place), value), place)


@intrinsic
def join_rows(
    typing_context: Any, kind: Any, totals: Any, at: Any, data: Any, position: Any, count: Any
) -> Any:
    """Each total and the element beside it as one, for a run of both."""
    pointer = types.CPointer(types.float32)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, results, target, elements, first, size = arguments
        left, right = builder.gep(results, [target]), builder.gep(elements, [first])
        for index, reduction in enumerate(_REDUCTIONS):
            with builder.if_then(builder.icmp_signed("==", number, ir.Constant(_WORD, index))):
                _join_rows(builder, reduction, left, right, size)
        return context.get_dummy_value()

    word = types.int64
    return types.void(word, pointer, word, pointer, word, word), generate


@njit
def reduction_slope(kind: Any, value: Any, result: Any) -> Any:
    """The derivative of a reduction, which loops take as selections of vector code."""
    zero, one = types.float32(0), types.float32(1)
    if kind == 3:
        return result / value
    if kind == 4:
        return zero if value != value else one
    if kind == 5:
        return zero if value != value else result / value
    if kind == 6:
        return (one if value > zero else zero) - (one if value < zero else zero)
    return value / result


VOCABULARY = {
    "arithmetic": arithmetic,
    "call_address": call_address,
    "clipped": clipped,
    "float32s": float32s,
    "float64s": float64s,
    "int32s": int32s,
    "int64s": int64s,
    "integer": integer,
    "join_rows": join_rows,
    "random_words": random_words,
    "real": real,
    "reduced_run": reduced_run,
    "reduction_slope": reduction_slope,
    "share": share,
    "uint8s": uint8s,
    **VECTORS,
}
