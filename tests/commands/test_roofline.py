"""`bench` compares every operator's time with its floor, and the step with the sum of floors."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import mxrun, result, succeeded
from executors import executor_for
from networks import convolutional, fill, plan_of

from mxrun.base.machine import Bandwidth, Machine
from mxrun.device.cpu.call import NativeCall
from mxrun.device.cpu.tape import Tape
from mxrun.executor.executor import Executor
from mxrun.graph.cost import Bound, Cost, cost_of, traffic_of
from mxrun.graph.graph import MemoryClass, StepKind
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.inspection.roofline import Excess, OperatorFloor, Roofline, roofline
from mxrun.runtime.profiler import Event

# The digits of a cost tell its parts: loops, primitives, loops of several tasks.
LOOP, PRIMITIVE, TASKS = 1, 1_000, 1_000_000
MACHINE = Machine(
    threads=2,
    flops_per_s={"float32": 1e11},
    bandwidths=(Bandwidth(1 << 10, 8e10, 4e10, 6e10),),
    loop_s=LOOP,
    primitive_s=PRIMITIVE,
    tasks_s=TASKS,
)


def test_F6_every_operator_stands_against_its_floor(tmp_path: Path) -> None:
    options = ("--threads", "1", "--steps", "60", "--warmup", "5")
    report = result("bench", "digits_lenet", *options, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
    found, step = report["roofline"], report["roofline"]["step"]
    rows = found["operators"]
    assert [row["name"] for row in rows] == [row["name"] for row in report["operators"]]
    for row in rows:
        assert row["ms"] > 0
        assert row["floor_ms"] == max(row["compute_ms"], row["memory_ms"]) > 0
        limits = {bound.value: row[f"{bound.value}_ms"] for bound in Bound}
        assert row["bound"] == max(limits, key=lambda name: limits[name])
        assert row["of_bound"] == pytest.approx(max(limits.values()) / row["ms"])
        assert row["of_bound"] > 0
        assert row["floor_ms"] < row["predicted_ms"]
    bounds = {row["name"]: row["bound"] for row in rows}
    gradients = {
        f"{name}:backward:{part}" for name in ("conv2", "fc1") for part in ("data", "weight+bias")
    }
    assert {bounds[name] for name in ("conv2", *gradients)} == {"compute"}
    assert bounds["relu1"] == bounds["pool1"] == "memory"
    assert bounds["conv1_bias:update"] == "overhead"
    assert step["ms"] == report["mxrun"]["step_ms"]["median"]
    assert step["operators_ms"] == pytest.approx(sum(row["ms"] for row in rows))
    assert step["total_ms"] == max(step["ms"], step["operators_ms"])
    batch = step["batch_floor_ms"]
    assert step["floor_ms"] == pytest.approx(batch + sum(row["floor_ms"] for row in rows))
    assert step["predicted_ms"] == pytest.approx(batch + sum(row["predicted_ms"] for row in rows))
    assert step["of_floor"] == pytest.approx(step["floor_ms"] / step["ms"])
    assert step["of_floor"] > 0
    assert step["error"] == pytest.approx(step["predicted_ms"] / step["ms"] - 1)
    most = found["largest_excesses"]
    assert len({(group["op"], group["phase"]) for group in most}) == 3
    assert [group["savings_ms"] for group in most] == sorted(
        (group["savings_ms"] for group in most), reverse=True
    )
    assert found["machine"]["threads"] == 1


def test_the_table_for_people_says_what_there_is_to_win(tmp_path: Path) -> None:
    done = succeeded(mxrun("bench", "digits_lenet", "--threads", "1", "--steps", "5", cwd=tmp_path))
    for part in ("of bound", "overhead", "Most time above the floors: ", "GFLOP/s"):
        assert part in done.stdout


def profiled(threads: int, phase: str) -> tuple[Executor, Roofline]:
    executor = executor_for(plan_of(convolutional(), threads=threads))
    fill(executor)
    profile = executor.profile(phase, 3)
    for _ in range(3):
        profile.run()
    return executor, roofline(executor, phase, profile.events(), 1.0, MACHINE)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("phase", [TRAIN, EVALUATE])
def test_every_step_that_calls_something_has_its_cost(threads: int, phase: str) -> None:
    executor, found = profiled(threads, phase)
    program = executor.programs[phase]
    assert isinstance(program, Tape)
    planned = executor.plan.phases[phase]
    assert {row.step.name for row in found.operators} == planned.implementations().keys()
    for row in found.operators:
        overhead = row.cost.overhead_s
        assert row.seconds > 0
        traffic = traffic_of(row.step, planned.offsets)
        assert row.cost == cost_of(row.step, traffic, MACHINE, overhead)
        calls = [
            entry.call
            for entry in program.entries
            if entry.name == row.step.name and isinstance(entry.call, NativeCall)
        ]
        primitives, loops = int(overhead) // PRIMITIVE % 1000, int(overhead) % PRIMITIVE
        assert primitives + loops == len(calls)
        assert threads == 2 or overhead < TASKS
    batch = sum(
        block.nbytes for block in executor.plan.pinned if block.memory_class is MemoryClass.IO
    )
    assert found.batch_s == pytest.approx(2 * batch / 4e10)


def test_a_small_product_is_one_thread_s() -> None:
    """conv2 has 6 x 7 x 2 x 2 x 45 x 2 operations: too few for a second task."""
    _, found = profiled(2, TRAIN)
    overheads = {row.step.name: row.cost.overhead_s for row in found.operators}
    assert overheads["conv2"] == PRIMITIVE
    assert overheads["fc"] == LOOP


def test_times_are_medians_of_the_steps_sums() -> None:
    executor = executor_for(plan_of(convolutional(), threads=1))
    durations = {0: (100, 5), 1: (900, 5), 2: (300, 5)}
    events = [
        Event(name, "forward", "operators", 0, duration, {"step": step})
        for step, (long, short) in durations.items()
        for name, duration in (("conv1", long), ("conv1", 7), ("pool1", short))
    ]
    found = roofline(executor, TRAIN, events, 1.0, MACHINE)
    assert {row.step.name: row.seconds for row in found.operators} == {
        "conv1": pytest.approx(307e-9),
        "pool1": pytest.approx(5e-9),
    }


def constructed(step_s: float) -> Roofline:
    """Return a roofline of operators that took 31 s in profiled steps, for a step of `step_s`."""
    steps = {step.name: step for step in plan_of(convolutional()).phases[TRAIN].steps}

    def row(name: str, seconds: float, floor_s: float) -> OperatorFloor:
        kind = StepKind.BACKWARD if "backward" in name else StepKind.FORWARD
        return OperatorFloor(steps[name], seconds, Cost(kind, floor_s, 0.0, 0.0))

    return Roofline(
        MACHINE,
        (
            row("conv1", 5.0, 4.0),
            row("conv2", 5.0, 2.0),
            row("conv2:backward:data", 9.0, 6.5),
            row("fc", 9.0, 8.0),
            row("fc:backward:data", 1.0, 3.0),
            row("pool1", 2.0, 1.5),
        ),
        batch_s=1.0,
        step_s=step_s,
    )


def test_the_largest_excesses_is_the_time_above_floors_by_operator_and_phase() -> None:
    found = constructed(step_s=40.0)
    assert found.largest_excesses() == [
        Excess("Convolution", "forward", 2, 10e3, 6e3, savings_ms=4e3, savings=0.1),
        Excess("Convolution", "backward", 1, 9e3, 6.5e3, savings_ms=2.5e3, savings=0.0625),
        Excess("FullyConnected", "forward", 1, 9e3, 8e3, savings_ms=1e3, savings=0.025),
    ]
    assert found.floor_s == 1 + 4 + 2 + 6.5 + 8 + 3 + 1.5


def test_what_there_is_to_win_is_never_more_than_all() -> None:
    """Unprofiled steps took a tenth of the time of profiled ones, slowed by other work."""
    content = constructed(step_s=3.1).to_json()
    step = content["step"]
    assert (step["ms"], step["operators_ms"], step["total_ms"]) == (3.1e3, 31e3, 31e3)
    assert [row["savings"] for row in content["largest_excesses"]] == [4 / 31, 2.5 / 31, 1 / 31]
