"""Pooled storage: memory that is allocated and freed while a program runs.

Requests are rounded up to size classes, at most an eighth larger, and freed blocks wait in their
class for the next request. Small blocks are parts of slabs; large ones have memory of their own. A
pool knows no device: it is given the function that allocates memory.

`free` only appends to a list, so the garbage collector may call it in any thread at any time, even
within a call of the same pool. Counters are changed in single statements that load, add and store:
CPython switches threads and collects garbage at calls and backward jumps only, not within one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mxrun.base.context import Context
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.locks import new_lock
from mxrun.base.tensor import ALIGNMENT, align

# Larger blocks have memory of their own, whose size is then a multiple of a page.
_MAX_IN_SLAB = 32 << 10
# The slabs of a class hold at first this many bytes or blocks, and each twice as many as the one
# before.
_FIRST_SLAB_BYTES = 4 << 10
_FIRST_SLAB_BLOCKS = 8
_MAX_SLAB_BYTES = 1 << 20
# Distinct request sizes whose class is remembered.
_MAX_KNOWN_SIZES = 4096
POISON = 0xFF
"""Byte that freed blocks are filled with in debug mode: NaN in every float type."""

# Allocates zeroed memory of a number of bytes; its first byte is 64-byte aligned.
Allocate = Callable[[int], Any]
# Sets a range [begin, end) of the bytes of memory to a byte.
Fill = Callable[[Any, int, int, int], None]


class StorageBlock:
    """Bytes [offset, offset + nbytes) of a device's memory, 64-byte aligned, contents undefined.

    The same object is handed out again after it was freed. capacity: bytes that it may be used for.
    """

    __slots__ = ("capacity", "is_free", "memory", "nbytes", "offset", "size_class")

    def __init__(self, memory: Any, offset: int, size_class: SizeClass) -> None:
        self.memory, self.offset, self.size_class = memory, offset, size_class
        self.capacity = self.nbytes = size_class.capacity
        self.is_free = True


@dataclass(frozen=True)
class StorageStatistics:
    """State of a pool.

    bytes_in_use: capacity of the `blocks_in_use`; peak_bytes: its maximum. bytes_reserved: memory
    from the system, in use or waiting. system_allocations: times that memory was requested from the
    system. requests: calls of `allocate` that returned a block.
    """

    bytes_in_use: int
    blocks_in_use: int
    peak_bytes: int
    bytes_reserved: int
    system_allocations: int
    requests: int

    @property
    def requests_from_pool(self) -> int:
        """Number of requests that made no system allocation."""
        return self.requests - self.system_allocations


class SizeClass:
    """Blocks of one capacity.

    free: blocks that wait, the last one freed at the end. created: number of existing blocks.
    slabs: by memory. current: slab that still has bytes of no block.
    """

    __slots__ = ("capacity", "created", "current", "free", "next_blocks", "slabs")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free: list[StorageBlock] = []
        self.created = 0
        self.slabs: dict[Any, Slab] = {}
        self.current: Slab | None = None
        small = capacity <= _MAX_IN_SLAB
        self.next_blocks = max(_FIRST_SLAB_BLOCKS, _FIRST_SLAB_BYTES // capacity) if small else 1


class Slab:
    """Memory that is divided into the blocks of one class, of which `carved` exist."""

    __slots__ = ("carved", "memory", "nbytes", "offsets")

    def __init__(self, memory: Any, capacity: int, blocks: int) -> None:
        self.memory, self.nbytes = memory, capacity * blocks
        self.offsets = iter(range(0, self.nbytes, capacity))
        self.carved = 0


def capacity_of(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """Return the capacity of blocks for requests of `nbytes`: eight sizes per power of two.

    It is a multiple of `alignment`, a power of two.
    """
    step = max(alignment, 1 << max((nbytes - 1).bit_length() - 4, 0))
    return max(align(nbytes, step), alignment)


class StoragePool:
    """Blocks in the memory of one context; every method may be called from any thread.

    allocate_memory: requests memory from the system; it raises UserError if there is too little.
    cap: most bytes to reserve, None for no limit. fill: sets bytes of memory; if it is given, freed
    blocks are filled with `POISON`. alignment: bytes at multiples of which blocks begin. idle:
    lists of blocks that are allocated but not in use; they are freed by trimming.
    """

    def __init__(
        self,
        context: Context,
        allocate_memory: Allocate,
        cap: int | None = None,
        fill: Fill | None = None,
        alignment: int = ALIGNMENT,
    ) -> None:
        self.context, self.cap, self.alignment = context, cap, alignment
        self.idle: list[list[StorageBlock]] = []
        self._allocate_memory, self._fill = allocate_memory, fill
        self._classes: dict[int, SizeClass] = {}
        self._class_of_size: dict[int, SizeClass] = {}
        # Reentrant, because a finaliser may allocate.
        self._lock = new_lock()
        self._requests = self._system_allocations = 0
        self._reserved = self._in_use = self._peak = 0

    def allocate(self, nbytes: int) -> StorageBlock:
        """Return a block of at least `nbytes`.

        Memory that waits is returned to the system before a request is refused. Raises UserError
        if the request exceeds the cap or the system's memory.
        """
        size_class = self._class_of_size.get(nbytes) or self._class_for(nbytes)
        try:
            block = size_class.free.pop()
        except IndexError:
            block = self._new_block(size_class, nbytes)
        block.is_free = False
        block.nbytes = nbytes
        self._requests += 1
        self._in_use += block.capacity
        if self._in_use > self._peak:
            self._peak = self._in_use
        return block

    def free(self, block: StorageBlock) -> None:
        """Take a block back; raises InternalError if it is free already."""
        if block.is_free:
            raise InternalError(f"a block of {block.nbytes} bytes of {self.context} is freed twice")
        block.is_free = True
        if self._fill is not None:
            self._fill(block.memory, block.offset, block.offset + block.capacity, POISON)
        self._in_use -= block.capacity
        block.size_class.free.append(block)

    def trim(self) -> int:
        """Return memory without blocks in use to the system; return the number of bytes."""
        with self._lock:
            before = self._reserved
            for block in drained(self.idle):
                self.free(block)
            for size_class in tuple(self._classes.values()):
                self._trim(size_class)
            return before - self._reserved

    def statistics(self) -> StorageStatistics:
        """Return the present state."""
        return StorageStatistics(
            bytes_in_use=self._bytes_in_use(),
            blocks_in_use=sum(self.blocks_in_use().values()),
            peak_bytes=self._peak,
            bytes_reserved=self._reserved,
            system_allocations=self._system_allocations,
            requests=self._requests,
        )

    def blocks_in_use(self) -> dict[int, int]:
        """Return the number of blocks in use by capacity, largest first.

        This uses no globals, so it works until the very end of the process.
        """
        classes = tuple(self._classes.values())
        counts = {each.capacity: each.created - len(each.free) for each in classes}
        for blocks in self.idle:
            for block in blocks:
                counts[block.capacity] -= 1
        return {capacity: counts[capacity] for capacity in sorted(counts, reverse=True)}

    def reset_peak(self) -> None:
        """Let the peak begin at the bytes in use now."""
        self._peak = self._in_use

    # -- slow path -----------------------------------------------------------------------------

    def _class_for(self, nbytes: int) -> SizeClass:
        """Return the class for a size that is not remembered."""
        if nbytes < 0:
            raise InternalError(f"{nbytes} bytes of {self.context} are requested")
        capacity = capacity_of(nbytes, self.alignment)
        with self._lock:
            found = self._classes.setdefault(capacity, SizeClass(capacity))
            if len(self._class_of_size) >= _MAX_KNOWN_SIZES:
                self._class_of_size.clear()
            self._class_of_size[nbytes] = found
        return found

    def _bytes_in_use(self) -> int:
        return self._in_use - sum(block.capacity for blocks in self.idle for block in blocks)

    def _new_block(self, size_class: SizeClass, nbytes: int) -> StorageBlock:
        """Return a block that did not exist before."""
        with self._lock:
            slab = size_class.current
            offset = None if slab is None else next(slab.offsets, None)
            if slab is None or offset is None:
                slab = self._new_slab(size_class, nbytes)
                offset = next(slab.offsets)
            slab.carved += 1
            size_class.created += 1
            return StorageBlock(slab.memory, offset, size_class)

    def _new_slab(self, size_class: SizeClass, nbytes: int) -> Slab:
        """Return a slab from the system; if that fails, trim first."""
        capacity, blocks = size_class.capacity, size_class.next_blocks
        if self._above_cap(capacity):
            self.trim()
        if self._above_cap(capacity):
            raise self._refusal(nbytes)
        if self.cap is not None:
            blocks = min(blocks, (self.cap - self._reserved) // capacity)
        try:
            memory = self._allocate_memory(capacity * blocks)
        except UserError:
            blocks = 1
            memory = self._allocated_after_trim(capacity, nbytes)
        slab = Slab(memory, capacity, blocks)
        size_class.slabs[memory] = size_class.current = slab
        if capacity <= _MAX_IN_SLAB:
            size_class.next_blocks = min(2 * blocks, max(blocks, _MAX_SLAB_BYTES // capacity))
        self._system_allocations += 1
        self._reserved += slab.nbytes
        return slab

    def _allocated_after_trim(self, capacity: int, nbytes: int) -> Any:
        """Request memory for one block when the system has refused more."""
        self.trim()
        try:
            return self._allocate_memory(capacity)
        except UserError as error:
            raise self._refusal(nbytes) from error

    def _above_cap(self, nbytes: int) -> bool:
        return self.cap is not None and self._reserved + nbytes > self.cap

    def _refusal(self, nbytes: int) -> UserError:
        limit, remedy = "what the system has left", "allow the process more memory"
        if self.cap is not None:
            limit, remedy = f"at most {self.cap:,} bytes in all, the pool's cap", "raise the cap"
        return UserError(
            Diagnostic(
                f"out of memory on {self.context}: {nbytes:,} bytes are requested",
                expected=limit,
                got=f"{self._bytes_in_use():,} bytes in use, {self._reserved:,} reserved",
                hint="delete arrays that are not needed any more, wait for pending functions, "
                f"which hold memory, or {remedy}",
            )
        )

    def _trim(self, size_class: SizeClass) -> None:
        """Forget the slabs all of whose blocks are free; lock held."""
        waiting = list(drained([size_class.free]))
        free = Counter(block.memory for block in waiting)
        for memory, count in free.items():
            slab = size_class.slabs[memory]
            if count == slab.carved:
                del size_class.slabs[memory]
                size_class.created -= count
                self._reserved -= slab.nbytes
                if size_class.current is slab:
                    size_class.current = None
        kept = (block for block in waiting if block.memory in size_class.slabs)
        size_class.free.extend(kept)


def drained(lists: Iterable[list[StorageBlock]]) -> Iterator[StorageBlock]:
    """Remove and yield the blocks of lists from which other threads take some meanwhile."""
    for blocks in lists:
        while blocks:
            try:
                yield blocks.pop()
            except IndexError:
                break


class StoragePools:
    """Pools of a process by context, each made by `make` when it is first asked for."""

    def __init__(self, make: Callable[[Context], StoragePool]) -> None:
        self._make = make
        self._pools: dict[Context, StoragePool] = {}
        self._lock = new_lock()

    def of(self, context: Context) -> StoragePool:
        """Return the pool of a context."""
        pool = self._pools.get(context)
        if pool is None:
            with self._lock:
                pool = self._pools.get(context)
                if pool is None:
                    pool = self._pools[context] = self._make(context)
        return pool

    def __iter__(self) -> Iterator[StoragePool]:
        return iter(tuple(self._pools.values()))

    def statistics(self) -> Mapping[Context, StorageStatistics]:
        """Return the state of each pool."""
        return {pool.context: pool.statistics() for pool in self}

    def trim(self) -> int:
        """Return unused memory of all pools to the system; return the number of bytes."""
        return sum(pool.trim() for pool in self)
