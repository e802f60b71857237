"""Storage pools: reuse of blocks, statistics, the cap, trimming and leaks."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
from collections import deque
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from refusals import only_problem

from mxrun.base.context import Context, cpu
from mxrun.base.errors import InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.device.host_memory import Arena, HostMemory
from mxrun.device.storage import new_pool, storage_pools
from mxrun.operator.launch import Handle
from mxrun.runtime.storage import (
    StorageBlock,
    StoragePool,
    StoragePools,
    StorageStatistics,
    capacity_of,
)

KIB, MIB = 1 << 10, 1 << 20
SIZES = (1, 64, 65, 512, 1000, 4 * KIB, 32 * KIB, 32 * KIB + 1, 100_000, 5 * MIB)


class System:
    """System that knows how many bytes of its memory are alive; `limit` is the most it has."""

    def __init__(self, limit: int = 1 << 60) -> None:
        self.alive, self.limit = 0, limit

    def allocate(self, nbytes: int) -> SystemMemory:
        """Return memory."""
        if self.alive + nbytes > self.limit:
            raise UserError("out of memory")
        return SystemMemory(self, nbytes)

    def pool(self, cap: int | None = None) -> StoragePool:
        """Return a pool of the system's memory."""
        return StoragePool(cpu(), self.allocate, cap)


class SystemMemory:
    def __init__(self, system: System, nbytes: int) -> None:
        self.nbytes, self._system = nbytes, system
        system.alive += nbytes

    def __del__(self) -> None:
        self._system.alive -= self.nbytes


@pytest.mark.parametrize("nbytes", SIZES)
def test_S1_a_second_equal_request_makes_no_system_allocation(nbytes: int) -> None:
    pool = new_pool(cpu())
    first = pool.allocate(nbytes)
    before = pool.statistics().system_allocations
    pool.free(first)
    second = pool.allocate(nbytes)
    assert second is first
    found = pool.statistics()
    assert before == found.system_allocations == 1
    assert (found.requests, found.requests_from_pool) == (2, 1)


def test_S1_small_blocks_share_system_allocations() -> None:
    pool = new_pool(cpu())
    blocks = [pool.allocate(40) for _ in range(10_000)]
    assert len({(id(block.memory), block.offset) for block in blocks}) == 10_000
    assert pool.statistics().system_allocations < 10


@pytest.mark.parametrize("nbytes", [0, *SIZES])
def test_blocks_are_aligned_and_at_most_an_eighth_larger(nbytes: int) -> None:
    pool = new_pool(cpu())
    for _ in range(3):
        block = pool.allocate(nbytes)
        assert isinstance(block.memory, HostMemory)
        assert (block.memory.address + block.offset) % 64 == 0
        assert block.nbytes == nbytes
        assert nbytes <= block.capacity < max(nbytes * 9 / 8, nbytes + 64) + 1
        assert block.offset + block.capacity <= block.memory.nbytes


def test_capacities_grow_with_the_request() -> None:
    capacities = [capacity_of(nbytes) for nbytes in range(1, 70_000)]
    assert all(first <= second for first, second in pairwise(capacities))
    assert all(capacity_of(capacity) == capacity for capacity in set(capacities))


def test_capacities_are_multiples_of_a_cards_alignment() -> None:
    for nbytes in (1, 64, 256, 257, 4000, 70_000):
        capacity = capacity_of(nbytes, 256)
        assert nbytes <= capacity < max(nbytes * 9 / 8, nbytes + 256)
        assert capacity % 256 == 0


def test_blocks_in_use_do_not_overlap() -> None:
    """Random blocks, each filled with its own number, freed in random order."""
    pool, choice = new_pool(cpu()), random.Random(0)
    alive: list[tuple[StorageBlock, int]] = []
    for number in range(2000):
        if alive and choice.random() < 0.45:
            block, own = alive.pop(choice.randrange(len(alive)))
            assert (contents(block) == own).all()
            pool.free(block)
        block = pool.allocate(choice.choice((1, 64, 200, 5000, 40_000)))
        contents(block)[:] = number % 251
        alive.append((block, number % 251))
    for block, own in alive:
        assert (contents(block) == own).all()


def contents(block: StorageBlock) -> Any:
    memory = block.memory
    assert isinstance(memory, HostMemory)
    return memory.array(block.offset, TensorSpec((block.capacity,), "uint8"))


def test_S2_bytes_in_use_stay_balanced() -> None:
    system = System()
    pool = system.pool()

    def step(number: int) -> None:
        blocks = [pool.allocate(nbytes) for nbytes in (40, 40, 700, 9000, 70_000)]
        for block in blocks[:: 1 if number % 2 else -1]:
            pool.free(block)

    kept = pool.allocate(100)
    found = {}
    for number in range(1, 1001):
        step(number)
        found[number] = pool.statistics()
    assert found[10].bytes_in_use == found[1000].bytes_in_use == kept.capacity
    assert found[10].bytes_reserved == found[1000].bytes_reserved == system.alive
    assert found[10].system_allocations == found[1000].system_allocations
    pool.free(kept)
    del kept
    assert pool.statistics().bytes_in_use == pool.statistics().blocks_in_use == 0
    pool.trim()
    assert pool.statistics().bytes_reserved == system.alive == 0


