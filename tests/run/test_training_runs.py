"""Complete runs on the command line: accuracy, files, and reproducibility."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import digests, mnist, mxrun, result
from safetensors.numpy import load_file
from training import SUMMARY_FIELDS, json_lines

DIGITS = ("train", "digits_lenet", "threads=2")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Train the bundled example as in the README; return its folder and summary."""
    folder = tmp_path_factory.mktemp("digits")
    summary = result(*DIGITS, cwd=folder)
    return folder / summary["run_dir"], summary


def test_the_bundled_example_learns_its_digits(digits: tuple[Path, dict[str, Any]]) -> None:
    run, summary = digits
    assert summary["eval"]["accuracy"] >= 0.98
    # 1,438 training images in batches of 64, twenty times.
    assert summary["steps"] == 20 * 23
    epochs = json_lines(run / "metrics.jsonl")
    assert [epoch["epoch"] for epoch in epochs] == list(range(1, 21))
    assert [epoch["step"] for epoch in epochs] == [23 * number for number in range(1, 21)]
    assert epochs[-1]["eval"] == summary["eval"]
    assert epochs[-1]["train"]["loss"] < epochs[0]["train"]["loss"] / 10


def test_summary_and_metrics_hold_what_programs_rely_on(
    digits: tuple[Path, dict[str, Any]],
) -> None:
    run, summary = digits
    assert json.loads((run / "summary.json").read_text()) == summary
    assert set(summary) == SUMMARY_FIELDS
    assert set(summary["eval"]) == {"loss", "accuracy", "cross_entropy"}
    assert set(summary["step_ms"]) == {"median", "p90", "p99", "min"}
    assert set(summary["memory"]) == {
        "planned_bytes",
        "touched_bytes",
        "lower_bound_bytes",
        "rss_peak_bytes",
    }
    assert summary["first_step_s"] > 0
    metrics = (run / "metrics.jsonl").read_text()
    assert "seconds" not in metrics
    assert "seconds" in (run / "timing.jsonl").read_text()


def test_the_checkpoint_is_whole_and_finite(digits: tuple[Path, dict[str, Any]]) -> None:
    run, summary = digits
    checkpoint = run / f"checkpoint-{summary['steps']}"
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        content = (checkpoint / name).read_bytes()
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
    parameters = load_file(checkpoint / "parameters.safetensors")
    states = load_file(checkpoint / "optimizer.safetensors")
    assert parameters["conv1_weight"].shape == (16, 1, 3, 3)
    assert {f"{name}:mom" for name in parameters} == set(states)
    for array in (*parameters.values(), *states.values()):
        assert abs(array).max() < 100


@pytest.mark.parametrize(
    "environment",
    [{}, {"PYTHONHASHSEED": "7"}, {"MXRUN_DEBUG": "1"}],
    ids=["again", "other-hashes", "verified-passes"],
)
def test_F4_the_same_command_gives_the_same_bytes(
    digits: tuple[Path, dict[str, Any]], environment: Mapping[str, str], tmp_path: Path
) -> None:
    """Every time in another folder, and with other hashes, and with every pass verified."""
    run, first = digits
    second = result(*DIGITS, cwd=tmp_path, environment=environment)
    again = digests(tmp_path / second["run_dir"])
    assert again == digests(run)
    assert {"metrics.jsonl", "config.yaml"} < set(again)
    assert f"checkpoint-{first['steps']}/parameters.safetensors" in again
    assert second["eval"] == first["eval"]


@pytest.mark.full
def test_compiled_afresh_gives_the_same_bytes(
    digits: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    empty = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = result(*DIGITS, cwd=tmp_path, environment=empty)
    assert any((tmp_path / "cache" / "mxrun" / "native").iterdir())
    assert digests(tmp_path / first["run_dir"]) == digests(digits[0])


def test_resident_memory_of_a_small_run(tmp_path: Path) -> None:
    """The interpreter, its libraries and the arena, at the peak."""
    records = "data.train={dataset: synthetic, split: train, records: 9000, shuffle: true}"
    test = "data.eval={dataset: synthetic, split: test}"
    summary = result("train", "mlp_mnist", records, test, "train.epochs=2", cwd=tmp_path)
    assert summary["memory"]["rss_peak_bytes"] <= 190 << 20


def test_another_seed_gives_other_bytes(
    digits: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    other = result(*DIGITS, "seed=1", "train.epochs=1", cwd=tmp_path)
    same = result(*DIGITS, "name=same", "train.epochs=1", cwd=tmp_path)
    first = digests(digits[0])
    assert other["eval"] != same["eval"]
    checkpoints = [
        digests(tmp_path / summary["run_dir"])["checkpoint-23/parameters.safetensors"]
        for summary in (other, same)
    ]
    assert len({*checkpoints, first["checkpoint-460/parameters.safetensors"]}) == 3


def test_lenet_learns_mnist(tmp_path: Path) -> None:
    summary = result("train", "lenet_mnist", f"data.train.path={mnist()}", cwd=tmp_path)
    assert summary["eval"]["accuracy"] >= 0.975
    assert summary["steps"] == 10 * 141
    memory = summary["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"] == memory["lower_bound_bytes"]


def test_a_run_that_diverges_says_so_and_saves_nothing(tmp_path: Path) -> None:
    done = mxrun(*DIGITS, "train.optimizer.sgd.lr=1e9", "train.epochs=3", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "diverged" in done.stderr
    assert "diverged" in json.loads(done.stdout)["error"]["message"]
    assert not list((tmp_path / "runs/digits_lenet").glob("*checkpoint*"))
