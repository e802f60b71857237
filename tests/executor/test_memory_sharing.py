"""Memory sharing changes no bit; planned bytes are the bytes touched."""

from __future__ import annotations

import ctypes
import mmap
import signal
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import python_output
from executors import executor_for
from networks import NETWORKS, chain, convolutional, fill, plan_of, same_bits, softmax, trained

from mxrun.base.slices import Shard
from mxrun.base.tensor import TensorSpec
from mxrun.device.host_memory import Arena
from mxrun.executor.executor import Executor
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import EVALUATE, TRAIN, UPDATE
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.planner.allocator.allocate import allocate
from mxrun.runtime.memory_limits import control_group_limits, memory_limit

IMPLEMENTATIONS = ("auto", "numpy")
RANKS = 3
# Slices are entire cache lines, and so are the blocks of each.
SLACK = 1024


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_S4_freed_blocks_may_hold_anything(name: str, implementation: str) -> None:
    plan = plan_of(NETWORKS[name](), implementation=implementation)
    losses, arrays = trained(plan)
    poisoned_losses, poisoned = trained(plan, poisoned=True)
    assert poisoned_losses == losses
    assert same_bits(poisoned, arrays)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_P9_without_hints_the_same_bits(name: str, implementation: str) -> None:
    symbol = NETWORKS[name]()
    with_hints = trained(plan_of(symbol, implementation=implementation))
    without = trained(plan_of(symbol, implementation=implementation, in_place=False))
    unshared = trained(plan_of(symbol, implementation=implementation, in_place=False, reuse=False))
    assert with_hints[0] == without[0] == unshared[0]
    assert same_bits(with_hints[1], without[1])
    assert same_bits(with_hints[1], unshared[1])


@pytest.mark.parametrize("name", NETWORKS)
def test_S5_sharing_pays(name: str) -> None:
    plan = plan_of(NETWORKS[name]())
    infer = plan_of(NETWORKS[name](), rules={}, phases=(EVALUATE,))
    assert plan.planned_bytes <= plan.in_place_only_bytes <= plan.naive_bytes
    assert plan.planned_bytes < plan.naive_bytes
    assert infer.planned_bytes < plan.planned_bytes
    assert plan.proved_optimal


def test_F1_a_bound_proved_above_what_is_alive_makes_a_plan_optimal() -> None:
    plan = plan_of(convolutional())
    phase = plan.largest_phase
    higher = replace(
        phase,
        reusable_bytes=phase.reusable_bytes + 64,
        proved_bytes=phase.lower_bound_bytes + 64,
    )
    proved = replace(plan, phases={**plan.phases, phase.name: higher})
    assert proved.planned_bytes == proved.proved_bytes == proved.lower_bound_bytes + 64
    assert proved.proved_optimal
    unproved = replace(higher, proved_bytes=phase.lower_bound_bytes)
    assert not replace(plan, phases={**plan.phases, phase.name: unproved}).proved_optimal


def test_P8_every_hint_is_listed_with_its_fate() -> None:
    phase = plan_of(convolutional(), implementation="numpy").phases[TRAIN]
    hints = {(hint.step, hint.source): hint for hint in phase.hints}
    assert hints["tanh1", "conv1_output"].taken
    refused = hints["softmax:backward", "softmax_output"]
    assert not refused.taken
    assert refused.reason == "softmax_output is a result"
    offsets = {
        v.name: phase.offsets[i] for i, v in enumerate(phase.graph.values) if i in phase.offsets
    }
    assert offsets["conv1_output"] == offsets["tanh1_output"]


def test_P8_each_reason_to_refuse_a_hint() -> None:
    phase = plan_of(NETWORKS["residual"](), implementation="numpy").phases[TRAIN]
    reasons = {(hint.step, hint.source, hint.target): hint.reason for hint in phase.hints}
    # relu_output has another reader, but the sum has already taken join_output's memory.
    assert reasons["again", "join_output", "again_output"] == ""
    shared = reasons["again", "relu_output", "again_output"]
    assert shared == "the output is already in left_output"
    assert reasons["softmax:backward", "softmax_output", "fc_output_grad"] == (
        "softmax_output is a result"
    )


def test_P8_a_later_reader_refuses_the_hint() -> None:
    phase = plan_of(NETWORKS["shared"](), implementation="numpy").phases[TRAIN]
    reasons = {(hint.step, hint.source, hint.target): hint.reason for hint in phase.hints}
    assert reasons["softmax", "fc2_tanh_output", "softmax_output"] == (
        "backward of fc2_tanh still reads it"
    )