def test_statistics_follow_the_blocks() -> None:
    system = System()
    pool = system.pool()
    assert pool.statistics() == StorageStatistics(0, 0, 0, 0, 0, 0)
    small, large = pool.allocate(100), pool.allocate(50_000)
    pool.free(small)
    found = pool.statistics()
    assert (found.blocks_in_use, found.bytes_in_use) == (1, large.capacity)
    assert found.peak_bytes == large.capacity + small.capacity
    assert found.bytes_reserved == system.alive
    assert pool.blocks_in_use() == {large.capacity: 1, small.capacity: 0}
    pool.reset_peak()
    assert pool.statistics().peak_bytes == large.capacity


def test_a_block_cannot_be_freed_twice() -> None:
    system = System()
    pool = system.pool()
    block = pool.allocate(10)
    pool.free(block)
    with pytest.raises(InternalError, match="10 bytes of cpu:0 is freed twice"):
        pool.free(block)
    assert pool.statistics().bytes_in_use == 0


def test_trim_returns_memory_without_blocks_in_use() -> None:
    system = System()
    pool = system.pool()
    blocks = [pool.allocate(64) for _ in range(3000)]
    large = [pool.allocate(MIB) for _ in range(3)]
    while len(blocks) > 1:
        pool.free(blocks.pop())
    while len(large) > 1:
        pool.free(large.pop())
    reserved = pool.statistics().bytes_reserved
    returned = pool.trim()
    found = pool.statistics()
    assert reserved - returned == found.bytes_reserved == system.alive < MIB + 64 * KIB
    assert found.bytes_in_use == 64 + MIB
    # What is left of the slab in use is served before a new one is requested.
    again = [pool.allocate(64) for _ in range(20)]
    assert pool.statistics().system_allocations == found.system_allocations
    assert len({(id(b.memory), b.offset) for b in (*again, blocks[0])}) == 21
    for all_of_them in (again, blocks, large):
        while all_of_them:
            pool.free(all_of_them.pop())
    pool.trim()
    assert pool.statistics().bytes_reserved == system.alive == 0
    assert pool.allocate(64).capacity == 64


