"""Code of the reduction intrinsics that are declared in `intrinsics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir

from mxrun.base.dataclass import dataclass
from mxrun.codegen import intrinsics
from mxrun.codegen.llvm_block import smaller
from mxrun.codegen.llvm_target import (
    adds_and_multiplies_apart,
    call_lanewise,
    constant,
    has_half_width_registers,
    lanes_of,
    like,
)
from mxrun.codegen.sequential.arithmetic import Untyped
from mxrun.codegen.sequential.intrinsic import typed
from mxrun.codegen.sequential.kinds import FLOAT32, FLOAT64, INT64, Kind, Pointer
from mxrun.codegen.sequential.lanes import (
    DOUBLE,
    FLOAT,
    INDEX,
    added_by_products,
    broadcast,
    first_lanes,
    joined,
    load_vector,
    prefetch,
    vector_place,
)
from mxrun.codegen.sequential.llvm_column import (
    LINE,
    ROW_LANES,
    ROW_VECTORS,
    Columns,
    Rows,
    by_columns,
)
from mxrun.codegen.sequential.llvm_control import WORD, counted_loop, variables
from mxrun.codegen.target import is_card
from mxrun.codegen.vectors import LANES

_FLOATS = Pointer(FLOAT32)

# Lanes of a run, for every processor. They are divided into vectors for the code generator, which
# splits or pads them.
_LANES = {DOUBLE: 32, FLOAT: 64}
_VECTOR = {DOUBLE: 16, FLOAT: 32}
# Lanes of float64 of 256 bits: where conversions of 512 bits take longer, a sum of 12 MB takes 205
# us with them and 140 with narrow ones.
_NARROW = 4
# Squares of float32 are exact in float64, so that one instruction for square and sum gives the bits
# of two.
_CONTRACT = ("contract",)
# Prefetch distance in elements, large enough to keep the memory busy.
_AHEAD = 512


def _extreme(sign: str) -> Callable[[Any, Any, Any], Any]:
    def join(builder: Any, total: Any, value: Any) -> Any:
        beyond = builder.fcmp_ordered(sign, value, total)
        missing = builder.fcmp_unordered("uno", value, value)
        return builder.select(builder.or_(beyond, missing), value, total)

    return join


def _plus(builder: Any, total: Any, value: Any) -> Any:
    return builder.fadd(total, value)


def _times(builder: Any, total: Any, value: Any) -> Any:
    return builder.fmul(total, value)


def _itself(builder: Any, value: Any, shift: Any) -> Any:
    return value


def _is_nan(builder: Any, value: Any) -> Any:
    return builder.fcmp_unordered("uno", value, value)


def _is_zero(builder: Any, value: Any) -> Any:
    return builder.fcmp_ordered("==", value, constant(value.type, 0.0))


def _is_zero_or_nan(builder: Any, value: Any) -> Any:
    return builder.fcmp_unordered("==", value, constant(value.type, 0.0))


def _unless(test: Callable[[Any, Any], Any], number: float) -> Callable[[Any, Any, Any], Any]:
    """Return the function that takes `number` in place of elements that pass the test."""

    def taken(builder: Any, value: Any, shift: Any) -> Any:
        return builder.select(test(builder, value), constant(value.type, number), value)

    return taken


def _one_if_zero(builder: Any, value: Any, shift: Any) -> Any:
    one, zero = (constant(value.type, number) for number in (1.0, 0.0))
    return builder.select(_is_zero(builder, value), one, zero)


def _magnitude(builder: Any, value: Any, shift: Any) -> Any:
    return call_lanewise(builder, "fabs", value)


def _square(builder: Any, value: Any, shift: Any) -> Any:
    return builder.fmul(value, value, flags=_CONTRACT)


def _deviation(builder: Any, value: Any, shift: Any) -> Any:
    return builder.fsub(value, shift)


def _squared_deviation(builder: Any, value: Any, shift: Any) -> Any:
    deviation = _deviation(builder, value, shift)
    return builder.fmul(deviation, deviation)


@dataclass(frozen=True)
class _Reduction:
    """One kind of reduction.

    start: initial total. take: maps an element and its shift to a value. join: combines a total and
    a value. run: type of a run's totals. exact: whether the value of a float32 element is exact in
    float32. has_conditions: whether values depend on conditions, which narrow vectors evaluate
    slowly.
    """

    start: float
    take: Callable[[Any, Any, Any], Any]
    join: Callable[[Any, Any, Any], Any]
    run: Any = DOUBLE
    exact: bool = True
    has_conditions: bool = False


# Indexed by the kinds of `intrinsics.reduced_run`.
_REDUCTIONS = (
    _Reduction(0.0, _itself, _plus),
    _Reduction(float("-inf"), _itself, _extreme(">"), FLOAT),
    _Reduction(float("inf"), _itself, _extreme("<"), FLOAT),
    _Reduction(1.0, _itself, _times),
    _Reduction(0.0, _unless(_is_nan, 0.0), _plus, has_conditions=True),
    _Reduction(1.0, _unless(_is_nan, 1.0), _times, has_conditions=True),
    _Reduction(0.0, _magnitude, _plus),
    _Reduction(0.0, _square, _plus, exact=False),
    _Reduction(0.0, _squared_deviation, _plus, exact=False),
    _Reduction(0.0, _deviation, _plus, exact=False),
    _Reduction(1.0, _unless(_is_zero, 1.0), _times, has_conditions=True),
    _Reduction(1.0, _unless(_is_zero_or_nan, 1.0), _times, has_conditions=True),
    _Reduction(0.0, _one_if_zero, _plus, has_conditions=True),
)


def _cases(builder: Any, kind: Any) -> Iterator[_Reduction]:
    """Generate a switch over the kinds; yield each reduction, for the code of its case.

    A kind that is a constant needs no switch.
    """
    if isinstance(kind, ir.Constant):
        if not 0 <= kind.constant < len(_REDUCTIONS):
            raise Untyped(f"there is no reduction of kind {kind.constant}")
        yield _REDUCTIONS[kind.constant]
        return
    after = builder.append_basic_block("after")
    switch = builder.switch(kind, after)
    for index, reduction in enumerate(_REDUCTIONS):
        case = builder.append_basic_block("kind")
        switch.add_case(WORD(index), case)
        builder.position_at_end(case)
        yield reduction
        builder.branch(after)
    builder.position_at_end(after)


def _converted(builder: Any, value: Any, kind: Any) -> Any:
    """Convert float32 or float64 numbers, or vectors of them, to a type."""
    if value.type == kind:
        return value
    is_wide = (kind.element if isinstance(kind, ir.VectorType) else kind) == DOUBLE
    return builder.fpext(value, kind) if is_wide else builder.fptrunc(value, kind)


def _width(reduction: _Reduction) -> int:
    """Return the lanes of the vectors of a run's totals."""
    if is_card():
        return LANES
    is_narrow = reduction.run is DOUBLE and not reduction.has_conditions
    return _NARROW if is_narrow and has_half_width_registers() else _VECTOR[reduction.run]


