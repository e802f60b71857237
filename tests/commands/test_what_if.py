"""`inspect-memory --what-if` (row F7): each line has the figures of a plan with its setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import mxrun, result, succeeded
from memory_reports import memory_of

from mxrun.config.bundled import find_config
from mxrun.graph.graph import StepKind

RESIDUAL = ("inspect-memory", "resnet20_cifar10", "--batch", "16", "--threads", "1")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return result(*RESIDUAL, "--what-if", cwd=tmp_path_factory.mktemp("what_if"))


def changes(report: dict[str, Any], start: str = "") -> list[dict[str, Any]]:
    return [each for each in report["what_if"]["changes"] if each["change"].startswith(start)]


def planned_with(setting: str, batch: int = 16) -> int:
    """Return the arena of a plan with one more setting, in the form that a line gives."""
    if setting.startswith("--batch "):
        batch, setting = int(setting.removeprefix("--batch ")), ""
    overrides = [setting] if setting else []
    path = find_config("resnet20_cifar10")
    report = memory_of(path, overrides, phase="train", batch=batch, threads=1, measured=False)
    return report.plan.planned_bytes


def test_F7_every_setting_is_planned_as_it_is_told(report: dict[str, Any]) -> None:
    """A setting gives its reported bytes; a setting that is a limit gives no more."""
    found = changes(report)
    assert len({change["config"] for change in found}) >= 7
    for config, promised in {change["config"]: change["planned_bytes"] for change in found}.items():
        if config.startswith("memory.budget=") and not config.endswith("%"):
            assert planned_with(config) <= promised == int(config.partition("=")[2])
        else:
            assert planned_with(config) == promised


def test_F7_no_budget_is_told_that_cannot_be_met() -> None:
    """In digits_regularized, recomputing one step alone needs less than any plan of the solver."""
    path = find_config("digits_regularized")
    inspected = memory_of(path, (), phase="train", threads=1, measured=False, what_if=True)
    found = [change["config"] for change in changes(inspected.to_json())]
    assert "precision=bfloat16" in found
    for config in (each for each in found if each.startswith("memory.budget=")):
        plan = memory_of(path, [config], phase="train", threads=1, measured=False).plan
        assert plan.planned_bytes < inspected.plan.planned_bytes


def test_F7_changes_are_held_against_the_run(report: dict[str, Any]) -> None:
    step_ms = report["what_if"]["step_ms"]
    assert step_ms > 0
    for change in changes(report):
        assert change["saved_bytes"] == report["planned_bytes"] - change["planned_bytes"]
        assert change["extra_ms"] == pytest.approx(change["step_ms"] - step_ms)
        per_sample = change["step_ms"] / change["batch_size"]
        assert change["extra"] == pytest.approx(per_sample * 16 / step_ms - 1)
    for start in ("recompute", "a budget", "the least"):
        assert changes(report, start)
        for change in changes(report, start):
            assert change["saved_bytes"] > 0
            assert change["extra_ms"] > 0


def test_F7_one_step_run_again_saves_what_it_made(report: dict[str, Any]) -> None:
    """The recomputed step is one of forward, and saves at most the bytes of its outputs."""
    path = find_config("resnet20_cifar10")
    plan = memory_of(path, (), phase="train", batch=16, threads=1, measured=False).plan
    phase = plan.largest_phase
    steps = {step.name: step for step in phase.steps}
    for change in changes(report, "recompute"):
        step = steps[change["change"].removeprefix("recompute ")]
        assert step.kind is StepKind.FORWARD
        assert change["saved_bytes"] <= sum(phase.graph.spec(v).nbytes for v in step.writes)


def test_F7_what_saves_most_for_its_time_comes_first(report: dict[str, Any]) -> None:
    rates = [
        change["saved_bytes"] / change["extra"]
        for change in changes(report)
        if change["saved_bytes"] > 0 and change["extra"] > 0
    ]
    assert rates == sorted(rates, reverse=True)
    saves = [change["saved_bytes"] > 0 for change in changes(report)]
    assert saves == sorted(saves, reverse=True)
    assert not saves[-1]


def test_F7_people_see_what_to_add_to_the_command(report: dict[str, Any], tmp_path: Path) -> None:
    done = succeeded(mxrun(*RESIDUAL, "--what-if", cwd=tmp_path))
    lines = done.stdout.splitlines()
    for change in changes(report):
        (line,) = [
            line
            for line in lines
            if change["change"] in line and line.rstrip().endswith(change["config"])
        ]
        assert f"{change['extra']:+.1%}" in line


def test_F7_a_run_within_a_budget_is_told_what_more_memory_gives(tmp_path: Path) -> None:
    found = result(*RESIDUAL, "memory.budget=50%", "--what-if", cwd=tmp_path)
    (free,) = changes(found, "no budget")
    assert free["config"] == "memory.budget=null"
    assert free["planned_bytes"] == planned_with("memory.budget=null") == planned_with("")
    assert free["extra_ms"] < 0
    assert not changes(found, "recompute")


def test_F7_inference_keeps_nothing_for_backward(tmp_path: Path) -> None:
    found = result(*RESIDUAL, "--phase", "infer", "--what-if", cwd=tmp_path)
    assert {change["config"] for change in changes(found)} == {
        *("--batch 8", "--batch 32", "precision=bfloat16")
    }


@pytest.mark.full
def test_F7_summed_batches_run_the_same_step_again() -> None:
    """Both training phases must recompute the step to save bytes; the time of one is reported."""
    path = find_config("resnet20_cifar10")
    accumulate = ["train.accumulate=2"]
    inspected = memory_of(
        path, accumulate, phase="train", batch=4, threads=1, measured=False, what_if=True
    )
    singles = changes(inspected.to_json(), "recompute")
    assert singles
    for change in singles:
        overrides = [*accumulate, change["config"]]
        plan = memory_of(path, overrides, phase="train", batch=4, threads=1, measured=False).plan
        assert plan.planned_bytes <= change["planned_bytes"]


def test_batches_in_parts_are_refused_with_their_place(tmp_path: Path) -> None:
    words = ("memory.micro_batches=true", "memory.budget=80%", "--what-if")
    done = mxrun("inspect-memory", "lenet_mnist", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "--what-if does not support micro-batches" in done.stderr
    assert "memory.micro_batches=false" in done.stderr


def test_nothing_more_is_planned_unasked(tmp_path: Path) -> None:
    assert result("inspect-memory", "mlp_mnist", cwd=tmp_path)["what_if"] is None