def test_a_request_above_the_cap_is_refused() -> None:
    system = System()
    pool = system.pool(3 * MIB)
    block = pool.allocate(2 * MIB)
    diagnostic = only_problem(pool.allocate, MIB + MIB // 2)
    assert diagnostic.problem == "out of memory on cpu:0: 1,572,864 bytes are requested"
    assert diagnostic.expected == "at most 3,145,728 bytes in all, the pool's cap"
    assert diagnostic.got == "2,097,152 bytes in use, 2,097,152 reserved"
    # The pool goes on.
    pool.free(block)
    assert pool.allocate(2 * MIB) is block


def test_memory_that_waits_is_trimmed_before_a_refusal() -> None:
    system = System()
    pool = system.pool(3 * MIB)
    pool.free(pool.allocate(2 * MIB))
    pool.free(pool.allocate(64))
    pool.allocate(3 * MIB)
    assert system.alive == pool.statistics().bytes_reserved == 3 * MIB


def test_the_last_slabs_fit_under_the_cap() -> None:
    system = System()
    pool = system.pool(10 * KIB)
    blocks = [pool.allocate(64) for _ in range(160)]
    assert pool.statistics().bytes_reserved == 10 * KIB
    with pytest.raises(UserError, match="64 bytes are requested"):
        pool.allocate(64)
    pool.free(blocks[7])
    assert pool.allocate(64) is blocks[7]


def test_memory_that_waits_is_trimmed_when_the_system_has_none() -> None:
    system = System(2 * MIB)
    pool = system.pool()
    pool.free(pool.allocate(MIB + MIB // 2))
    block = pool.allocate(MIB)
    assert system.alive == block.capacity
    diagnostic = only_problem(pool.allocate, 2 * MIB)
    assert diagnostic.problem == "out of memory on cpu:0: 2,097,152 bytes are requested"
    assert diagnostic.got == "1,048,576 bytes in use, 1,048,576 reserved"
    assert "batch_size" not in diagnostic.hint
    assert "cap" not in diagnostic.expected + diagnostic.hint


def test_S4_freed_blocks_are_poisoned_in_debug_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, expected in (("1", 0xFF), ("0", 7)):
        monkeypatch.setenv("MXRUN_DEBUG", setting)
        pool = new_pool(cpu())
        neighbour, block = pool.allocate(200), pool.allocate(100)
        contents(neighbour)[:] = contents(block)[:] = 7
        pool.free(block)
        assert (contents(block) == expected).all()
        assert (contents(neighbour) == 7).all()
    floats = np.full(8, 0xFF, np.uint8).view(np.float32)
    assert np.isnan(floats).all()


def test_threads_share_a_pool() -> None:
    """Threads allocate, hand blocks to each other, and free them; no block has two owners."""
    system, rounds, count = System(), 3000, 4
    pool = system.pool()
    handed: deque[StorageBlock] = deque()
    problems: list[str] = []
    begin = threading.Barrier(count)
    owners: dict[int, int] = {}

    def work(seed: int) -> None:
        choice = random.Random(seed)
        own: list[StorageBlock] = []
        begin.wait()
        for _ in range(rounds):
            block = pool.allocate(choice.choice((8, 64, 300, 40_000)))
            if owners.setdefault(id(block), seed) != seed:
                problems.append("a block has two owners")
            own.append(block)
            if choice.random() < 0.3:
                given = own.pop(choice.randrange(len(own)))
                del owners[id(given)]
                handed.append(given)
            elif choice.random() < 0.5 and handed:
                try:
                    pool.free(handed.popleft())
                except IndexError:
                    continue
            if choice.random() < 0.01:
                pool.trim()
            if len(own) > 20:
                for each in own:
                    del owners[id(each)]
                    pool.free(each)
                own.clear()
        for each in own:
            del owners[id(each)]
            pool.free(each)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    while handed:
        pool.free(handed.pop())
    assert not problems
    found = pool.statistics()
    assert found.requests == rounds * count
    assert found.bytes_in_use == found.blocks_in_use == 0
    pool.trim()
    assert pool.statistics().bytes_reserved == system.alive == 0


def test_the_garbage_collector_may_free_and_allocate_within_a_call() -> None:
    """Memory whose allocation collects garbage, which frees and allocates in the same pool."""
    collected: list[StorageBlock] = []

    class Owner:
        def __init__(self) -> None:
            self.block, self.cycle = pool.allocate(64), self

        def __del__(self) -> None:
            pool.free(self.block)
            collected.append(pool.allocate(64))

    def allocate(nbytes: int) -> SystemMemory:
        gc.collect()
        return system.allocate(nbytes)

    system = System()
    pool = StoragePool(cpu(), allocate)
    # Left out of collections, as all objects of a test process take seconds.
    gc.freeze()
    try:
        for number in range(5):
            Owner()
            pool.allocate((number + 1) * MIB)
    finally:
        gc.unfreeze()
    assert pool.blocks_in_use()[64] == len(collected) == 5


def test_pools_are_made_once_per_context() -> None:
    made: list[Context] = []

    def make(context: Context) -> StoragePool:
        made.append(context)
        return StoragePool(context, System().allocate)

    pools = StoragePools(make)
    assert pools.of(cpu(0)) is pools.of(cpu(0)) is not pools.of(cpu(1))
    assert made == [cpu(0), cpu(1)]
    pools.of(cpu(1)).free(pools.of(cpu(1)).allocate(MIB))
    assert [each.bytes_reserved for each in pools.statistics().values()] == [0, MIB]
    assert pools.trim() == MIB


def test_the_process_has_pools_on_its_devices() -> None:
    pools = storage_pools()
    assert storage_pools() is pools
    pool = pools.of(Context("reference"))
    block = pool.allocate(10)
    assert isinstance(block.memory, Arena)
    # A block is a place that movable programs take.
    place: Handle = Handle(block.memory, block.offset)
    assert (place.memory, place.offset) == (block.memory, block.offset)
    pool.free(block)
    with pytest.raises(UserError, match="gpux"):
        pools.of(Context("gpux"))


LEAKING = """
from mxrun.base.context import cpu
from mxrun.device.resources import temp_space_of
from mxrun.device.storage import storage_pools

pool = storage_pools().of(cpu())

class Array:
    def __init__(self, nbytes):
        self.block, self.pool, self.cycle = pool.allocate(nbytes), pool, self

    def __del__(self):
        self.pool.free(self.block)

in_a_global = Array(100)
space = temp_space_of(cpu())
space.release(space.acquire(70_000))
table = {"deep": [Array(40), Array(5000)]}
LEAKS
"""
ENDING_THREAD = """
import threading
thread = threading.Thread(target=pool.allocate, args=(40,))
thread.start()
thread.join()
"""
DAEMON_THREAD = """
import threading
allocated = threading.Event()

def compute():
    array = Array(40)
    allocated.set()
    threading.Event().wait()

threading.Thread(target=compute, daemon=True).start()
allocated.wait()
"""


@pytest.mark.parametrize(
    ("leaks", "debug", "expected"),
    [
        ("", "1", ""),
        (
            "pool.allocate(40); pool.allocate(50); pool.allocate(900)",
            "1",
            "mxrun: cpu:0 leaks 3 blocks, 1,088 bytes: 1 of 960, 2 of 64\n",
        ),
        # A thread that has ended, and one that the end of the process stops.
        (ENDING_THREAD, "1", "mxrun: cpu:0 leaks 1 blocks, 64 bytes: 1 of 64\n"),
        (DAEMON_THREAD, "1", ""),
        ("pool.allocate(40)", "0", ""),
    ],
)
def test_S2_leaks_are_reported_at_exit(leaks: str, debug: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAKING.replace("LEAKS", leaks)],
        env={"MXRUN_DEBUG": debug, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stderr == expected
