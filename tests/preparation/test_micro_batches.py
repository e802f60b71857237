"""`memory.micro_batches`: batches computed in parts to fit into a budget."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import digests, mxrun, refused, result, succeeded
from memory_reports import memory_of
from training import metrics, newest, run_with_notes

from mxrun.base.errors import UserError
from mxrun.compiler.compile import compile_plan
from mxrun.graph.cost import StepSeconds
from mxrun.graph.phases import ACCUMULATE, TRAIN
from mxrun.planner.plan import Plan
from mxrun.planner.remat.budget import Budget
from mxrun.preparation import micro_batches
from mxrun.preparation.planning import load, request_for

NET = """\
name: net
threads: 1
blocks:
  unit:
    layers:
      - Convolution: {name: conv, num_filter: 8, kernel: [3, 3], pad: [1, 1]}
      - Activation: {name: relu, act_type: relu}
      - Dropout: {name: drop, p: 0.1}
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - repeat: {count: 4, layers: [{unit: {name: "unit${i}"}}]}
    - FullyConnected: {name: fc, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
  variables: {"*_weight": {init: msra}}
data:
  batch_size: 24
  train: {dataset: digits, split: {of: train, range: [0, 110]}, shuffle: true}
  eval: {dataset: digits, split: {of: test, range: [0, 50]}}
train:
  epochs: 2
  optimizer: {sgd: {lr: 0.05, momentum: 0.9, wd: 1e-3}}
"""
CUT = "memory.micro_batches=true"


@pytest.fixture(autouse=True)
def _config(empty_folder: Path) -> None:
    Path("net.yaml").write_text(NET)


def inspected(*words: str) -> dict[str, Any]:
    return memory_of("net.yaml", words, measured=False).to_json()


SETTINGS = {
    "momentum": (),
    "adam": ("train.optimizer={adam: {lr: 0.01, wd: 1e-3}}",),
    "clipped": ("train.optimizer={sgd: {lr: 0.1, momentum: 0.9, clip_global_norm: 0.3}}",),
    "accumulated": ("train.accumulate=2", "train.schedule={cosine: {warmup_steps: 3}}"),
    "rolled-over": ("data.last_batch=roll_over", "train.average=0.8"),
    "discarded": ("data.last_batch=discard",),
    "transformed": ("data.train.transforms=[{pad_crop: {pad: 1}}, flip]", "data.workers=2"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_F2_X10_parts_of_batches_are_the_steps_of_whole_ones(setting: str) -> None:
    """The records, their order, masks, rates and lines of metrics are the same; parameters differ
    by the rounding of sums. The last batch of 110 records is padded.
    """
    words = SETTINGS[setting]
    whole, _ = run_with_notes("name=whole", *words)
    budget = "memory.budget=25%"
    small, notes = run_with_notes("name=small", *words, budget, CUT)
    parts = small["micro_batches"]
    assert parts > 1
    assert whole["micro_batches"] == 1
    assert small["memory"]["touched_bytes"] <= inspected(*words, budget, CUT)["budget_bytes"]
    assert small["memory"]["planned_bytes"] == inspected(*words, budget, CUT)["planned_bytes"]
    assert notes[0] == (
        f"memory.micro_batches: each batch of 24 is computed as {parts} of {24 // parts}: "
        f"{small['memory']['planned_bytes']:,} bytes instead of "
        f"{whole['memory']['planned_bytes']:,}"
    )
    assert small["steps"] == whole["steps"]
    expected, found = newest("whole"), newest("small")
    states = found.parameters | found.optimizer
    for name, array in (expected.parameters | expected.optimizer).items():
        np.testing.assert_allclose(states[name], array, rtol=1e-3, atol=1e-5, err_msg=name)
    for one, other in zip(metrics("whole"), metrics("small"), strict=True):
        assert other["step"] == one["step"]
        assert other["learning_rate"] == one["learning_rate"]
        for part in ("train", "eval"):
            assert other[part]["loss"] == pytest.approx(one[part]["loss"], rel=1e-4)


@pytest.mark.full
def test_F2_the_fastest_of_all_numbers_of_parts_is_taken() -> None:
    """Compared with plans of every number of parts; repeated planning gives the same plan."""
    built = load("net.yaml", (CUT, "memory.budget=100%"))
    whole = compile_plan(built.model.symbol, request_for(built, training=True))
    seconds = StepSeconds(None)

    def step_seconds(plan: Plan, parts: int) -> float:
        each = {
            name: sum(2e-6 + seconds(step) for step in phase.steps)
            for name, phase in plan.phases.items()
        }
        return each[TRAIN] + (parts - 1) * each.get(ACCUMULATE, 0.0)

    chosen = []
    for percent in (90, 60, 25):
        limited = load("net.yaml", (CUT, f"memory.budget={percent}%"))
        found = micro_batches.planned(limited, training=True)
        again = micro_batches.planned(limited, training=True)
        assert {name: phase.blocks for name, phase in again.plan.phases.items()} == {
            name: phase.blocks for name, phase in found.plan.phases.items()
        }
        limit = whole.pinned_bytes + int(percent / 100 * whole.reusable_bytes)
        assert found.plan.planned_bytes <= limit == found.plan.budget_bytes
        times = {}
        for parts in (1, 2, 3, 4, 6, 8, 12, 24):
            cut = built.with_micro_batches(parts)
            request = replace(request_for(cut, training=True), budget=Budget(nbytes=limit))
            try:
                times[parts] = step_seconds(compile_plan(built.model.symbol, request), parts)
            except UserError:
                continue
        parts = found.built.micro_batches
        assert times[parts] == min(times.values())
        assert all(other > times[parts] for number, other in times.items() if number < parts)
        chosen.append(parts)
    assert chosen == sorted(chosen)
    assert chosen[0] == 1 < chosen[-1]


def test_F2_nothing_is_cut_that_fits_or_that_nobody_asks_for() -> None:
    plain = inspected()
    assert plain["micro_batches"] == 1
    enough = inspected(CUT, f"memory.budget={plain['planned_bytes']}")
    small = inspected("memory.budget=50%")
    for report in (enough, small):
        assert report["micro_batches"] == 1
    assert enough["blocks"] == plain["blocks"]
    assert enough["recompute"] == {}
    infer = memory_of("net.yaml", (CUT, "memory.budget=25%"), phase="infer", measured=False)
    assert infer.to_json()["micro_batches"] == 1


def test_inspect_memory_shows_the_parts() -> None:
    done = succeeded(mxrun("inspect-memory", "net.yaml", CUT, "memory.budget=25%", cwd=Path()))
    parts = inspected(CUT, "memory.budget=25%")["micro_batches"]
    assert f"each batch of 24 is computed as {parts} of {24 // parts}" in done.stdout


BETWEEN = "- FullyConnected: {name: fc, num_hidden: 10}\n"
COUPLED = {
    "statistics": (BETWEEN, BETWEEN + "    - BatchNorm: {name: bn}\n", "BatchNorm 'bn'"),
    "mean-gradient": ("label: label}", "label: label, normalization: valid}", "'softmax'"),
    "one-mask": ("p: 0.1}", "p: 0.1, axes: [0]}", "Dropout 'unit0/drop'"),
    "mean-sample": (
        BETWEEN,
        BETWEEN + "    - mean: {name: all, axis: [0], keepdims: true}\n"
        "    - broadcast_sub: {lhs: fc, rhs: all}\n",
        "mean 'all'",
    ),
}


@pytest.mark.parametrize(
    ("command", "coupled"),
    [*(("check", coupled) for coupled in COUPLED), ("train", "statistics")],
)
def test_F2_layers_that_couple_samples_are_refused(command: str, coupled: str) -> None:
    before, after, layer = COUPLED[coupled]
    memory = "memory:\n  budget: 50%\n  micro_batches: true\n"
    text = NET.replace(before, after)
    Path("net.yaml").write_text(text + memory)
    said = refused(command, "net.yaml", cwd=Path())
    assert f"net.yaml:{text.count(chr(10)) + 3}:3: memory.micro_batches" in said
    row = next(
        n
        for n, line in enumerate(text.splitlines(), 1)
        if layer.split("'")[1].split("/")[-1] in line
    )
    assert f"net.yaml:{row}:" in said
    assert layer in said
    assert "hint: " in said
    assert not Path("runs").exists()


def test_statistics_of_another_run_couple_nothing() -> None:
    text = NET.replace(BETWEEN, BETWEEN + "    - BatchNorm: {name: bn, use_global_stats: true}\n")
    Path("net.yaml").write_text(text)
    assert inspected(CUT, "memory.budget=25%")["micro_batches"] > 1


def test_a_network_for_one_size_of_batch_is_refused() -> None:
    Path("net.yaml").write_text(
        NET.replace(BETWEEN, "- Reshape: {name: flat, shape: [24, 512]}\n    " + BETWEEN)
    )
    said = refused("check", "net.yaml", CUT, "memory.budget=25%", cwd=Path())
    assert "requires one batch size" in said
    assert "net.yaml:13:" in said


def test_S3_the_least_of_all_parts_is_said_and_is_enough() -> None:
    with pytest.raises(UserError, match=r"does not fit into memory\.budget") as caught:
        inspected(CUT, "memory.budget=1%")
    (problem,) = caught.value.diagnostics
    least = problem.expected.split()[2].replace(",", "")
    assert inspected(CUT, f"memory.budget={least}")["planned_bytes"] == int(least)
    with pytest.raises(UserError):
        inspected(CUT, f"memory.budget={int(least) - 64}")
    share = problem.hint.split("=")[1].split("%")[0]
    assert inspected(CUT, f"memory.budget={share}%")["planned_bytes"] == int(least)
    with pytest.raises(UserError):
        inspected(CUT, f"memory.budget={float(share) - 0.01:.2f}%")


def test_F5_a_run_in_parts_is_resumed_between_whole_steps() -> None:
    """From a checkpoint in the middle of an epoch, with the bits of an uninterrupted run."""
    words = (CUT, "memory.budget=25%", "train.checkpoint={every: 3 steps, keep: 9}")
    run_with_notes("name=net", *words)
    run = Path("runs/net")
    expected = digests(run / "checkpoint-10")
    for folder in run.glob("checkpoint-*"):
        if folder.name != "checkpoint-3":
            shutil.rmtree(folder)
    summary, _ = run_with_notes("name=net", *words, resume=True)
    assert summary["resumed_from"] == 3
    assert digests(run / "checkpoint-10") == expected


def test_another_number_of_parts_is_another_run() -> None:
    first, _ = run_with_notes("name=net", CUT, "memory.budget=25%", "train.epochs=1")
    words = (CUT, "memory.budget=100%", "train.epochs=1")
    with pytest.raises(UserError) as caught:
        run_with_notes("name=net", *words, resume=True)
    assert f"micro-batches: {first['micro_batches']} then, 1 now" in str(caught.value)
    more = {"resume": True, "allow_changes": True}
    summary, _ = run_with_notes("name=net", CUT, "memory.budget=100%", **more)
    assert summary["resumed_from"] == 5
    assert (summary["steps"], summary["micro_batches"]) == (10, 1)


def test_F10_a_step_in_parts_that_diverges_is_found() -> None:
    words = ("train.optimizer={sgd: {lr: 1e30}}", CUT, "memory.budget=25%")
    with pytest.raises(UserError, match=r"training has diverged in step \d+, epoch 1") as caught:
        run_with_notes("name=net", *words)
    (problem,) = caught.value.diagnostics
    parts = inspected(*words)["micro_batches"]
    records = problem.got.removeprefix("a batch of the training records ").split(", ")
    assert len(records) == 24 // parts


FEW = ("--steps", "3", "--warmup", "1")


@pytest.mark.parametrize("contexts", [1, 2])
def test_bench_times_steps_in_parts(contexts: int) -> None:
    devices = [f"cpu:{number}" for number in range(contexts)]
    words = (
        CUT,
        f"memory.budget={30 if contexts == 1 else 20}%",
        f"context=[{', '.join(devices)}]",
    )
    parts = inspected(*words)["micro_batches"]
    report = result("bench", "net.yaml", *words, *FEW)
    shown = [report[key] for key in ("batch_size", "contexts", "micro_batches")]
    assert shown == [24, contexts, parts]
    calls = {row["name"]: row["calls"] for row in report["functions"]}
    assert parts > 1
    assert calls["accumulate"] == calls["measure accumulate"] == contexts * (parts - 1)
    assert calls["load"] == contexts * parts
    assert calls["measure train"] == contexts
    text = succeeded(mxrun("bench", "net.yaml", *words, *FEW)).stdout
    assert re.search(rf"micro-batches +{parts}\n", text)


def test_bench_of_a_batch_that_is_not_cut_shows_its_operators() -> None:
    report = result("bench", "net.yaml", CUT, "memory.budget=100%", *FEW)
    assert report["micro_batches"] == 1
    assert "fc:backward:data" in {row["name"] for row in report["operators"]}
    inference = result("bench", "net.yaml", CUT, "memory.budget=25%", "--phase", "infer", *FEW)
    assert inference["micro_batches"] == 1


def test_bench_does_what_the_hint_for_a_small_budget_says() -> None:
    budget = "memory.budget=30%"
    text = refused("bench", "digits_lenet", budget, *FEW)
    assert f"{CUT} splits the batch" in text
    assert result("bench", "digits_lenet", budget, CUT, *FEW)["micro_batches"] > 1


def test_bench_compares_no_baseline_with_parts() -> None:
    text = refused("bench", "net.yaml", CUT, "memory.budget=25%", "--against", "torch")
    assert "baselines have no micro-batches" in text
    assert "add memory.micro_batches=false, or leave out --against" in text
