"""`context`: the device of a run exists before the first step, and belongs to the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import digests, mxrun, refused, result, succeeded
from executors import cpu

from mxrun.device.cpu.pool import available_cores

NETWORK = """\
name: net
threads: 1
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - FullyConnected: {name: fc1, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data: {batch_size: 32, train: {dataset: digits, split: train}, eval: {dataset: digits, split: test}}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""
COMMANDS = ("check", "train", "inspect-memory", "bench", "verify")


def written(folder: Path, context: str = "", epochs: int = 1) -> Path:
    """Write net.yaml, with `context` in its first line."""
    first = f"context: {context}\n" if context else ""
    (folder / "net.yaml").write_text(first + NETWORK.replace("epochs: 1", f"epochs: {epochs}"))
    return folder / "net.yaml"


def refused_at(folder: Path, command: str, *arguments: str) -> str:
    """Return the message about the first line of net.yaml; nothing else is written."""
    before = sorted(folder.rglob("*"))
    text = refused(command, "net.yaml", *arguments, cwd=folder)
    assert "net.yaml:1:10: context: " in text
    assert sorted(folder.rglob("*")) == before
    return text


@pytest.mark.parametrize("command", COMMANDS)
def test_E6_a_device_that_is_not_there_is_refused_at_its_place(
    command: str, tmp_path: Path
) -> None:
    written(tmp_path, "gpu:7")
    text = refused_at(tmp_path, command)
    assert "got: gpu:7" in text
    written(tmp_path, "cpu:9999")
    text = refused_at(tmp_path, command)
    assert "there is no device cpu:9999" in text
    cores = available_cores()
    assert (
        f"cpu ({cores} device{'s' * (cores > 1)}), gpu (no devices), reference (1 device)" in text
    )
    written(tmp_path, "referense")
    assert "did you mean 'reference'?" in refused_at(tmp_path, command)


@pytest.mark.parametrize("context", ["gpu", "gpu:0", "cuda", "cuda:1", "mps"])
def test_a_gpu_is_refused_with_what_there_is(tmp_path: Path, context: str) -> None:
    written(tmp_path, context)
    text = refused_at(tmp_path, "check")
    if context.startswith("gpu"):
        assert "there is no device gpu:0" in text
        assert "hint: " in text
    else:
        assert "hint: `context: gpu` is an NVIDIA card; the context cpu, the default, uses" in text
    assert "did you mean" not in text


def test_E6_other_problems_are_reported_too(tmp_path: Path) -> None:
    written(tmp_path, "cpu:9999")
    text = refused(
        "train", "net.yaml", "network.layers[0].FullyConnected.num_hiden=3", cwd=tmp_path
    )
    assert "context: there is no device cpu:9999" in text
    assert "num_hiden" in text


def test_E6_a_run_infers_on_a_device_that_is_there(tmp_path: Path) -> None:
    """Its drawing and its export need none."""
    run = tmp_path / result("train", str(written(tmp_path)), cwd=tmp_path)["run_dir"]
    config = run / "config.yaml"
    config.write_text("context: gpu:7\n" + config.read_text())
    text = refused("infer", str(run), "--split", "eval", cwd=tmp_path)
    assert f"{config}:1:10: context: " in text
    succeeded(mxrun("convert", str(run), "--output", "net.onnx", cwd=tmp_path))
    succeeded(mxrun("plot", str(config), cwd=tmp_path))
    config.write_text(config.read_text().replace("gpu:7", "cpu:0"))
    found = result("infer", str(run), "--split", "eval", cwd=tmp_path)
    assert found["metrics"]["accuracy"] > 0.3


def test_a_checkpoint_names_its_device_and_library(tmp_path: Path) -> None:
    run = tmp_path / result("train", str(written(tmp_path)), cwd=tmp_path)["run_dir"]
    (manifest,) = run.glob("checkpoint-*/manifest.json")
    plan = json.loads(manifest.read_text())["plan"]
    assert plan["device"] == "cpu"
    assert plan["library"] == cpu().library


def test_a_run_goes_on_on_another_device_only_when_told_so(tmp_path: Path) -> None:
    written(tmp_path)
    run = tmp_path / result("train", "net.yaml", cwd=tmp_path)["run_dir"]
    before = digests(run)
    longer = ("train", str(written(tmp_path, epochs=2)), "--resume", "context=reference")
    text = refused(*longer, cwd=tmp_path)
    assert "device: cpu then, reference now" in text
    assert "--allow-changes" in text
    assert digests(run) == before
    done = succeeded(mxrun(*longer, "--allow-changes", "--json", cwd=tmp_path))
    assert "device: cpu then, reference now" in done.stderr
    newest = max(run.glob("checkpoint-*/manifest.json"), key=lambda path: path.stat().st_mtime)
    assert json.loads(newest.read_text())["plan"]["device"] == "reference"
    # Inference continues on the device of the config.
    found = result("infer", str(run), "--split", "eval", cwd=tmp_path)
    assert found["metrics"]["accuracy"] > 0.3


def test_a_device_without_peak_speeds_has_no_roofline(tmp_path: Path) -> None:
    written(tmp_path, "reference")
    few = ("--steps", "2", "--warmup", "1")
    report = result("bench", "net.yaml", *few, cwd=tmp_path)
    assert report["roofline"] is None
    assert {row["implementation"] for row in report["operators"]} == {"numpy"}
    text = succeeded(mxrun("bench", "net.yaml", *few, cwd=tmp_path)).stdout
    assert "fc1" in text
    assert "floor" not in text
