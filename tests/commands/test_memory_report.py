"""The bytes that inspect-memory reports without data are the bytes that a run touches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bundled_runs import BUNDLED, bundled, executor_of
from commands import refused, result
from memory_reports import memory_of
from training import prepare

from mxrun.base.tensor import TensorSpec
from mxrun.commands.inspect_memory import outside_bytes, thread_figures
from mxrun.config.bundled import find_config
from mxrun.executor.executor import Executor
from mxrun.frontend import ModelDefinition
from mxrun.graph.graph import MemoryClass, StepKind
from mxrun.graph.naming import in_words
from mxrun.graph.phases import EVALUATE, PREPARE, TRAIN
from mxrun.io.dataset.request import open_datasets
from mxrun.io.loading.open import open_iterator
from mxrun.planner.explain import live_tensors
from mxrun.planner.plan import Plan
from mxrun.preparation.planning import load, plan_for
from mxrun.preparation.synthetic_data import with_synthetic_data
from mxrun.train.host_arrays import slots

RANKS = 4


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("config", BUNDLED)
def test_F1_S5_the_plan_meets_its_lower_bound(config: str, threads: int) -> None:
    for phase in ("train", "infer"):
        plan = memory_of(find_config(config), phase=phase, threads=threads).plan
        assert plan.planned_bytes == plan.lower_bound_bytes
        assert plan.proved_optimal
        assert plan.planned_bytes <= plan.in_place_only_bytes <= plan.naive_bytes
        assert plan.planned_bytes < plan.naive_bytes


@pytest.mark.parametrize("config", BUNDLED)
def test_F1_a_run_touches_what_inspect_memory_says(config: str, tmp_path: Path) -> None:
    """The report has no data available, and writes nothing."""
    report = result("inspect-memory", config, "--threads", "2", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
    built = bundled(config)
    run = prepare(built)
    assert run.plan.planned_bytes == report["planned_bytes"]
    assert run.touched_bytes() == report["planned_bytes"]


@pytest.mark.full
def test_F1_each_rank_touches_what_it_plans() -> None:
    """A GPT of 11 million parameters with Adam, whose states four ranks share out."""
    words = ("train.optimizer=adam", "kvstore=dist_sync", "shard=states", "threads=2")
    path = find_config("gpt_shakespeare_medium")
    first = memory_of(path, words, ranks=RANKS, measured=False).plan
    for rank in (0, RANKS - 1):
        run = prepare(with_synthetic_data(load(path, words).on_ranks(RANKS, rank)))
        assert run.touched_bytes() == run.plan.planned_bytes <= first.planned_bytes
    whole = memory_of(path, [*words, "shard=none"], ranks=RANKS, measured=False).plan
    states = whole.classes()[MemoryClass.OPTIMIZER.value].total_bytes
    saved = whole.planned_bytes - first.planned_bytes
    assert saved == pytest.approx(states * (RANKS - 1) / RANKS, rel=0.01)


def test_F1_one_of_several_ranks_is_told_from_what_it_is_not() -> None:
    words = ("inspect-memory", "digits_lenet", "--ranks", "4")
    assert "--ranks is for several processes" in refused(*words)
    assert "3 ranks cannot share 4" in refused(*words[:3], "3", "kvstore=dist_sync")
    assert "cannot be combined with --what-if" in refused(*words, "--what-if")


@pytest.mark.parametrize("config", BUNDLED)
def test_F1_classes_add_up(config: str) -> None:
    """The bytes of all classes add up to the arena without reuse, those at the peak to the lower
    bound.
    """
    report = memory_of(find_config(config))
    classes = report.to_json()["classes"]
    assert set(classes) == {kind.value for kind in MemoryClass}
    assert sum(figures["total_bytes"] for figures in classes.values()) == (
        report.plan.in_place_only_bytes
    )
    assert sum(figures["peak_bytes"] for figures in classes.values()) == (
        report.plan.lower_bound_bytes
    )
    for figures in classes.values():
        assert 0 <= figures["peak_bytes"] <= figures["total_bytes"]
    model = load(find_config(config)).model
    parameters = sum(rounded(spec) for spec in model.parameters.values())
    assert classes["parameters"] == {"total_bytes": parameters, "peak_bytes": parameters}
    assert classes["optimizer"] == classes["parameters"]
    assert classes["auxiliary"]["total_bytes"] == 0
    assert classes["io"]["total_bytes"] >= sum(rounded(s) for s in model.inputs.values())
    assert classes["gradients"]["total_bytes"] > 0


def rounded(spec: TensorSpec) -> int:
    return -(-spec.nbytes // 64) * 64


def figures_of(plan: Plan, kind: str) -> int:
    return plan.classes()[kind].total_bytes


def test_F1_phase_batch_and_threads_act() -> None:
    path = find_config("lenet_mnist")
    train = memory_of(path).plan
    infer = memory_of(path, phase="infer").plan
    for kind in ("gradients", "optimizer", "activation_gradients"):
        assert figures_of(train, kind) > 0
        assert figures_of(infer, kind) == 0
    assert figures_of(infer, "constants") > figures_of(train, "constants") == 0
    assert set(train.phases) == {TRAIN, EVALUATE}
    assert set(infer.phases) == {PREPARE, EVALUATE}
    small, large = (memory_of(path, batch=size).plan for size in (16, 128))
    assert small.specs["data"].shape == (16, 1, 28, 28)
    assert large.specs["data"].shape == (128, 1, 28, 28)
    assert figures_of(small, "parameters") == figures_of(large, "parameters")
    ratio = figures_of(large, "activations") / figures_of(small, "activations")
    assert ratio == pytest.approx(8, rel=0.1)
    overridden = memory_of(path, overrides=["data.batch_size=16"]).plan
    assert overridden.planned_bytes == small.planned_bytes
    for threads in (1, 3):
        assert memory_of(path, threads=threads).plan.device.threads == threads


def test_F1_the_json_has_the_promised_fields(tmp_path: Path) -> None:
    report = result(
        "inspect-memory", "digits_lenet", "--batch", "5", "--phase", "infer", cwd=tmp_path
    )
    assert {
        "planned_bytes",
        "lower_bound_bytes",
        "naive_bytes",
        "in_place_only_bytes",
        "proved_bytes",
        "proved_optimal",
        "classes",
        "planning_ms",
    } <= set(report)
    for figures in report["classes"].values():
        assert set(figures) == {"total_bytes", "peak_bytes"}
    for option in (("--batch", "-1"), ("--threads", "0"), ("--phase", "test")):
        assert "Usage" in refused("inspect-memory", "digits_lenet", *option, cwd=tmp_path)


def steps(built: ModelDefinition, executor: Executor, poisoned: bool = False) -> dict[str, bytes]:
    """Return all pinned bytes after the five steps of an epoch; the last batch is padded."""
    dataset = open_datasets(built.data, built.model.records)["train"]
    iterator = open_iterator(dataset, built.model.batch_size, shuffle=True)
    places = slots(executor, iterator).arrays
    iterator.reset(1)
    count = 0
    while iterator.next_into(places) is not None:
        if poisoned:
            executor.run_poisoned(TRAIN)
        else:
            executor.run(TRAIN)
        count += 1
    assert count == 5
    return {
        block.name: executor.tensor(block.name).values().tobytes() for block in executor.plan.pinned
    }


@pytest.mark.parametrize("config", BUNDLED)
def test_S4_poisoned_reuse_changes_no_bit_of_the_bundled_networks(config: str) -> None:
    built = bundled(config)
    first = executor_of(built).tensor("fc2_weight").values().tobytes()
    clean = steps(built, executor_of(built))
    assert steps(built, executor_of(built), poisoned=True) == clean
    assert np.isfinite(np.frombuffer(clean["fc2_weight"], np.float32)).all()
    assert clean["fc2_weight"] != first


@pytest.mark.parametrize("config", BUNDLED)
def test_P9_S5_sharing_changes_no_bit_of_the_bundled_networks(config: str) -> None:
    built = bundled(config)
    shared = executor_of(built)
    without_hints = executor_of(built, in_place=False)
    unshared = executor_of(built, in_place=False, reuse=False)
    planned = [e.plan.planned_bytes for e in (shared, without_hints, unshared)]
    assert planned[0] <= planned[1] < planned[2]
    hints = [hint for phase in without_hints.plan.phases.values() for hint in phase.hints]
    assert not any(hint.taken for hint in hints)
    assert all(hint.reason for hint in hints)
    after = steps(built, shared)
    assert steps(built, without_hints) == after
    assert steps(built, unshared) == after


@pytest.mark.parametrize("phase", [TRAIN, EVALUATE])
@pytest.mark.parametrize("config", BUNDLED)
def test_F1_F7_every_live_byte_of_every_step_has_its_reason(config: str, phase: str) -> None:
    """Checked with the graph: the last step of a lifetime reads the tensor, or it is a result."""
    plan = memory_of(find_config(config)).plan
    planned = plan.phases[phase]
    views = {
        step.writes[0]: step.reads[0]
        for step in planned.steps
        if step.kernel is not None and step.kernel.is_view
    }

    def sources(value: int) -> set[int]:
        return {value} | (sources(views[value]) if value in views else set())

    live_bytes = planned.live_bytes()
    for position in range(len(planned.steps)):
        live = live_tensors(planned, plan.pinned, position)
        assert (
            sum(tensor.block.nbytes for tensor in live) == plan.pinned_bytes + live_bytes[position]
        )
        for tensor in live:
            assert tensor.first <= position <= tensor.last
            last = planned.steps[tensor.last]
            read = {
                planned.graph.values[source].name
                for value in last.reads
                for source in sources(value)
            }
            if "reads it" in tensor.reason:
                assert tensor.tensor in read
                assert in_words(last.forward or last.name) in tensor.reason
                assert tensor.reason.startswith("backward of") == (last.forward is not None)
            elif tensor.reason.endswith("reads a copy of it"):
                assert tensor.tensor in read
                assert last.kind is StepKind.REORDER
            elif tensor.reason.startswith("result"):
                assert tensor.tensor in {
                    planned.graph.values[value].name for value in planned.graph.results.values()
                }
            elif tensor.reason.startswith("workspace of"):
                assert tensor.first == tensor.last == position
                assert tensor.reason.endswith(in_words(planned.steps[position].name))
            elif not tensor.reason.endswith("writes it"):
                assert tensor.tensor in planned.graph.sources or tensor.tensor in plan.specs


def test_F7_the_reasons_are_those_that_operators_declare() -> None:
    plan = memory_of(find_config("digits_lenet"), threads=1).plan
    phase = plan.phases[TRAIN]
    position = next(i for i, step in enumerate(phase.steps) if step.name == "pool2:backward")
    reasons = {
        tensor.tensor: tensor.reason for tensor in live_tensors(phase, plan.pinned, position)
    }
    assert reasons["pool1_extra0"] == "backward of pool1 reads it (kept by its forward kernel)"
    assert reasons["pool1_output"] == "backward of relu1 reads it (output)"
    assert reasons["softmax_output"] == "result, kept to the end"
    assert reasons["fc1_weight"] == "parameter"
    assert reasons["fc1_weight:mom"] == "optimizer state"
    assert reasons["data"] == "written by the loop before each step"


def test_F1_a_report_without_the_arena_binds_every_kernel() -> None:
    built = load(find_config("digits_lenet"))
    outside = outside_bytes(built.options, plan_for(built, training=True, threads=1))
    assert outside["total_bytes"] > 0
    assert outside["compiled_bytes"] > 0


def test_threads_whose_memory_cannot_be_told_count_as_nothing() -> None:
    assert thread_figures(1000, 1512) == {"threads_bytes": 512, "total_bytes": 1512}
    assert thread_figures(1000, 900) == {"threads_bytes": 0, "total_bytes": 1000}