def test_P8_sizes_inputs_and_other_reads_refuse_the_hint() -> None:
    """Refused for a smaller input, a network input, and one that is both inputs."""
    with fresh_names():
        data = variable("data")
        flat = chain(data, ("FullyConnected", {"num_hidden": 8}, "fc1"))
        twice = apply("elemwise_add", {"lhs": flat, "rhs": flat}, {}, "twice")
        mean = apply("mean", {"data": twice}, {"axis": 1, "keepdims": True}, "mean")
        wide = apply("broadcast_add", {"lhs": mean, "rhs": twice}, {}, "wide")
        outer = apply("Activation", {"data": data}, {"act_type": "relu"}, "outer")
        other = chain(outer, ("FullyConnected", {"num_hidden": 8}, "fc2"))
        symbol = apply("elemwise_add", {"lhs": wide, "rhs": other}, {}, "sum")
        network = softmax(chain(symbol, ("FullyConnected", {"num_hidden": 4}, "fc3")))
    phase = plan_of(network, rules={}, phases=(EVALUATE,), fuse=False).phases[EVALUATE]
    reasons = {(hint.step, hint.source): hint.reason for hint in phase.hints}
    assert reasons["wide", "mean_output"] == "the sizes differ"
    assert reasons["wide", "twice_output"] == ""
    assert reasons["outer", "data"] == "data is given from outside"
    assert reasons["twice", "fc1_output"] == "another input shares its memory"
    assert reasons["sum", "fc2_output"] == "the output is already in twice_output"


def dense_sigmoid(fine: bool) -> Symbol:
    """Return two dense layers with sigmoid, as two operators each or as six single operations."""
    with fresh_names():
        symbol = variable("data")
        for name in ("a", "b"):
            if not fine:
                symbol = chain(symbol, ("FullyConnected", {"num_hidden": 64}, name))
                symbol = chain(symbol, ("sigmoid", {}, f"{name}_sigmoid"))
                continue
            symbol = chain(symbol, ("FullyConnected", {"num_hidden": 64, "no_bias": True}, name))
            sides = {"lhs": symbol, "rhs": variable(f"{name}_bias")}
            symbol = chain(
                apply("broadcast_add", sides, {}, f"{name}_add"),
                ("negative", {}, f"{name}_negative"),
                ("exp", {}, f"{name}_exp"),
                ("_plus_scalar", {"scalar": 1.0}, f"{name}_plus"),
                ("reciprocal", {}, f"{name}_reciprocal"),
            )
        return softmax(chain(symbol, ("FullyConnected", {"num_hidden": 4}, "last")))


@pytest.mark.parametrize("phase", [TRAIN, EVALUATE])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_L11_a_network_of_single_operations_takes_no_more(implementation: str, phase: str) -> None:
    """Due to sharing memory alone, not to fusing: every operation is a separate step."""
    options: dict[str, Any] = {"implementation": implementation, "fuse": False, "phases": (phase,)}
    if phase == EVALUATE:
        options["rules"] = {}
    coarse = plan_of(dense_sigmoid(fine=False), **options)
    biases = {"a_bias": (1, 64), "b_bias": (1, 64)}
    fine = plan_of(dense_sigmoid(fine=True), shapes=biases, **options)
    assert len(fine.phases[phase].steps) > len(coarse.phases[phase].steps)
    assert fine.planned_bytes <= coarse.planned_bytes


@pytest.mark.parametrize("name", NETWORKS)
def test_F1_planned_bytes_are_touched(name: str) -> None:
    plan = plan_of(NETWORKS[name]())
    executor = executor_for(plan)

    def exercise() -> None:
        fill(executor)
        executor.run(TRAIN)
        executor.run(EVALUATE)

    assert executor.touched_bytes(exercise) == plan.planned_bytes


def test_F1_ranks_that_slice_states_touch_what_they_plan() -> None:
    """Together they have the states of all elements once."""
    phases = (TRAIN, UPDATE, EVALUATE)
    whole = plan_of(convolutional(), phases=phases)
    names = whole.persistent(MemoryClass.OPTIMIZER)
    elements = dict.fromkeys(names, 0)
    for rank in range(RANKS):
        plan = plan_of(convolutional(), phases=phases, shard=Shard(rank, RANKS))
        executor = executor_for(plan)

        def exercise(executor: Executor = executor) -> None:
            fill(executor)
            for phase in phases:
                executor.run(phase)

        assert executor.touched_bytes(exercise) == plan.planned_bytes
        for name in plan.persistent(MemoryClass.OPTIMIZER):
            elements[name] += plan.specs[name].elements
        own = plan.classes()[MemoryClass.OPTIMIZER.value].total_bytes
        assert own <= whole.classes()[MemoryClass.OPTIMIZER.value].total_bytes / RANKS + SLACK
    assert elements == {name: whole.specs[name].elements for name in names}


def test_F1_touched_is_measured_not_computed() -> None:
    plan = plan_of(convolutional())
    executor = executor_for(plan)
    assert executor.touched_bytes(lambda: None) == 0
    partial = executor.touched_bytes(lambda: fill(executor))
    assert partial == plan.pinned_bytes


