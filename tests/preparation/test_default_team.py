"""Default thread team of a run: selected for its network, then part of the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from commands import digests, mxrun, python_output, refused, result
from memory_reports import memory_of

from mxrun.config.bundled import find_config
from mxrun.device.cpu.team import available_cores

SMALL = ("train", "digits_lenet", "train.epochs=2", "name=run")


# Batch for which the cost model selects two threads in training and one in inference.
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


def test_plans_have_the_team_that_their_network_is_worth() -> None:
    """Small networks get one thread, large ones all cores; `threads` and --threads override."""
    digits, lenet = (find_config(name) for name in ("digits_lenet", "lenet_mnist"))
    assert memory_of(digits, measured=False).plan.device.threads == 1
    assert memory_of(lenet, measured=False).plan.device.threads == available_cores()
    assert memory_of(lenet, ["threads=1"], measured=False).plan.device.threads == 1
    named = memory_of(digits, ["threads=2"], threads=3, measured=False)
    assert named.plan.device.threads == 3


def test_the_team_is_part_of_the_run(tmp_path: Path) -> None:
    """Resuming uses the run's team, so that other cores change no bit."""
    whole = result(*LARGER, cwd=tmp_path)
    assert whole["threads"] == min(2, available_cores())
    run = tmp_path / "runs/run"
    before = digests(run)
    shutil.rmtree(run / f"checkpoint-{whole['steps']}")
    (run / "summary.json").unlink()
    assert (run / f"checkpoint-{whole['steps'] // 2}").is_dir()
    assert on_one_core(*LARGER, "--resume", cwd=tmp_path)["threads"] == whole["threads"]
    assert digests(run) == before
    words = (*LARGER, "--resume", "threads=3", "train.epochs=3")
    assert f"threads: {whole['threads']} then, 3 now" in refused(*words, cwd=tmp_path)


def test_inference_has_the_team_of_the_run(tmp_path: Path) -> None:
    """It gives the bits of the run's evaluation. The cores limit the team, unless --threads is
    given.
    """
    trained = result(*LARGER, cwd=tmp_path)
    words = ("infer", "runs/run", "--split", "eval")
    inferred = result(*words, cwd=tmp_path)
    assert inferred["threads"] == trained["threads"]
    assert inferred["metrics"]["loss"] == trained["eval"]["loss"]
    assert result(*words, "--threads", "3", cwd=tmp_path)["threads"] == 3
    assert on_one_core(*words, cwd=tmp_path)["threads"] == 1


def test_the_chosen_team_is_shown(tmp_path: Path) -> None:
    done = mxrun(*SMALL, cwd=tmp_path)
    assert done.returncode == 0
    assert "1 thread" in done.stderr
