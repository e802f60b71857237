"""Measurement of the machine for some threads: matrix products, bandwidths, cost of a call.

Every figure is the best of short repeats, because other work can only make a repeat slower. The
rounds, in which every figure is measured once, are spread over time to outlast other work. The
complete measurement takes two seconds.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from mxrun.base.device import Cut
from mxrun.base.machine import Bandwidth, Machine
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec, align
from mxrun.codegen.arguments import Arguments, Float32s, Int64s, Integer, Table
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.intrinsics import call_address, integer, share
from mxrun.codegen.jit import NativeFunction, native
from mxrun.device.cpu.call import NativeCall, TaskThreads, loop_call
from mxrun.device.cpu.onednn import library, operations
from mxrun.device.cpu.onednn.cut import Cuttable
from mxrun.device.cpu.onednn.descriptor import ANY
from mxrun.device.cpu.onednn.primitive import Argument
from mxrun.device.cpu.pooled_loop import PooledLoop
from mxrun.device.host_memory import Arena
from mxrun.operator.constraints import Unsupported
from mxrun.runtime.memory_limits import memory_limit, peak_rss_bytes

# Minimum duration of a figure in one round, and number of rounds. A repeat takes far less than a
# time slice of the system's scheduler, so that some repeats are undisturbed on a busy machine.
_SECONDS = 0.005
_ROUNDS = 3
_CALLS = 20
# Rows and columns of the multiplied matrices.
_SIDES = (512, 1024)
# Smaller matrices for the compiled loop that replaces oneDNN where it is missing.
_LOOP_SIDE = 256
# Sizes of working sets: each twice the one before; the smallest is per thread.
_SMALLEST_SET = 16 << 10
_MAX_SET_BYTES = 1 << 30
# Bytes processed in one repeat: part of a larger working set, or several passes of a smaller one.
_REPEAT_BYTES = 16 << 20
# Parts of oneDNN's names of instruction sets that have bfloat16 (dnnl_types.h, dnnl_cpu_isa_t).
_BFLOAT16 = ("bf16", "fp16", "amx", "avx10")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def measure(threads: int) -> Machine:
    """Measure the machine for `threads`."""
    caches = cache_sizes(threads)
    primitive, alone, together = _primitive(), _empty_call(1), _empty_call(threads)
    products = list(_products(threads))
    passes = _passes(threads, max(caches, default=0))
    loops = itertools.chain.from_iterable(passes.values())
    trials = [primitive, alone, together, *(measurement for _, measurement in products), *loops]
    for _ in range(_ROUNDS):
        for measurement in trials:
            measurement.run_round()
    flops_per_s: dict[str, float] = {}
    for dtype, measurement in products:
        flops_per_s[dtype] = max(measurement.rate, flops_per_s.get(dtype, 0.0))
    return Machine(
        threads=threads,
        flops_per_s=flops_per_s,
        bandwidths=_bandwidths(passes),
        loop_s=1 / alone.rate,
        primitive_s=1 / primitive.rate,
        tasks_s=max(0.0, 1 / together.rate - 1 / alone.rate),
        cache_bytes=caches,
    )


class _Measurement:
    """Measurement of one figure: repeats of some work, of which the fastest counts.

    `repeat` receives the running number of the repeat. repeats: number of repeats that cover the
    working set once.
    """

    def __init__(self, work: float, repeat: Callable[[int], None], repeats: int = 1) -> None:
        self._work, self._repeat, self._repeats = work, repeat, repeats
        self._taken = 0
        self._best = math.inf

    def run_round(self) -> None:
        """Repeat the work for at least `_SECONDS` and at least one pass of the working set."""
        clock = time.perf_counter
        begun, least = clock(), self._taken + self._repeats
        while self._taken < least or clock() - begun < _SECONDS:
            start = clock()
            self._repeat(self._taken)
            self._best = min(self._best, clock() - start)
            self._taken += 1

    @property
    def rate(self) -> float:
        """Best rate: work per second."""
        return self._work / self._best


def cache_sizes(threads: int) -> tuple[int, ...]:
    """Return the bytes of data cache of threads on neighbouring cores, level by level from L1 on.

    Empty if the system does not report them. sysfs gives sizes as `2048K`, beside a mask of the
    processors that share a cache (Documentation/ABI/testing/sysfs-devices-system-cpu).
    """
    sizes = []
    with suppress(OSError, ValueError, KeyError):
        for folder in sorted(_CACHES.glob("index*")):
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            size = (folder / "size").read_text().strip()
            mask = int((folder / "shared_cpu_map").read_text().replace(",", ""), 16)
            instances = -(-threads // max(1, mask.bit_count()))
            sizes.append(int(size[:-1]) * _UNITS[size[-1]] * instances)
    return tuple(sizes)


def has_bfloat16() -> bool:
    """Return whether oneDNN uses native bfloat16 instructions of the processor."""
    onednn = library.load()
    return onednn is not None and any(name in onednn.instruction_set for name in _BFLOAT16)


class Repetition(Arguments):
    """Arguments of `repeated_call`: the function of a native call, and its six arguments."""

    count: Integer
    function: Integer
    arguments: Table


@native
def repeated_call(call: Repetition) -> None:
    """Make one native call repeatedly."""
    for _ in range(call.count):
        call_address(
            call.function,
            integer(call.arguments, 0),
            integer(call.arguments, 1),
            integer(call.arguments, 2),
            integer(call.arguments, 3),
            integer(call.arguments, 4),
            integer(call.arguments, 5),
        )


class NoArguments(Arguments):
    """Arguments of `empty_loop`: none."""


@native
def empty_loop(call: NoArguments) -> None:
    """Do nothing: the cost of a call alone."""


class Passes(Arguments):
    """Arguments of the loops over a working set: `passes` passes over `count` elements.

    target: None for a loop that does not read it.
    """

    count: Integer
    passes: Integer
    source: Int64s
    target: Int64s


@native
def update_loop(call: Passes) -> None:
    """Compute source[i] += 1, `passes` times."""
    begin, end = share(call.count)
    for _ in range(call.passes):
        for i in range(begin, end):
            call.source[i] += 1


@native
def copy_loop(call: Passes) -> None:
    """Compute target[i] = source[i] + 1, `passes` times."""
    begin, end = share(call.count)
    for _ in range(call.passes):
        for i in range(begin, end):
            call.target[i] = call.source[i] + 1


@native
def read_loop(call: Passes) -> None:
    """Sum each thread's share of `source` into the first element of the share, `passes` times."""
    begin, end = share(call.count)
    for _ in range(call.passes):
        total = 0
        for i in range(begin, end):
            total += call.source[i]
        if end > begin:
            call.source[begin] = total


