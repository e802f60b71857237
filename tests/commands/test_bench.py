"""`bench` measures any config without its data and writes nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from bundled_runs import BUNDLED
from commands import mxrun, refused, result, succeeded
from layer_configs import classifier, config_text
from rank_jobs import MPIRUN

from mxrun.commands.bench import bench
from mxrun.config.bundled import find_config
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.options.bench import BenchOptions
from mxrun.preparation.planning import load, plan_for
from mxrun.preparation.random_records import synthetic_records
from mxrun.report.profile import bench_tables

FEW = ("--steps", "4", "--warmup", "1", "--threads", "1")


@pytest.mark.parametrize("phase", ["train", "infer"])
@pytest.mark.parametrize("config", BUNDLED)
def test_the_json_has_the_promised_fields(config: str, phase: str, tmp_path: Path) -> None:
    """The MNIST configs have no path, so no file could be read."""
    report = result("bench", config, "--phase", phase, "--batch", "8", *FEW, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
    figures = report["mxrun"]
    fields = {"step_ms", "samples_per_s", "core_wait_share", "rss_peak_bytes", "first_step_s"}
    assert set(figures) == fields
    assert figures["core_wait_share"] is None or 0 <= figures["core_wait_share"] <= 1
    times = figures["step_ms"]
    assert set(times) == {"median", "p90", "p99", "min"}
    assert 0 < times["min"] <= times["median"] <= times["p90"] <= times["p99"]
    assert 8 / times["p99"] * 1e3 <= figures["samples_per_s"] <= 8 / times["min"] * 1e3
    assert 20 << 20 < figures["rss_peak_bytes"] < 1 << 30
    assert 0.05 < figures["first_step_s"] < 60
    assert report["peers"] == {}
    assert (report["phase"], report["batch_size"], report["threads"]) == (phase, 8, 1)
    assert report["steps"] == 4
    for row in report["operators"]:
        assert {"name", "op", "phase", "implementation", "ms", "share", "gflops"} < set(row)
        assert row["gbytes_per_s"] > 0
    phases = {row["phase"] for row in report["operators"]}
    assert phases - {"reorder"} == (
        {"forward", "backward", "update"} if phase == "train" else {"forward"}
    )
    assert sum(row["share"] for row in report["operators"]) == pytest.approx(1)


def test_the_operators_are_those_of_the_plan() -> None:
    path = find_config("digits_lenet")
    for name, phase in (("train", TRAIN), ("infer", EVALUATE)):
        options = BenchOptions(config=str(path), phase=name, batch=4, threads=1, steps=2, warmup=0)
        report = bench(options, pytest.fail, time.monotonic())
        plan = plan_for(load(path, (), 4), training=name == "train", threads=1)
        implementations = {row.name: row.implementation for row in report.operators}
        assert implementations == plan.phases[phase].implementations()


def test_a_step_is_a_batch_its_operators_and_its_measures() -> None:
    path = find_config("digits_lenet")
    options = BenchOptions(config=str(path), batch=32, threads=1, steps=3, warmup=0)
    report = bench(options, pytest.fail, time.monotonic())
    assert report.step_ms.shape == (3,)
    assert (np.diff(report.profiled, axis=1) > 0).all()
    profile = report.to_json()["profile"]
    parts = profile["batch_ms"] + profile["tape_ms"] + profile["measure_ms"]
    whole = (report.profiled[:, 3] - report.profiled[:, 0]).mean() / 1e6
    assert parts == pytest.approx(whole)
    assert profile["operators_ms"] <= profile["tape_ms"]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_tapes_own_cost_is_that_of_the_plans_calls(threads: int) -> None:
    path = find_config("mlp_mnist")
    options = BenchOptions(config=str(path), batch=32, threads=threads, steps=3, warmup=0)
    report = bench(options, pytest.fail, time.monotonic())
    tape = report.to_json()["tape"]
    calls_of_a_step = len(report.calls) / len(report.profiled)
    assert tape["calls"] == calls_of_a_step
    assert tape["us_per_call"] > 0
    assert 0 < tape["share"] < 1
    whole_us = tape["us_per_call"] * tape["calls"]
    assert whole_us / 1e3 == pytest.approx(tape["share"] * np.median(report.step_ms))


@pytest.mark.parametrize("config", BUNDLED)
def test_synthetic_labels_are_classes_of_the_network(config: str) -> None:
    model = load(find_config(config), (), 16).model
    records = synthetic_records(model)
    assert records.specs == model.records
    assert len(records) % 16 == 0
    labels = records.fields["label"].records
    assert set(np.unique(labels)) == set(range(10))


def test_synthetic_ids_are_rows_of_their_table(tmp_path: Path) -> None:
    table = "    - Embedding: {name: table, data: words, input_dim: 700, output_dim: 3}\n"
    data = "data: {batch_size: 32, train: {dataset: digits, split: train}}\n"
    text = config_text(table + classifier(4), inputs="{words: [5], label: []}", data=data)
    (tmp_path / "words.yaml").write_text(text)
    records = synthetic_records(load(tmp_path / "words.yaml").model)
    words, labels = records.fields["words"].records, records.fields["label"].records
    assert words.shape == (len(records), 5)
    assert 600 < words.max() < 700
    assert set(np.unique(labels)) == set(range(4))
    report = result("bench", "words.yaml", *FEW, cwd=tmp_path)
    assert "table:backward" in {row["name"] for row in report["operators"]}


def test_synthetic_numbers_are_no_divisors_that_are_zero() -> None:
    """The classifier of texts divides by its input `lengths`."""
    model = load(find_config("text_classifier")).model
    fields = synthetic_records(model).fields
    for name in ("lengths", "mask"):
        field = fields[name]
        assert field.scale is not None
        assert 0 < field.records.min() * field.scale < 0.01
        assert field.records.max() * field.scale == 1


def test_the_table_for_people_has_operators_and_steps(tmp_path: Path) -> None:
    done = succeeded(mxrun("bench", "mlp_mnist", "data.batch_size=4", *FEW, cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []
    for part in ("step, median", "samples/s", "GFLOP/s", "fc1:backward", "sgd_mom_update"):
        assert part in done.stdout
    assert "the unprofiled steps between them" in done.stdout


def test_people_are_told_that_other_processes_use_the_cores() -> None:
    path = find_config("digits_lenet")
    options = BenchOptions(config=str(path), phase="infer", batch=4, threads=2, steps=2, warmup=0)
    report = bench(options, pytest.fail, time.monotonic()).to_json()
    report["mxrun"]["core_wait_share"] = 0.25
    report["mxrun"]["step_ms"] = {"median": 0.4, "p90": 4.8, "p99": 9.0, "min": 0.37}
    text = " ".join(str(part) for part in bench_tables(report))
    assert "Other processes use the cores: mxrun waited for a core 25% of the time" in text
    assert "try --threads 1." in text


def test_the_trace_holds_every_profiled_call(tmp_path: Path) -> None:
    report = result("bench", "mlp_mnist", "--trace", "step.json", *FEW, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step.json"]
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    calls = [event for event in events if event["ph"] == "X" and "op" in event["args"]]
    assert {call["name"] for call in calls} == {row["name"] for row in report["operators"]}
    for row in report["operators"]:
        own = [call for call in calls if call["name"] == row["name"]]
        assert sum(call["dur"] for call in own) / 4 == pytest.approx(row["ms"] * 1e3)
        assert {(c["cat"], c["args"]["op"], c["args"]["implementation"]) for c in own} == {
            (row["phase"], row["op"], row["implementation"])
        }
    steps = [event for event in events if event["name"] == "step"]
    assert len(steps) == 4
    for step in steps:
        inside = [c for c in calls if step["ts"] <= c["ts"] < step["ts"] + step["dur"]]
        assert len(inside) == len(calls) / 4


@pytest.mark.skipif(not MPIRUN.exists(), reason="needs mpirun beside Python: pip install mpich")
def test_K5_ranks_are_timed_with_their_messages_and_traced_together(tmp_path: Path) -> None:
    words = ("digits_lenet", "--ranks", "2", "--trace", "ranks.json", *FEW)
    report = result("bench", *words, cwd=tmp_path)
    assert (report["ranks"], report["batch_size"], report["threads"]) == (2, 64, 1)
    functions = {row["name"]: row for row in report["functions"]}
    # Two of the four batch parts.
    assert functions["load"]["calls"] == functions["train"]["calls"] == 2
    assert functions["sum bucket 1 between ranks"]["calls"] == 1
    assert functions["sum bucket 1 between ranks"]["end_ms"] <= functions["update"]["end_ms"]
    assert report["communication"]["ms"] > 0
    assert 0 <= report["communication"]["hidden_share"] <= 1
    events = json.loads((tmp_path / "ranks.json").read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    sums = [event for event in events if event["name"] == "sum bucket 1 between ranks"]
    # No rank ends a sum before the other has begun it.
    for rank in range(2):
        own = [event for event in sums if names[event["tid"]].startswith(f"rank {rank}, ")]
        others = [event for event in sums if event not in own]
        assert len(own) == 4
        for one, other in zip(own, others, strict=True):
            assert one["ts"] + one["dur"] > other["ts"]
    infer = refused("bench", *words, "--phase", "infer", cwd=tmp_path)
    assert "several processes measure training only" in infer


def test_a_trace_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    # These steps would take hours.
    steps = ("--steps", "100000000")
    for target in ("folder", "missing/step.json"):
        text = refused("bench", "mlp_mnist", "--trace", target, *steps, cwd=tmp_path)
        assert f"cannot write {target}: " in text
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_a_trace_into_a_device_leaves_the_device(tmp_path: Path) -> None:
    result("bench", "mlp_mnist", "--trace", "/dev/null", "--steps", "2", cwd=tmp_path)
    assert Path("/dev/null").is_char_device()


def test_wrong_input_is_refused(tmp_path: Path) -> None:
    for option in (("--steps", "0"), ("--warmup", "-1"), ("--batch", "0"), ("--phase", "test")):
        assert "Usage" in refused("bench", "digits_lenet", *option, cwd=tmp_path)
    assert "data.batch_size" in refused("bench", "digits_lenet", "data.batch_size=0", cwd=tmp_path)
    text = refused("bench", "mlp_mnist", "--batch", "500000000", cwd=tmp_path)
    assert "does not fit" in text
