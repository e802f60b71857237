"""The compute team of a run that names none: chosen for its network, then part of the run."""

from __future__ import annotations

import shutil
from pathlib import Path

from commands import digests, mxrun, refused, result

from mxrun import session
from mxrun.backend.team import available_cores
from mxrun.config.bundled import find_config

SMALL = ("train", "digits_lenet", "train.epochs=2", "name=run")


def forget_team(run: Path) -> None:
    """Make the run one that was begun where two threads were the default."""
    config = run / "config.yaml"
    text = config.read_text()
    assert "threads: 2\n" in text
    config.write_text(text.replace("threads: 2\n", ""))


def test_plans_have_the_team_that_their_network_is_worth() -> None:
    """Small networks one thread, large ones the cores; `threads` and --threads take precedence."""
    digits, lenet = (find_config(name) for name in ("digits_lenet", "lenet_mnist"))
    assert session.inspect_memory(digits, measured=False).plan.threads == 1
    assert session.inspect_memory(lenet, measured=False).plan.threads == available_cores()
    assert session.inspect_memory(lenet, ["threads=1"], measured=False).plan.threads == 1
    named = session.inspect_memory(digits, ["threads=2"], threads=3, measured=False)
    assert named.plan.threads == 3


def test_the_team_is_part_of_the_run(tmp_path: Path) -> None:
    """Going on takes the run's team, so that an earlier rule or other cores change no bit."""
    whole = result(*SMALL, "threads=2", cwd=tmp_path)
    assert whole["threads"] == 2
    run = tmp_path / "runs/run"
    before = digests(run)
    forget_team(run)
    shutil.rmtree(run / "checkpoint-46")
    (run / "summary.json").unlink()
    assert (run / "checkpoint-23").is_dir()
    resumed = result(*SMALL, "--resume", cwd=tmp_path)
    assert resumed["threads"] == 2
    assert (
        digests(run)["checkpoint-46/parameters.safetensors"]
        == (before["checkpoint-46/parameters.safetensors"])
    )
    text = refused(*SMALL, "--resume", "threads=1", "train.epochs=3", cwd=tmp_path)
    assert "threads: 2 then, 1 now" in text


def test_inference_has_the_team_of_the_run(tmp_path: Path) -> None:
    """So that it gives its evaluation's bits; as far as there are cores, unless one is named."""
    trained = result(*SMALL, "threads=2", cwd=tmp_path)
    forget_team(tmp_path / "runs/run")
    words = ("infer", "runs/run", "--split", "eval")
    inferred = result(*words, cwd=tmp_path)
    assert inferred["threads"] == min(2, available_cores())
    assert inferred["metrics"]["loss"] == trained["eval"]["loss"]
    assert result(*words, "--threads", "1", cwd=tmp_path)["threads"] == 1


def test_the_chosen_team_is_shown(tmp_path: Path) -> None:
    done = mxrun(*SMALL, cwd=tmp_path)
    assert done.returncode == 0
    assert "1 thread" in done.stderr