def test_the_arena_ends_at_a_guard_page() -> None:
    script = (
        "from mxrun.device.host_memory import Arena; import ctypes; arena = Arena(4160); "
        "ctypes.c_char.from_address(arena.address + 4159).value = b'x'; "
        "print('inside', flush=True); "
        "ctypes.c_char.from_address(arena.address + 4160).value = b'x'"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.stdout == b"inside\n"
    assert done.returncode == -signal.SIGSEGV


def test_arena_is_aligned_and_zeroed() -> None:
    arena = Arena(64 * 1000)
    assert arena.address % 64 == 0
    assert not arena.array(0, TensorSpec((arena.nbytes,), "uint8")).any()
    view = arena.array(128, TensorSpec((4,)))
    view[:] = 1
    assert ctypes.c_float.from_address(arena.address + 128).value == 1


def test_X6_no_python_growth_per_step() -> None:
    executor = executor_for(plan_of(convolutional()))
    fill(executor)
    for _ in range(3):
        executor.run(TRAIN)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10):
            executor.run(TRAIN)
        growth = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert growth < 64 * 1024


def test_L1_two_networks_take_turns() -> None:
    """Operators have no state: alternating executors of one plan do not disturb each other."""
    plan = plan_of(convolutional())
    alone = trained(plan, steps=2)[1]
    first, second = executor_for(plan), executor_for(plan)
    fill(first)
    fill(second, seed=1)
    for _ in range(2):
        first.run(TRAIN)
        second.run(TRAIN)
    assert same_bits({b.name: first.tensor(b.name).read() for b in plan.pinned}, alone)


def test_plans_for_other_threads_do_not_disturb_each_other() -> None:
    """Their programs share one pool."""
    wide, narrow = plan_of(convolutional(), threads=2), plan_of(convolutional(), threads=1)
    alone = trained(wide, steps=2)[1], trained(narrow, steps=2)[1]
    executors = executor_for(wide), executor_for(narrow)
    for executor in executors:
        fill(executor)
    for _ in range(2):
        for executor in executors:
            executor.run(TRAIN)
    for executor, expected in zip(executors, alone, strict=True):
        plan = executor.plan
        assert same_bits({b.name: executor.tensor(b.name).read() for b in plan.pinned}, expected)


def test_calls_one_by_one_give_the_same_bits() -> None:
    plan = plan_of(convolutional())
    native = trained(plan)[1]
    executor = executor_for(plan)
    fill(executor)
    for _ in range(3):
        executor.programs[TRAIN].run_watched(lambda index: None)
    assert same_bits({b.name: executor.tensor(b.name).read() for b in plan.pinned}, native)


def test_first_fit_never_overlaps() -> None:
    generator = np.random.default_rng(3)
    for _ in range(200):
        count = int(generator.integers(1, 40))
        sizes = (generator.integers(1, 50, count) * 64).tolist()
        first = generator.integers(0, 30, count)
        last = first + generator.integers(1, 12, count)
        allocation = allocate(sizes, first.tolist(), last.tolist())
        assert allocation.arena_bytes >= allocation.lower_bound_bytes
        for i in range(count):
            for j in range(i):
                if first[i] < last[j] and first[j] < last[i]:
                    a, b = allocation.offsets[i], allocation.offsets[j]
                    assert a + sizes[i] <= b or b + sizes[j] <= a


def test_an_arena_beyond_the_address_space_is_refused_in_one_line() -> None:
    script = (
        "import resource\n"
        "from mxrun.base.errors import UserError\n"
        "from mxrun.device.host_memory import Arena\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "for nbytes in (8 << 30, 1 << 63):\n"
        "    try:\n"
        "        Arena(nbytes)\n"
        "    except UserError as error:\n"
        "        print(error.diagnostics[0].problem)\n"
    )
    needed = [nbytes + mmap.PAGESIZE for nbytes in (8 << 30, 1 << 63)]
    assert python_output("-c", script).splitlines() == [
        f"out of memory: the arena needs {nbytes:,} bytes" for nbytes in needed
    ]


def test_the_memory_limit_is_the_least_of_all(tmp_path: Path) -> None:
    membership = "7:cpu,memory:/box/inner\n3:pids:/box\n0::/user/mxrun\n"
    for name, content in (
        ("memory.max", "9000\n"),
        ("user/memory.max", "max\n"),
        ("user/mxrun/memory.max", "7000\n"),
        ("memory/box/memory.limit_in_bytes", "5000\n"),
        ("box/memory.max", "1\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert sorted(control_group_limits(membership, tmp_path)) == [5000, 7000, 9000]
    assert list(control_group_limits("", tmp_path)) == []
    script = (
        "import resource; from mxrun.runtime.memory_limits import memory_limit; "
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)); print(memory_limit())"
    )
    assert int(python_output("-c", script)) == min(memory_limit(), 2 << 30)


def test_what_a_process_has_is_no_longer_there_to_be_had() -> None:
    script = (
        "import resource, mmap\n"
        "from mxrun.runtime.memory_limits import remaining_bytes\n"
        "mapped = int(open('/proc/self/statm').read().split()[0]) * mmap.PAGESIZE\n"
        "limit = mapped + (1 << 30)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "before = remaining_bytes()\n"
        "held = mmap.mmap(-1, 1 << 28)\n"
        "print(before, remaining_bytes())\n"
    )
    before, after = map(int, python_output("-c", script).split())
    assert before <= 1 << 30
    assert before - after == 1 << 28
