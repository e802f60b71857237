"""Intrinsics of native functions for numbers, tables, tasks and words; `sequential` has their code.

Declarations are signatures without bodies. Those of vectors are in `vectors`, those of products of
small matrices in `products`.
"""

from __future__ import annotations

from typing import Any

from mxrun.codegen.declaration import intrinsic


@intrinsic
def integer(table: Any, index: int) -> int:
    """Return entry `index` of a table as a 64-bit integer."""


@intrinsic
def real(table: Any, index: int) -> float:
    """Return entry `index` of a table as a float32 value."""


@intrinsic
def float32s(table: Any, index: int) -> Any:
    """Return entry `index` of a table as a pointer to float32 elements."""


@intrinsic
def bfloat16s(table: Any, index: int) -> Any:
    """Return entry `index` of a table as a pointer to bfloat16 elements."""


@intrinsic
def float64s(table: Any, index: int) -> Any:
    """Return entry `index` of a table as a pointer to float64 elements."""


@intrinsic
def int32s(table: Any, index: int) -> Any:
    """Return entry `index` of a table as a pointer to int32 elements."""


@intrinsic
def int64s(table: Any, index: int) -> Any:
    """Return entry `index` of a table as a pointer to int64 elements."""


@intrinsic
def uint8s(table: Any, index: int) -> Any:
    """Return entry `index` of a table as a pointer to bytes."""


@intrinsic
def random_words(key: int, step: int, number: int) -> tuple[Any, Any, Any, Any]:
    """Return words 4 * number .. 4 * number + 3 of `philox.words(key, step, ...)`, as uint64."""


@intrinsic
def share(count: int) -> tuple[int, int]:
    """Return the task's part [begin, end) of `count` elements, in multiples of 16."""


@intrinsic
def each(begin: int, end: int, step: int = 1) -> range:
    """Return the integers of a loop whose iterations are independent of each other.

    None reads what another one assigns or writes, so that they may run in any order, or side by
    side; what visibly depends is refused. On a CPU they run in order.
    """


@intrinsic
def current_task() -> tuple[int, int]:
    """Return the number of the task, and the number of all tasks of the call."""


@intrinsic
def worker() -> int:
    """Return the number of the calling thread among those that may work on the tasks.

    For scratch space alone: which thread calls which task is left to chance.
    """


@intrinsic
def fetch_add(counters: Any, index: int, value: int) -> int:
    """Add to counters[index], int64, atomically, and return what it was before."""


@intrinsic
def exchange_word(words: Any, index: int, expected: int, value: int) -> int:
    """Write words[index], int64, atomically if it is `expected`; return what it was before."""


@intrinsic
def load_word(words: Any, index: int) -> int:
    """Return words[index], int64, as the last thread wrote it, and see what it wrote before."""


@intrinsic
def store_word(words: Any, index: int, value: int) -> None:
    """Write words[index], int64, after everything that the thread has written before."""


@intrinsic
def spin() -> None:
    """Tell the processor that the thread polls a word."""


@intrinsic
def clipped(value: float, limit: float) -> float:
    """Clip a float32 `value` to [-limit, limit]; NaN if it is not finite."""


@intrinsic
def reduced_run(
    kind: int, total: float, data: Any, position: int, count: int, shift: float, gap: int
) -> float:
    """Reduce a float64 `total` and the float32 data[position:position + count] to one float64.

    Kinds: 0 sum, 1 maximum and 2 minimum (NaN if any element is), 3 product, 4 sum and 5 product
    without NaN, 6 sum of magnitudes, 7 sum of squares, 8 sum of squared deviations and 9 sum of
    deviations from a float32 `shift`, which the other kinds ignore, 10 product without 0, 11
    product without 0 and NaN, 12 number of elements that are 0.

    The elements are distributed cyclically over 32 lanes of float64; kinds 1 and 2 use 64 lanes of
    float32. The upper half of the lanes is combined with the lower half until one lane is left,
    which is combined with the total. The order depends neither on the machine nor on the tasks.
    The memory after the run, from `gap` elements on, is prefetched meanwhile.
    """


@intrinsic
def join_rows(
    kind: int,
    totals: Any,
    at: int,
    count: int,
    data: Any,
    position: int,
    step: int,
    stride: int,
    rows: int,
    shifts: Any,
    shift: int,
    start: float,
    is_first: int,
    is_last: int,
    results: Any,
    result: int,
    divisor: float,
) -> None:
    """Reduce totals[at + i] and data[position + r * stride + i * step], r < `rows`, to one float64.

    This is done for each i below `count`, in the order of the rows, in float64. The kinds are those
    of `reduced_run`; the shift of column i is shifts[shift + i]. With is_first the totals before
    are `start`. With is_last the total divided by the divisor, of kind 7 its square root, is
    written to the float32 results[result + i], in place of the totals.
    """


@intrinsic
def find_rows(
    kind: int,
    output: Any,
    at: int,
    count: int,
    data: Any,
    position: int,
    step: int,
    stride: int,
    rows: int,
) -> None:
    """Set output[at + i] to the first r at which data[position + r * stride + i * step] is extreme.

    A NaN counts as extreme. This is done for each i below `count`, over r below `rows`, for kinds 1
    and 2 of `reduced_run`.
    """


@intrinsic
def scan_columns(output: Any, data: Any, position: int, count: int, stride: int, rows: int) -> None:
    """Compute cumulative sums down `count` neighbouring columns of `rows` rows, in float64.

    output[position + r * stride + i] is the sum of data[position + s * stride + i] over s <= r.
    """


@intrinsic
def scan_line(output: Any, data: Any, position: int, count: int, step: int, total: float) -> None:
    """Compute cumulative sums along a line: data[position + i * step], i < `count`, plus `total`.

    `total` is float64; the step is 1 or -1. Sums within vectors of 8 are float32; the sum of all
    elements before the vector is float64.
    """


@intrinsic
def run_map(call: Any, number: int, words: Any, at: int) -> None:
    """Run a map of the native function whose arguments are `call`, see `NativeFunction.with_maps`.

    The map's argument block is words[at:], int64: the number of elements, the addresses of its
    outputs and operands, its parameters. Their memory must hold what loops write before.
    """


@intrinsic
def call_address(function: int, a0: int, a1: int, a2: int, a3: int, a4: int, a5: int) -> int:
    """Call the C function at an address with six integers.

    In the C calling conventions of x86-64 and AArch64 surplus arguments remain unread in registers.
    The result of a void function is arbitrary.
    """
