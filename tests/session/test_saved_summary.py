"""A summary that is not in the form of a run's is ignored, whatever its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mxrun.session.train_summary import TrainSummary
from mxrun.train.run_directory import RunDirectory

SOUND: dict[str, Any] = {
    "steps": 23,
    "eval": {"loss": 0.5, "accuracy": None, "confusion": [[1.0]]},
    "step_ms": {"median": 1.0, "p90": 1.5, "p99": 2.0, "min": None},
    "first_step_s": 1.25,
    "memory": dict.fromkeys(
        ("planned_bytes", "touched_bytes", "lower_bound_bytes", "rss_peak_bytes"), 4096
    ),
    "storage": {"cpu:0": {"requests": 0, "requests_from_pool": 0, "peak_bytes": 0}},
    "run_dir": "runs/one",
    "epochs": 1,
    "stopped_early": False,
    "resumed_from": None,
    "best": None,
    "started_from": None,
    "data_wait_share": 0.25,
    "synthetic_data": False,
    "threads": 1,
    "core_wait_share": None,
    "variables": {},
    "classes": ["a", "b"],
    "recompute": None,
    "micro_batches": 1,
    "contexts": 1,
    "ended": "all 1 epochs",
    "same_as_loss": ["cross_entropy"],
    "data_wait_advice": "",
    "data_stages": {},
    "python_transforms": None,
    "bad_records": {},
}
WRONG = ["text", [1], {"a": 1}, 10**400, -1.5, True]


def test_what_a_run_wrote_is_its_summary() -> None:
    found = TrainSummary.from_json(SOUND)
    assert found is not None
    assert found.steps == 23
    assert found.step_ms["min"] != found.step_ms["min"]


@pytest.mark.parametrize("name", ["steps", "eval", "step_ms", "first_step_s", "memory", "run_dir"])
def test_wrong_types_are_no_summary(name: str) -> None:
    right = {"first_step_s": [-1.5], "run_dir": ["text"], "eval": [{"a": 1}]}.get(name, [])
    for wrong in WRONG:
        found = TrainSummary.from_json({**SOUND, name: wrong})
        assert (found is not None) == (wrong in right), wrong
    if isinstance(SOUND[name], dict):
        for part in SOUND[name]:
            assert TrainSummary.from_json({**SOUND, name: {**SOUND[name], part: "text"}}) is None


@pytest.mark.parametrize("content", ["[" * 100_000, "[1]", "{", "\xff"])
def test_what_is_no_mapping_is_no_summary(content: str, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "one", "name: one\n", False)
    (run.path / "summary.json").write_text(content, encoding="latin-1")
    assert run.summary() is None
    (run.path / "metrics.jsonl").write_text(f"{content}\n{json.dumps({'epoch': 'x'})}\n")
    run.remove_records_from(2)
    assert (run.path / "metrics.jsonl").read_bytes() == b""