def _values(builder: Any, reduction: _Reduction, loaded: Any, mask: Any, shifts: Any) -> Any:
    """Return the values of loaded elements in the type of the totals; `start` outside a mask."""
    kind = like(loaded.type, reduction.run)
    if reduction.exact:
        values = _converted(builder, reduction.take(builder, loaded, None), kind)
    else:
        values = reduction.take(builder, _converted(builder, loaded, kind), shifts)
    return values if mask is None else builder.select(mask, values, constant(kind, reduction.start))


def _join_of(builder: Any, reduction: _Reduction, count: int) -> Callable[[Any, Any, Any], Any]:
    """Return the fastest function (builder, total, value) that joins vectors of `count` lanes."""
    if reduction.take is _square:
        return lambda builder, total, value: builder.fadd(total, value, flags=_CONTRACT)
    is_sum = reduction.join is _plus
    apart = is_sum and adds_and_multiplies_apart()
    return added_by_products(builder, count) if apart else reduction.join


def _reduce_run(
    builder: Any, reduction: _Reduction, total: Any, data: Any, count: Any, shift: Any, gap: Any
) -> None:
    """Generate code that combines `count` elements with the float64 that `total` points to."""
    lanes, width = _LANES[reduction.run], _width(reduction)
    start = constant(lanes_of(reduction.run, width), reduction.start)
    shifts = broadcast(builder, _converted(builder, shift, reduction.run), width)
    apart = adds_and_multiplies_apart()
    add = _join_of(builder, reduction, width)
    # Several accumulators: their additions do not depend on each other.
    totals = variables(builder, [start] * (lanes // width))

    def join(which: int, first: Any, mask: Any) -> None:
        place = vector_place(builder, data, builder.add(first, WORD(which * width)), width)
        loaded = load_vector(builder, place, mask)
        values = _values(builder, reduction, loaded, mask, shifts)
        builder.store(add(builder, builder.load(totals[which]), values), totals[which])

    def join_lanes(first: Any, gap: Any) -> None:
        for ahead in range(_AHEAD, _AHEAD + lanes, LINE) if gap is not None else ():
            prefetch(builder, data, builder.add(builder.add(first, gap), WORD(ahead)))
        for which in range(len(totals)):
            join(which, first, None)

    steps = builder.sdiv(count, WORD(lanes))
    # The last steps prefetch what comes after the run.
    last = smaller(builder, steps, WORD(_AHEAD // lanes))
    early = builder.sub(steps, last)
    with counted_loop(builder, early) as index:
        join_lanes(builder.mul(index, WORD(lanes)), None if apart else WORD(0))
    with counted_loop(builder, last) as index:
        join_lanes(builder.mul(builder.add(early, index), WORD(lanes)), gap)
    first = builder.mul(steps, WORD(lanes))
    rest = builder.sub(count, first)
    for which in range(len(totals)):
        remaining = builder.sub(rest, WORD(which * width))
        with builder.if_then(builder.icmp_signed(">", remaining, WORD(0))):
            join(which, first, first_lanes(builder, remaining, width))
    everything = [builder.load(each) for each in totals]
    combined = _converted(builder, joined(builder, reduction.join, everything, width), DOUBLE)
    builder.store(reduction.join(builder, builder.load(total), combined), total)


@typed(FLOAT64, INT64, FLOAT64, _FLOATS, INT64, INT64, FLOAT32, INT64)
def reduced_run(
    builder: Any,
    kind: Any,
    total: Any,
    data: Any,
    position: Any,
    count: Any,
    shift: Any,
    gap: Any,
) -> Any:
    """Reduce `total` and `count` elements, in vectors of a fixed number of lanes."""
    (place,) = variables(builder, [total])
    run = builder.gep(data, [position])
    for reduction in _cases(builder, kind):
        _reduce_run(builder, reduction, place, run, count, shift, gap)
    return builder.load(place)


@dataclass(frozen=True)
class _Totals:
    """Running totals of columns, float64, and the float32 results that replace the last ones.

    is_first: whether the totals begin with `start`. is_last: whether the results are written, the
    totals divided by `divisor`.
    """

    running: Any
    start: Any
    is_first: Any
    is_last: Any
    results: Any
    divisor: Any

    def load(self, builder: Any, columns: Columns, kind: Any) -> list[Any]:
        """Return variables with the totals before the rows, in vectors of a kind."""
        start = broadcast(builder, self.start, ROW_LANES)
        totals = variables(builder, [_converted(builder, start, kind)] * len(columns.starts))
        with builder.if_then(builder.not_(self.is_first)):
            for total, place in zip(totals, columns.starts, strict=True):
                before = columns.read(builder, self.running, place)
                builder.store(_converted(builder, before, kind), total)
        return totals

    def store(self, builder: Any, columns: Columns, totals: list[Any], is_root: bool) -> None:
        """Write the totals after the rows, or the results."""
        wide, narrow = (lanes_of(kind, ROW_LANES) for kind in (DOUBLE, FLOAT))
        after = [_converted(builder, builder.load(total), wide) for total in totals]
        with builder.if_else(self.is_last) as (last, between):
            with last:
                found = variables(builder, after)
                if is_root:
                    for each in found:
                        root = call_lanewise(builder, "sqrt", builder.load(each))
                        builder.store(root, each)
                divides = builder.fcmp_unordered("!=", self.divisor, DOUBLE(1.0))
                with builder.if_then(divides):
                    divisors = broadcast(builder, self.divisor, ROW_LANES)
                    for each in found:
                        builder.store(builder.fdiv(builder.load(each), divisors), each)
                results = [builder.fptrunc(builder.load(each), narrow) for each in found]
                columns.store(builder, self.results, results)
            with between:
                columns.store(builder, self.running, after)


def _join_rows(
    builder: Any, reduction: _Reduction, rows: Rows, totals: _Totals, shift: Any, count: Any
) -> None:
    """Generate code that combines the elements of all rows with `count` neighbouring totals."""
    kind = lanes_of(reduction.run, ROW_LANES)
    join = _join_of(builder, reduction, ROW_LANES)

    def work(builder: Any, columns: Columns) -> None:
        lanes = totals.load(builder, columns, kind)
        shifts = [None] * len(lanes)
        if reduction.take in (_deviation, _squared_deviation):
            read = [columns.read(builder, shift, start) for start in columns.starts]
            shifts = [_converted(builder, own, kind) for own in read]
        with counted_loop(builder, rows.count) as index:
            loaded = columns.load(builder, index)
            for total, value, own in zip(lanes, loaded, shifts, strict=True):
                taken = _values(builder, reduction, value, None, own)
                builder.store(join(builder, builder.load(total), taken), total)
        totals.store(builder, columns, lanes, reduction.take is _square)

    vectors = ROW_VECTORS if reduction.run is FLOAT else ROW_VECTORS // 2
    by_columns(builder, rows, count, work, vectors)


def _find_rows(builder: Any, sign: str, rows: Rows, output: Any, count: Any) -> None:
    """Generate code that writes, for `count` columns, the first row of the extreme or NaN."""

    def work(builder: Any, columns: Columns) -> None:
        extremes = variables(builder, columns.load(builder, WORD(0)))
        zero = constant(lanes_of(INDEX, ROW_LANES), 0)
        places = variables(builder, [zero] * len(extremes))
        with counted_loop(builder, rows.count) as index:
            row = broadcast(builder, builder.trunc(index, INDEX), ROW_LANES)
            values = columns.load(builder, index)
            for extreme, place, value in zip(extremes, places, values, strict=True):
                held = builder.load(extreme)
                number = builder.fcmp_ordered("ord", held, held)
                beyond = builder.and_(builder.fcmp_unordered(sign, value, held), number)
                builder.store(builder.select(beyond, value, held), extreme)
                builder.store(builder.select(beyond, row, builder.load(place)), place)
        kind = lanes_of(FLOAT, ROW_LANES)
        found = [builder.sitofp(builder.load(place), kind) for place in places]
        columns.store(builder, output, found)

    by_columns(builder, rows, count, work)


_TOTALS = Pointer(FLOAT64)
_ROWS: tuple[Kind | Pointer, ...] = (_FLOATS, INT64, INT64, INT64, INT64)
_RESULTS: tuple[Kind | Pointer, ...] = (FLOAT64, INT64, INT64, _FLOATS, INT64, FLOAT64)


@typed(None, INT64, _TOTALS, INT64, INT64, *_ROWS, _FLOATS, INT64, *_RESULTS)
def join_rows(
    builder: Any,
    kind: Any,
    totals: Any,
    at: Any,
    count: Any,
    data: Any,
    position: Any,
    step: Any,
    stride: Any,
    rows: Any,
    shifts: Any,
    shift: Any,
    start: Any,
    is_first: Any,
    is_last: Any,
    results: Any,
    result: Any,
    divisor: Any,
) -> None:
    """Combine each total with the elements of its column."""
    block = Rows(builder.gep(data, [position]), step, stride, rows)
    written = _Totals(
        running=builder.gep(totals, [at]),
        start=start,
        is_first=builder.icmp_signed("!=", is_first, WORD(0)),
        is_last=builder.icmp_signed("!=", is_last, WORD(0)),
        results=builder.gep(results, [result]),
        divisor=divisor,
    )
    moved = builder.gep(shifts, [shift])
    for reduction in _cases(builder, kind):
        _join_rows(builder, reduction, block, written, moved, count)


@typed(None, INT64, _FLOATS, INT64, INT64, _FLOATS, *[INT64] * 4)
def find_rows(
    builder: Any,
    kind: Any,
    output: Any,
    at: Any,
    count: Any,
    data: Any,
    position: Any,
    step: Any,
    stride: Any,
    rows: Any,
) -> None:
    """Find the first row of each column's extreme."""
    block = Rows(builder.gep(data, [position]), step, stride, rows)
    places = builder.gep(output, [at])
    for index, sign in ((1, ">"), (2, "<")):
        with builder.if_then(builder.icmp_signed("==", kind, WORD(index))):
            _find_rows(builder, sign, block, places, count)


REDUCTIONS = {
    intrinsics.find_rows: find_rows,
    intrinsics.join_rows: join_rows,
    intrinsics.reduced_run: reduced_run,
}