class SquareProduct(Arguments):
    """Arguments of `product_loop`: square matrices with `side` rows."""

    side: Integer
    left: Float32s
    right: Float32s
    target: Float32s


@native
def product_loop(call: SquareProduct) -> None:
    """Compute target += left x right."""
    side = call.side
    begin, end = share(side)
    for i in range(begin, end):
        for k in range(side):
            factor = call.left[i * side + k]
            for j in range(side):
                call.target[i * side + j] += factor * call.right[k * side + j]


def _primitive() -> _Measurement:
    """Measure calls of a oneDNN reorder of eight numbers; of an empty loop without oneDNN."""
    if library.load() is None:
        return _empty_call(1)
    plain = TensorSpec((1, 2, 2, 2))
    reorder = operations.reorder(plain, plain.with_layout(CHANNELS_LAST), Cut(1, 1))
    output = align(plain.nbytes)
    memory = Arena(2 * output + align(reorder.scratchpad_bytes))
    places: dict[int, int] = {
        Argument.SOURCE: memory.address,
        Argument.OUTPUT: memory.address + output,
    }
    (call,) = reorder.bind(places, memory.address + 2 * output)
    return _repeated(replace(call, owner=(call.owner, memory)), _CALLS, _CALLS)


def _empty_call(threads: int) -> _Measurement:
    """Measure calls of an empty loop."""
    return _repeated(
        loop_call(empty_loop, NoArguments(), threads, TaskThreads(threads)), _CALLS, _CALLS
    )


def _repeated(call: NativeCall, work: float, count: int = 1) -> _Measurement:
    """Measure `count` calls in a row."""
    arguments = (*call.arguments, *[0] * (6 - len(call.arguments)))
    repetition = Repetition(count=count, function=call.function, arguments=arguments)
    loop = HostLoop(repeated_call, repetition, unlocked=True)
    owner = call.owner

    def repeat(number: int) -> None:
        loop()
        # Holds a reference to the memory that the arguments point to.
        assert owner is not None

    return _Measurement(work, repeat)


