"""Threads of a run: all cores by default, and the same bits on any number of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from commands import digests, mxrun, python_output, result
from memory_reports import memory_of

from mxrun.config.bundled import find_config
from mxrun.device.cpu.pool import available_cores

SMALL = ("train", "digits_lenet", "train.epochs=2", "name=run")


# Batch whose layers are cut into several tasks.
LARGER = (*SMALL, "data.batch_size=104")
ON_ONE_CORE = (
    "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
    "from mxrun.__main__ import main; main()"
)


def on_one_core(*arguments: str, cwd: Path) -> dict[str, Any]:
    """Return the JSON result of a command that may use one core."""
    value = json.loads(python_output("-c", ON_ONE_CORE, *arguments, "--json", cwd=cwd))
    assert isinstance(value, dict)
    return value


def test_all_cores_compute_unless_the_config_or_the_command_says_otherwise() -> None:
    digits = find_config("digits_lenet")
    assert memory_of(digits, measured=False).plan.device.threads == available_cores()
    assert memory_of(digits, ["threads=1"], measured=False).plan.device.threads == 1
    named = memory_of(digits, ["threads=2"], threads=3, measured=False)
    assert named.plan.device.threads == 3


def test_a_run_goes_on_with_other_threads(tmp_path: Path) -> None:
    whole = result(*LARGER, cwd=tmp_path)
    assert whole["threads"] == available_cores()
    run = tmp_path / "runs/run"
    before = digests(run)
    shutil.rmtree(run / f"checkpoint-{whole['steps']}")
    (run / "summary.json").unlink()
    assert (run / f"checkpoint-{whole['steps'] // 2}").is_dir()
    assert on_one_core(*LARGER, "--resume", cwd=tmp_path)["threads"] == 1
    assert digests(run) == before
    assert result(*LARGER, "--resume", "threads=3", cwd=tmp_path)["steps"] == whole["steps"]


def test_inference_gives_the_bits_of_the_runs_evaluation(tmp_path: Path) -> None:
    trained = result(*LARGER, cwd=tmp_path)
    words = ("infer", "runs/run", "--split", "eval")
    assert result(*words, "--threads", "3", cwd=tmp_path)["threads"] == 3
    inferred = on_one_core(*words, cwd=tmp_path)
    assert inferred["threads"] == 1
    assert inferred["metrics"]["loss"] == trained["eval"]["loss"]


def test_the_threads_are_shown(tmp_path: Path) -> None:
    done = mxrun(*SMALL, "threads=1", cwd=tmp_path)
    assert done.returncode == 0
    assert "1 thread" in done.stderr


def test_generation_gives_the_same_tokens_on_any_number_of_threads(tmp_path: Path) -> None:
    # A network and a prompt whose products are cut into several tasks.
    result("train", "gpt_tiny", "train.max_steps=1", "name=run", cwd=tmp_path)
    words = ("infer", "runs/run", "--prompt", "ROMEO: what light " * 2, "--length", "16")
    runs = [result(*words, "--threads", str(each), cwd=tmp_path) for each in (1, 2, 3)]
    tokens = [[each["tokens"] for each in run["results"]] for run in runs]
    assert tokens[0] == tokens[1] == tokens[2]
    assert len(set(tokens[0][0])) > 2


def test_the_reference_device_gives_the_same_bits_whatever_threads_says(tmp_path: Path) -> None:
    found = []
    for threads in (1, 3):
        words = (*SMALL, "context=reference", "train.max_steps=3", f"threads={threads}")
        folder = tmp_path / str(threads)
        folder.mkdir()
        result(*words, cwd=folder)
        files = digests(folder / "runs/run").items()
        found.append({name: digest for name, digest in files if name.endswith(".safetensors")})
    assert found[0] == found[1] != {}
