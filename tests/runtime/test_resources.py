"""Resources of engine functions: temporary space and random numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from mxrun.base.context import Context, cpu
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.device.host_memory import Arena
from mxrun.device.resources import new_random_resource, temp_space_of
from mxrun.operator.launch import Handle
from mxrun.runtime.engine.default import KINDS, new_engine
from mxrun.runtime.engine.interface import Engine, RunContext
from mxrun.runtime.random import key_of
from mxrun.runtime.resources import RandomResource, TempSpace
from mxrun.runtime.storage import StoragePool

STATE = TensorSpec((3,), "int64")
MIB = 1 << 20


def pool_of_arenas(cap: int | None = None) -> StoragePool:
    return StoragePool(cpu(), Arena, cap)


def test_temporary_space_is_shared_and_grows() -> None:
    pool = pool_of_arenas()
    space = TempSpace(pool)
    first = space.acquire(1000)
    assert first.capacity >= 1000
    space.release(first)
    assert space.acquire(10) is first
    space.release(first)
    larger = space.acquire(100_000)
    assert larger.capacity >= 100_000
    space.release(larger)
    assert space.acquire(2000) is larger
    assert pool.statistics().bytes_in_use == larger.capacity
    space.release(larger)
    found = pool.statistics()
    assert found.bytes_in_use == found.blocks_in_use == 0


def test_functions_that_run_at_once_have_space_of_their_own() -> None:
    """Also a function that runs within another on the same thread."""
    pool = pool_of_arenas()
    space, both = TempSpace(pool), threading.Barrier(2)
    found = []

    def work() -> None:
        for _ in range(3):
            block = space.acquire(500)
            found.append(block)
            both.wait()
            space.release(block)
            both.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(first is not second for first, second in zip(found[::2], found[1::2], strict=True))
    outer, inner = space.acquire(500), space.acquire(500)
    assert outer is not inner
    assert len({id(block) for block in (*found, outer, inner)}) == 2


def test_trimming_frees_idle_space_alone() -> None:
    pool = pool_of_arenas()
    space = TempSpace(pool)
    used, other = space.acquire(MIB), space.acquire(MIB)
    space.release(other)
    assert pool.statistics().bytes_reserved == 2 * MIB
    assert pool.trim() == MIB
    assert pool.statistics().bytes_in_use == used.capacity == MIB
    space.release(used)
    assert pool.trim() == MIB
    assert pool.statistics().bytes_reserved == 0


def test_arrays_get_the_memory_of_idle_space() -> None:
    pool = pool_of_arenas(cap=2 * MIB)
    space = TempSpace(pool)
    block = space.acquire(2 * MIB)
    with pytest.raises(UserError, match="out of memory"):
        pool.allocate(MIB)
    space.release(block)
    pool.allocate(MIB)
    assert pool.statistics().bytes_reserved == MIB


def test_the_process_has_one_temporary_space_per_context() -> None:
    space = temp_space_of(cpu())
    assert space is temp_space_of(cpu()) is not temp_space_of(cpu(1))
    block = space.acquire(100)
    assert isinstance(block.memory, Arena)
    space.release(block)


@pytest.fixture(params=list(KINDS))
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = new_engine(request.param)
    yield made
    made.close()


@pytest.fixture(params=["cpu", "reference"])
def context(request: pytest.FixtureRequest) -> Context:
    return Context(request.param)


def drawer(resource: RandomResource, states: list[list[int]]) -> Callable[[RunContext], None]:
    """Return a function that notes the state with which a program would draw."""
    place = resource.place
    assert isinstance(place, Handle)
    memory = place.memory
    assert isinstance(memory, Arena)

    def draw(_: RunContext) -> None:
        resource.advance()
        states.append(memory.array(place.offset, STATE).tolist())

    return draw


def push(engine: Engine, resource: RandomResource, draw: Callable[[RunContext], None]) -> None:
    engine.push_sync(draw, updates=(resource.variable,), name="draw")


def test_functions_draw_in_the_order_of_pushing(engine: Engine, context: Context) -> None:
    resource = new_random_resource(engine, context, 3)
    states: list[list[int]] = []
    draw = drawer(resource, states)
    for _ in range(50):
        push(engine, resource, draw)
    resource.seed(9)
    push(engine, resource, draw)
    resource.seed(3)
    for _ in range(2):
        push(engine, resource, draw)
    engine.wait_for_variable(resource.variable)
    first, second = (key_of(f"{seed}/{context}") for seed in (3, 9))
    expected = [[first, step, 0] for step in range(1, 51)]
    assert states == [*expected, [second, 1, 0], *expected[:2]]


def test_a_seed_waits_for_functions_that_are_pending() -> None:
    engine = new_engine("threaded")
    resource = new_random_resource(engine, cpu(), 0)
    states: list[list[int]] = []
    gate = threading.Event()
    draw = drawer(resource, states)

    def slow(run_context: RunContext) -> None:
        gate.wait()
        draw(run_context)

    push(engine, resource, slow)
    resource.seed(1)
    push(engine, resource, draw)
    gate.set()
    engine.close()
    assert states == [[key_of(f"{seed}/cpu:0"), 1, 0] for seed in (0, 1)]


def test_contexts_draw_different_numbers() -> None:
    engine = new_engine("naive")
    keys = set()
    for seed in (0, 1):
        for index in (0, 1):
            states: list[list[int]] = []
            resource = new_random_resource(engine, cpu(index), seed)
            push(engine, resource, drawer(resource, states))
            keys.add(states[0][0])
    assert len(keys) == 4


def test_a_seed_ends_the_failure_of_a_function_that_draws() -> None:
    engine = new_engine("naive")
    resource = new_random_resource(engine, cpu(), 0)

    def fail(_: RunContext) -> None:
        raise ZeroDivisionError

    push(engine, resource, fail)
    states: list[list[int]] = []
    resource.seed(5)
    push(engine, resource, drawer(resource, states))
    engine.wait_for_variable(resource.variable)
    assert states == [[key_of("5/cpu:0"), 1, 0]]
