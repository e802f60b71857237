"""A profiled run computes the same bits, and its times are assigned to the right operators."""

from __future__ import annotations

import ctypes
import itertools
import time
import tracemalloc

import pytest
from executors import executor_for
from networks import NETWORKS, Arrays, convolutional, fill, pinned, plan_of, same_bits

from mxrun.base.errors import InternalError
from mxrun.device.cpu.binding import PythonCall
from mxrun.device.cpu.call import NativeCall
from mxrun.device.cpu.program import CpuProgram
from mxrun.device.cpu.tape import TapeEntry
from mxrun.executor.executor import Executor
from mxrun.executor.profile import Profile
from mxrun.graph.graph import StepKind
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.planner.plan import Plan

IMPLEMENTATIONS = ("auto", "numpy")


def executor_of(implementation: str = "auto") -> Executor:
    executor = executor_for(plan_of(convolutional(), implementation=implementation))
    fill(executor)
    return executor


def after_three_steps(plan: Plan, profiled: bool) -> Arrays:
    executor = executor_for(plan)
    fill(executor)
    profile = executor.profile(TRAIN)
    for _ in range(3):
        if profiled:
            profile.run()
        else:
            executor.run(TRAIN)
    return pinned(executor) | {"loss": executor.result(TRAIN, "softmax_loss").read()}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_profiling_changes_no_bit(name: str, implementation: str) -> None:
    plan = plan_of(NETWORKS[name](), implementation=implementation)
    assert same_bits(after_three_steps(plan, True), after_three_steps(plan, False))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_every_operator_that_calls_something_has_its_time(implementation: str) -> None:
    executor = executor_of(implementation)
    phase = executor.plan.phases[TRAIN]
    profile = executor.profile(TRAIN)
    begun = time.perf_counter()
    for _ in range(7):
        profile.run()
    wall_ms = (time.perf_counter() - begun) * 1e3
    found = profile.operators()
    assert {row.name: row.implementation for row in found} == phase.implementations()
    assert {row.phase for row in found} <= {kind.value for kind in StepKind}
    assert {"forward", "backward", "update"} <= {row.phase for row in found}
    assert all(row.calls == 7 and row.ms > 0 for row in found)
    assert sum(row.share for row in found) == pytest.approx(1)
    assert sum(row.ms * row.calls for row in found) <= wall_ms
    steps = {step.name: step for step in phase.steps}
    for row in found:
        kernel, prop = steps[row.name].kernel, steps[row.name].prop
        assert kernel is not None
        assert prop is not None
        assert row.op == prop.type_string
        assert row.gflops * row.ms * 1e6 == pytest.approx(kernel.flops)
        assert row.gbytes_per_s * row.ms * 1e6 == pytest.approx(kernel.bytes_moved)


def test_evaluation_has_forward_steps_only() -> None:
    executor = executor_of()
    profile = executor.profile(EVALUATE)
    profile.run()
    assert {row.phase for row in profile.operators()} <= {"forward", "reorder"}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_first_steps_are_kept_call_by_call(implementation: str) -> None:
    executor = executor_of(implementation)
    profile = executor.profile(TRAIN, recorded_steps=2)
    begun = time.monotonic_ns()
    for _ in range(5):
        profile.run()
    finished = time.monotonic_ns()
    events = list(profile.events())
    names = executor.programs[TRAIN].names
    assert [event.name for event in events] == 2 * [*names]
    assert [event.arguments["step"] for event in events] == [0] * len(names) + [1] * len(names)
    assert begun <= events[0].start_ns
    assert events[-1].start_ns + events[-1].duration_ns <= finished
    for event, following in itertools.pairwise(events):
        assert event.duration_ns >= 0
        assert event.start_ns + event.duration_ns <= following.start_ns
    assert profile.steps == 5
    assert all(row.calls == 5 for row in profile.operators())


def test_calls_of_one_operator_are_told_apart() -> None:
    profile = executor_of().profile(TRAIN, recorded_steps=1)
    profile.run()
    name = "conv2:backward:weight+bias"
    calls = [e.arguments["call"] for e in profile.events() if e.name == name]
    assert len(calls) > 1
    assert calls == [f"{number} of {len(calls)}" for number in range(1, len(calls) + 1)]


def test_a_slow_call_is_found_where_it_is() -> None:
    phase = plan_of(convolutional()).phases[TRAIN]
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value or 0
    slow = {
        "conv1": NativeCall(sleep, (20_000,), None),
        "tanh1": PythonCall(lambda: time.sleep(0.01)),
        "pool1": NativeCall(sleep, (0,), None),
    }
    profile = Profile(phase, CpuProgram([TapeEntry(name, call) for name, call in slow.items()]))
    begun = time.perf_counter()
    for _ in range(3):
        profile.run()
    wall_ms = (time.perf_counter() - begun) * 1e3
    ms = {row.name: row.ms for row in profile.operators()}
    assert list(ms) == list(slow)
    assert ms["conv1"] >= 20
    assert ms["tanh1"] >= 10
    # No time counts twice.
    assert 3 * sum(ms.values()) <= wall_ms


def test_a_failing_call_is_named() -> None:
    phase = plan_of(convolutional()).phases[TRAIN]
    absolute = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value or 0
    calls = [NativeCall(absolute, (number,), None, checked=True) for number in (0, 3)]
    entries = [TapeEntry(name, call) for name, call in zip(("conv1", "tanh1"), calls, strict=True)]
    with pytest.raises(InternalError, match="the native call of tanh1 failed"):
        Profile(phase, CpuProgram(entries)).run()


def test_profiled_steps_leave_no_python_objects() -> None:
    profile = executor_of().profile(TRAIN, recorded_steps=4)
    for _ in range(3):
        profile.run()
    tracemalloc.start()
    try:
        profile.run()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            profile.run()
        assert tracemalloc.get_traced_memory()[0] - before < 4096
    finally:
        tracemalloc.stop()
