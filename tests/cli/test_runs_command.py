"""`mxrun runs`: the list of runs and comparisons, with damaged and unfinished ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import MXRUN, mxrun, refused, result, succeeded
from consoles import printed
from training import json_lines

from mxrun.commands.runs import compare_runs, list_runs
from mxrun.options.runs import RunsOptions
from mxrun.report.runs import comparison_tables, list_tables
from mxrun.run.config_differences import config_differences

SHORT = ("train", "digits_lenet", "threads=1")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of runs: finished ones of two configs, and all kinds of unfinished ones."""
    folder = tmp_path_factory.mktemp("runs")
    result(*SHORT, "name=first", "train.epochs=2", "--runs", str(folder))
    adam = "train.optimizer={adam: {lr: 0.003}}"
    best = "train.checkpoint.best=cross_entropy"
    arguments = ("name=second", "train.epochs=3", adam, best, "--runs", str(folder))
    result(*SHORT, *arguments)
    shutil.copytree(folder / "first", folder / "stopped")
    (folder / "stopped" / "summary.json").unlink()
    # As after a loss of power: a record that did not reach the disk, and a part of another.
    for name, end in (("cut", b'{"epoch":3,"st'), ("zeros", bytes(99) + b'}\n{"epoch":3}\n')):
        shutil.copytree(folder / "stopped", folder / name)
        with (folder / name / "metrics.jsonl").open("ab") as file:
            file.write(end)
    (folder / "failed").mkdir()
    shutil.copy(folder / "first" / "config.yaml", folder / "failed")
    for name, file, content in (
        ("torn_metrics", "metrics.jsonl", b'{"epoch":1,'),
        ("torn_summary", "summary.json", b"{}"),
        ("torn_config", "config.yaml", b"name: [\x1b[31m"),
    ):
        shutil.copytree(folder / "first", folder / name)
        (folder / name / file).write_bytes(content)
    (folder / "no_run").mkdir()
    (folder / "a_file").write_text("")
    for number, name in enumerate(("second", "first", "stopped"), 1):
        for path in folder.glob(f"{name}/**/*"):
            os.utime(path, (number * 86400.0, number * 86400.0))
    return folder


def test_all_runs_are_listed_with_their_states(runs: Path) -> None:
    report = result("runs", "--runs", str(runs))
    found = {run["name"]: run for run in report["runs"]}
    assert {name: run["state"] for name, run in found.items()} == {
        "first": "finished",
        "second": "finished",
        "stopped": "stopped",
        "cut": "stopped",
        "zeros": "stopped",
        "failed": "failed",
        "torn_metrics": "damaged",
        "torn_summary": "damaged",
        "torn_config": "damaged",
    }
    # The last written is at the end.
    assert [run["name"] for run in report["runs"]][:3] == ["second", "first", "stopped"]
    first = found["first"]
    records = json_lines(runs / "first/metrics.jsonl")
    assert first["last"] == records[-1]["eval"]
    assert first["best"]["metric"] == "accuracy"
    assert first["best"]["value"] == max(record["eval"]["accuracy"] for record in records)
    assert (first["epochs"], first["planned_epochs"]) == (2, 2)
    assert first["parameters"] == 13_706
    summary = json.loads((runs / "first/summary.json").read_text())
    assert first["arena_bytes"] == summary["memory"]["planned_bytes"]
    files = [path for path in (runs / "first").rglob("*") if path.is_file()]
    assert first["bytes"] == sum(path.stat().st_size for path in files)
    assert found["second"]["best"]["metric"] == "cross_entropy"
    assert found["stopped"]["arena_bytes"] is None
    assert found["failed"]["best"] is None
    assert found["torn_metrics"]["problem"] == "metrics.jsonl: line 1: this line is damaged"
    assert found["torn_summary"]["problem"] == "summary.json is damaged"
    assert found["torn_config"]["problem"].startswith("config.yaml: ")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_list_fits_the_console(runs: Path, width: int, tmp_path: Path) -> None:
    long = tmp_path / "a_run_with_a_long_name_that_has_no_place_in_a_narrow_terminal"
    shutil.copytree(runs / "first", long)
    for folder in (runs, tmp_path):
        lines = printed(*list_tables(list_runs(RunsOptions(runs=folder))), width=width).splitlines()
        assert max(len(line.rstrip()) for line in lines) <= width
        rows = [line for line in lines if "finished" in line]
        assert all("2/2" in row or "3/3" in row for row in rows)
        assert all(row.count("@") == 1 for row in rows)
        if folder == tmp_path:
            assert rows[0].split()[0].startswith("a_run")
            assert ("…" in rows[0]) is (width < 200)


