"""`mxrun help` and `mxrun show` in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import mxrun, refused, result, succeeded
from consoles import printed

from mxrun.commands import help as command
from mxrun.config.bundled import find_config
from mxrun.report.reference import overview_parts, report_parts


def test_help_explains_a_key_with_an_example(tmp_path: Path) -> None:
    printed = succeeded(mxrun("help", "memory.budget", cwd=tmp_path)).stdout
    for part in ("memory.budget", "512 MiB", "no limit", "percentage up to 100%"):
        assert part in printed
    entry = result("help", "memory.budget", cwd=tmp_path)["entry"]
    assert entry["example"] == 'memory:\n  budget: "512 MiB"\n'


def test_help_lists_what_there_is(tmp_path: Path) -> None:
    printed = succeeded(mxrun("help", cwd=tmp_path)).stdout
    for name in ("network", "transforms", "optimizers", "inspect-memory"):
        assert name in printed
    listed = succeeded(mxrun("help", "momentum", cwd=tmp_path)).stdout
    assert "train.optimizer.sgd.momentum" in listed


def test_a_pipe_gets_every_text_in_full(tmp_path: Path) -> None:
    for key in ("train.class_weights", "network.variables", "network.layers"):
        text = " ".join(succeeded(mxrun("help", key, cwd=tmp_path)).stdout.split())
        entry = result("help", key, cwd=tmp_path)["entry"]
        assert len(entry["description"]) > 200
        for part in (entry["description"], entry["accepts"], entry["default"]):
            assert " ".join(part.split()) in text
        for below in entry["entries"]:
            assert below["about"] in text


@pytest.mark.parametrize("key", [None, "warmup_steps", "metrics", "crop", "network.layers"])
def test_names_to_type_are_complete_on_a_terminal(key: str | None) -> None:
    if key is None:
        overview = {**command.overview(), "commands": {"inspect-memory": "Memory. " * 20}}
        rows = [*overview["sections"], *overview["settings"], *overview["topics"]]
        names = [row["name"] for row in rows] + ["inspect-memory"]
        text = printed(*overview_parts(overview), width=80)
    else:
        report = command.explain(key, {})
        rows = report.get("candidates") or report.get("related") or report["entry"]["entries"]
        names = [row["key" if "entry" not in report else "name"] for row in rows]
        text = printed(*report_parts(report), width=80)
    assert len(names) > 3
    assert {name for name in names if name not in text.split()} == set()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


def test_help_of_commands_and_operators(tmp_path: Path) -> None:
    of_runs = succeeded(mxrun("help", "runs", cwd=tmp_path)).stdout
    assert of_runs == succeeded(mxrun("runs", "--help", cwd=tmp_path)).stdout
    assert "mxrun train --help" in succeeded(mxrun("help", "train", cwd=tmp_path)).stdout
    of_operator = succeeded(mxrun("help", "Convolution", cwd=tmp_path)).stdout
    assert of_operator == succeeded(mxrun("ops", "Convolution", cwd=tmp_path)).stdout


def test_unknown_keys_are_refused_with_the_nearest(tmp_path: Path) -> None:
    assert "did you mean 'momentum'?" in refused("help", "sgd.momentun", cwd=tmp_path)


def test_bundled_configs_are_listed_and_printed(tmp_path: Path) -> None:
    text = succeeded(mxrun("show", "resnet152_imagenet", cwd=tmp_path)).stdout
    assert text == find_config("resnet152_imagenet").read_text()
    assert "digits_lenet" in succeeded(mxrun("show", cwd=tmp_path)).stdout
    assert "did you mean 'digits_lenet'?" in refused("show", "digit_lenet", cwd=tmp_path)
    assert "--resolved needs" in refused("show", "--resolved", cwd=tmp_path)
