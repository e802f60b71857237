"""Whole networks on a card: first steps, bits, loss curves, plans, and resuming."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import digests, result
from training import json_lines

from mxrun.commands.device_check import network_checks, outcome_of

GPU_CONTEXT = "context=gpu:0"
NETWORKS = {each.name: each for each in network_checks("gpu:0")}


@pytest.mark.parametrize("name", NETWORKS)
def test_first_steps_agree_with_the_processor(name: str) -> None:
    outcome = outcome_of(NETWORKS[name])
    assert outcome.result == "passed", f"{outcome.problem}; next: {outcome.further}{outcome.trace}"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_has_the_same_bits_twice_and_resumed(precision: str, tmp_path: Path) -> None:
    train = ("train", "digits_lenet", GPU_CONTEXT, f"precision={precision}")
    whole = ("train.epochs=4", "train.checkpoint.keep=9")
    for folder in ("one", "two", "resumed"):
        (tmp_path / folder).mkdir()
    result(*train, *whole, cwd=tmp_path / "one")
    result(*train, *whole, cwd=tmp_path / "two")
    one, two = (digests(tmp_path / name / "runs/digits_lenet") for name in ("one", "two"))
    assert one == two, "next: mxrun verify digits_lenet context=gpu:0, then info --check gpu:0"
    result(*train, "train.epochs=2", *whole[1:], cwd=tmp_path / "resumed")
    result(*train, *whole, "--resume", cwd=tmp_path / "resumed")
    resumed = digests(tmp_path / "resumed" / "runs/digits_lenet")
    # The manifest of the last checkpoint of two epochs says that the run ended there.
    tensors = [name for name in one if not name.endswith("manifest.json")]
    assert [resumed[name] for name in tensors] == [one[name] for name in tensors], (
        "next: plan.kernel_plans of both manifests, and what is not saved"
    )


@pytest.mark.parametrize("name", ["digits_lenet", "gpt_tiny"])
def test_the_loss_falls_as_on_the_processor(name: str, tmp_path: Path) -> None:
    curves = []
    for context in ("cpu", "gpu:0"):
        arguments = ("train.epochs=2", f"context={context}", f"name={context[:3]}")
        result("train", name, *arguments, cwd=tmp_path)
        lines = json_lines(tmp_path / "runs" / context[:3] / "metrics.jsonl")
        curves.append([line["train"]["loss"] for line in lines])
    here, there = map(np.array, curves)
    assert np.abs(there / here - 1).max() < 0.05, (
        f"losses of epochs {there}, on the processor {here}; next: the first step in which "
        "`train.log_every=1` differs, and mxrun info --check gpu:0"
    )


@pytest.mark.parametrize("name", ["digits_lenet", "resnet20_cifar10"])
def test_no_plan_changes_bits(name: str, tmp_path: Path) -> None:
    found = result("verify", name, GPU_CONTEXT, "data.batch_size=8", cwd=tmp_path)
    wrong = [each["variant"] for each in found["variants"] if not each["passed"]]
    assert not wrong, f"{wrong}; next: which step reads freed memory: MXRUN_DEBUG=1 names it"


def test_a_budget_and_the_largest_batch_hold(tmp_path: Path) -> None:
    inspected = result(
        "inspect-memory", "resnet50_imagenet", GPU_CONTEXT, "--batch", "max", cwd=tmp_path
    )
    batch = inspected["batch_size"]
    bench = ("bench", "resnet50_imagenet", GPU_CONTEXT, "--batch", str(batch), "--steps", "2")
    assert result(*bench, cwd=tmp_path)["steps"] == 2, "next: what lies outside of the plan"