def test_runs_are_sorted_by_a_metric(runs: Path) -> None:
    names = {
        metric: [run["name"] for run in list_runs(RunsOptions(runs=runs, sort=metric))["runs"]]
        for metric in ("accuracy", "loss")
    }
    assert names["accuracy"][0] == names["loss"][0] == "second"
    # Those without the metric are at the end.
    assert set(names["accuracy"][-2:]) == {"failed", "torn_metrics"}
    bests = [
        run["best"] for run in list_runs(RunsOptions(runs=runs, sort="loss"))["runs"] if run["best"]
    ]
    values = [best["value"] for best in bests]
    assert values == sorted(values)
    assert {best["metric"] for best in bests} == {"loss"}
    text = refused("runs", "--runs", str(runs), "--sort", "acuracy")
    assert "no run has recorded 'acuracy'" in text
    assert "did you mean 'accuracy'?" in text
    assert "--sort is for the list" in refused("runs", "first", "--sort", "loss")


def test_a_comparison_has_metrics_and_the_keys_that_differ(runs: Path) -> None:
    report = result("runs", "first", "second", "--runs", str(runs))
    assert [run["name"] for run in report["runs"]] == ["first", "second"]
    assert {each["key"]: each["values"] for each in report["differences"]} == {
        "train.epochs": ["2", "3"],
        "train.optimizer.sgd.lr": ["0.1", None],
        "train.optimizer.sgd.momentum": ["0.9", None],
        "train.optimizer.sgd.wd": ["0.001", None],
        "train.optimizer.adam.lr": [None, "0.003"],
        "train.checkpoint.best": [None, "cross_entropy"],
    }
    text = succeeded(mxrun("runs", "first", "second", "--runs", str(runs))).stdout
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    assert rows["train.epochs"] == ["2", "3"]
    assert rows["state"] == ["finished", "finished"]
    same = mxrun("runs", "first", str(runs / "stopped/checkpoint-46"), "--runs", str(runs))
    assert "The configs are the same." in succeeded(same).stdout
    text = refused("runs", "first", "secund", "--runs", str(runs))
    assert "secund is not a run" in text
    assert "did you mean 'second'?" in text


@pytest.mark.parametrize("width", [80, 120])
def test_a_comparison_of_many_runs_fits_the_console(runs: Path, width: int) -> None:
    names = ["first", "second", "stopped", "failed", "torn_metrics", "torn_summary"]
    text = printed(
        *comparison_tables(compare_runs(RunsOptions(names=tuple(names), runs=runs))), width=width
    )
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert all(name in text for name in names)


def test_a_killed_run_counts_up_to_its_checkpoint(runs: Path, tmp_path: Path) -> None:
    """--resume repeats the epochs after it."""
    killed = tmp_path / "killed"
    shutil.copytree(runs / "stopped", killed)
    shutil.rmtree(killed / "checkpoint-46")
    (run,) = list_runs(RunsOptions(runs=tmp_path))["runs"]
    first = json_lines(killed / "metrics.jsonl")[0]
    assert (run["state"], run["epochs"], run["last"]) == ("stopped", 1, first["eval"])
    shutil.rmtree(killed / "checkpoint-23")
    (run,) = list_runs(RunsOptions(runs=tmp_path))["runs"]
    assert (run["epochs"], run["last"]) == (0, {})