def _products(threads: int) -> Iterator[tuple[str, _Measurement]]:
    """Yield matrix products in several sizes, each with the dtype of its factors.

    One factor of oneDNN's products is in oneDNN's preferred packed layout, as in convolutions.
    """
    if library.load() is None:
        memory = Arena(3 * 4 * _LOOP_SIDE**2)
        left, right, target = (memory.address + n * 4 * _LOOP_SIDE**2 for n in range(3))
        arguments = SquareProduct(side=_LOOP_SIDE, left=left, right=right, target=target)
        call = loop_call(product_loop, arguments, threads, TaskThreads(threads))
        yield "float32", _repeated(replace(call, owner=(call.owner, memory)), 2 * _LOOP_SIDE**3)
        return
    dtypes = ("float32", "bfloat16") if has_bfloat16() else ("float32",)
    for dtype, side in itertools.product(dtypes, _SIDES):
        square = TensorSpec((side, side), dtype)
        try:
            cut = Cut(threads, threads)
            product = operations.matmul(square, square.with_layout(ANY), square, cut)
        except Unsupported:
            continue
        if not product.is_reference:
            yield dtype, _repeated(_product(product, threads), 2 * side**3)


def _product(product: Cuttable, threads: int) -> NativeCall:
    """Bind a product of matrices of ones in memory of its own."""
    arguments = (Argument.SOURCE, Argument.WEIGHTS, Argument.OUTPUT)
    # Space for four bytes per element also suffices for bfloat16.
    sizes = [
        align(max(4 * spec.elements, spec.layout.nbytes or 0))
        for spec in (product.specs[argument] for argument in arguments)
    ]
    memory = Arena(sum(sizes) + align(product.scratchpad_bytes))
    memory.array(0, TensorSpec((memory.nbytes // 4,)))[:] = 1
    *places, scratch = itertools.accumulate(sizes, initial=memory.address)
    places_of = dict(zip(map(int, arguments), places, strict=True))
    (call,) = product.bind(places_of, scratch, TaskThreads(threads))
    return replace(call, owner=(call.owner, memory))


def _passes(threads: int, cache_bytes: int) -> dict[int, tuple[_Measurement, ...]]:
    """Return loops that update, copy and read a working set, by its size in bytes.

    Sizes range from one that fits the nearest caches to one that exceeds the last cache, if memory
    permits.
    """
    largest = min(_MAX_SET_BYTES, _available_bytes() // 4)
    sizes = [_SMALLEST_SET * threads]
    while sizes[-1] < cache_bytes and 2 * sizes[-1] <= largest:
        sizes.append(2 * sizes[-1])
    memory = Arena(sizes[-1])
    # The system allocates a page on its first write.
    memory.array(0, TensorSpec((memory.nbytes,), "uint8"))[:] = 0
    return {
        nbytes: (
            _passing(update_loop, memory, {"source": 0}, nbytes, threads, moves=2),
            _passing(copy_loop, memory, {"source": 0, "target": nbytes // 2}, nbytes, threads),
            _passing(read_loop, memory, {"source": 0}, nbytes, threads),
        )
        for nbytes in sizes
    }


def _passing(
    function: NativeFunction,
    memory: Arena,
    begins: Mapping[str, int],
    nbytes: int,
    threads: int,
    moves: int = 1,
) -> _Measurement:
    """Measure a loop over `nbytes`, divided equally among regions.

    begins: offsets of the regions by the name of the argument. moves: number of times each byte
    counts. Large regions are processed in chunks, one per repeat.
    """
    part = nbytes // len(begins)
    chunk = min(part, _REPEAT_BYTES // len(begins))
    passes = max(1, _REPEAT_BYTES // nbytes)
    chunks = part // chunk
    arguments = Passes(count=chunk // 8, passes=passes, source=None, target=None)
    loop = PooledLoop(function, arguments, threads, TaskThreads(threads), unlocked=True)

    def repeat(number: int) -> None:
        for name, begin in begins.items():
            loop.set(name, memory.address + begin + number % chunks * chunk)
        loop()

    return _Measurement(moves * passes * chunk * len(begins), repeat, chunks)


def _bandwidths(passes: Mapping[int, Sequence[_Measurement]]) -> tuple[Bandwidth, ...]:
    """Return bandwidths that never increase with the size of the working set.

    If a larger working set was measured as faster, other work disturbed the smaller one, which then
    gets the larger one's rate.
    """
    rows: list[Bandwidth] = []
    rates = [0.0] * 3
    for nbytes, loops in sorted(passes.items(), reverse=True):
        rates = [max(best, loop.rate) for best, loop in zip(rates, loops, strict=True)]
        rows.append(Bandwidth(nbytes, *rates))
    return tuple(reversed(rows))


def _available_bytes() -> int:
    """Return the bytes that this process may still allocate without the machine swapping."""
    available = memory_limit() - peak_rss_bytes()
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        available = min(available, int(line.split()[1]) * 1024)
    return max(0, available)
