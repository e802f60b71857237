"""mxrun with Python options that strip docstrings and asserts."""

from __future__ import annotations

import json
from pathlib import Path

import shown_texts
from commands import mxrun, python_output, result, succeeded
from layer_configs import DENSE, SOFTMAX, written

STRIPPED = {"PYTHONOPTIMIZE": "2"}


def test_commands_need_no_docstrings(tmp_path: Path) -> None:
    written(tmp_path, [DENSE, "clip: {a_min: -4, a_max: 4}", SOFTMAX])
    checked = result("check", "net.yaml", cwd=tmp_path, environment=STRIPPED)
    assert [row["name"] for row in checked["rows"]] == ["fc", "clip0", "softmax"]
    stripped = result("train", "net.yaml", "name=stripped", cwd=tmp_path, environment=STRIPPED)
    whole = result("train", "net.yaml", "name=whole", cwd=tmp_path)
    assert stripped["steps"] == whole["steps"] > 0
    metrics = (tmp_path / "runs" / name / "metrics.jsonl" for name in ("stripped", "whole"))
    first, second = (path.read_text().splitlines() for path in metrics)
    assert first == second
    assert json.loads(first[-1])


def test_users_see_the_same_texts() -> None:
    stripped = json.loads(python_output("-OO", shown_texts.__file__))
    assert stripped == json.loads(json.dumps(shown_texts.shown_texts()))
    assert all(stripped["commands"].values())
    shown = succeeded(mxrun("datasets", "-h", environment=STRIPPED)).stdout
    assert "List and fetch data sets" in shown
    assert "mxrun datasets fetch mnist" in shown