def test_layers_are_compared_by_their_names() -> None:
    def network(*layers: dict[str, object]) -> dict[str, object]:
        return {"name": "any", "network": {"layers": layers}}

    dense = {"FullyConnected": {"name": "fc", "num_hidden": 10}}
    wide = {"FullyConnected": {"name": "fc", "num_hidden": 20}}
    relu = {"Activation": {"name": "relu", "act_type": "relu"}}
    crop = {"crop": {"size": (24, 24)}}
    assert config_differences([network(dense, crop), network(relu, wide, crop)]) == {
        "network.layers.fc.num_hidden": ["10", "20"],
        "network.layers.1.crop.size": ["[24, 24]", None],
        "network.layers.relu": [None, "Activation"],
        "network.layers.2.crop.size": [None, "[24, 24]"],
    }


def test_a_value_in_one_config_is_compared_with_all_keys_of_another() -> None:
    def config(weights: object, *metrics: object) -> dict[str, object]:
        return {"train": {"class_weights": weights, "metrics": metrics, "max_steps": None}}

    f1 = {"f1": {"average": "macro"}}
    balanced = config("balanced", "accuracy")
    rare = config({"rare": 5, "common": 1.5}, "accuracy", f1)
    del rare["train"]["max_steps"]  # type: ignore[attr-defined]
    assert config_differences([config(None, "accuracy"), balanced, rare]) == {
        "train.metrics": ["[accuracy]", "[accuracy]", "[accuracy, {f1: {average: macro}}]"],
        "train.class_weights": [None, "balanced", "{rare: 5, common: 1.5}"],
    }
    assert config_differences([config(None), rare])["train.class_weights.rare"] == [None, "5"]


def test_of_a_best_figure_only_the_name_is_shortened() -> None:
    described = {
        "state": "finished", "epochs": 12, "planned_epochs": 12, "last": {}, "parameters": 10,
        "best": {"metric": "balanced_accuracy", "value": 0.9139, "epoch": 12, "checkpoint": 7},
        "arena_bytes": 10, "bytes": 10, "written": "2026-01-01T00:00",
    }  # fmt: skip
    for names, best in ((("one",), "balanced_accuracy"), (("one", "two", "three", "four"), "bal")):
        report = {"runs": [{"name": name, **described} for name in names], "differences": []}
        text = printed(*comparison_tables(report), width=80)
        (row, *_) = (line for line in text.splitlines() if "best @ epoch" in line)
        assert row.split()[3].startswith(best)
        assert row.count(" 0.9139 @ 12") == min(len(names), 3)


def test_an_empty_folder_has_no_runs(tmp_path: Path) -> None:
    done = succeeded(mxrun("runs", cwd=tmp_path))
    assert done.stdout == ""
    assert "there are no runs in runs" in done.stderr
    report = result("runs", cwd=tmp_path, environment={"MXRUN_RUNS": "elsewhere"})
    assert report == {"runs_dir": "elsewhere", "runs": []}


def test_a_run_that_is_being_written_is_running(tmp_path: Path) -> None:
    command = [*MXRUN, *SHORT, "train.epochs=100000"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as training:
        metrics = tmp_path / "runs/digits_lenet/metrics.jsonl"
        while not metrics.exists() or not metrics.stat().st_size:
            assert training.poll() is None
            time.sleep(0.05)
        (run,) = list_runs(RunsOptions(runs=tmp_path / "runs"))["runs"]
        assert run["state"] == "running"
        training.send_signal(signal.SIGTERM)
        assert training.wait() == 75
    (run,) = list_runs(RunsOptions(runs=tmp_path / "runs"))["runs"]
    assert run["state"] == "stopped"
    # A killed process leaves its lock; its number may belong to another process by now.
    for holder in (os.getpid(), 0, 10**30):
        (tmp_path / "runs/digits_lenet/.lock").write_text(f"{holder}\n")
        assert list_runs(RunsOptions(runs=tmp_path / "runs"))["runs"][0]["state"] == "stopped"


def test_a_name_with_line_breaks_stays_in_its_row(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "first", tmp_path / "one\ntwo\tthree")
    lines = succeeded(mxrun("runs", "--runs", str(tmp_path))).stdout.splitlines()
    assert sum("one\\ntwo\\tthree" in line for line in lines) == 1
    assert not [line for line in lines if line.startswith("two")]
