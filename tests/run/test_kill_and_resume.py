"""Runs killed at any moment resume to the same bytes, and lose at most two checkpoint intervals."""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from interrupted_runs import EPOCH, INTERVAL, SAVES, STEPS, Started, go_on, left
from killed_runs import FINISHED, OPERATIONS, Killed, Moment, assert_little_is_redone, chain, kill

from mxrun.train.checkpoint_manager import saved_steps


def chains() -> list[list[Moment]]:
    """Return 40 moments over the entire run, 14 of them in saves; four per run, in order."""
    draw = random.Random(7)
    saves = [
        Moment(draw.choice(SAVES), operation=1 + draw.randrange(OPERATIONS)) for _ in range(14)
    ]
    early = [Moment(0, seconds=draw.uniform(0.0, 0.4)) for _ in range(4)]
    steps = [Moment(1 + draw.randrange(STEPS), draw.uniform(0.0, 0.01)) for _ in range(22)]
    drawn = [*saves, *early, *steps]
    draw.shuffle(drawn)
    return [sorted(drawn[first::10], key=lambda moment: moment.step) for first in range(10)]


@pytest.mark.full
def test_F5_runs_killed_anywhere_go_on_to_the_same_bytes(
    uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    """With one and with four loader threads, on which results do not depend."""
    drawn = chains()
    assert sum(map(len, drawn)) == 40

    def run(number: int) -> list[Killed]:
        return chain(tmp_path / str(number), drawn[number], f"data.workers={(1, 4)[number % 2]}")

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, range(len(drawn))))
    for number, processes in enumerate(found):
        assert left(tmp_path / str(number)) == uninterrupted, drawn[number]
        assert_little_is_redone(processes)
    assert len({process.resumed for processes in found for process in processes}) >= 8


def test_F5_a_run_killed_three_times_in_saves(
    uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    moments = (Moment(21, operation=6), Moment(22, operation=9), Moment(49, operation=3))
    assert_little_is_redone(chain(tmp_path, moments))
    assert left(tmp_path) == uninterrupted


@pytest.mark.full
def test_F5_every_file_operation_of_one_save(uninterrupted: dict[str, str], tmp_path: Path) -> None:
    """Killed before each operation in turn, until the checkpoint has its final name."""
    moments = [Moment(3 * INTERVAL, operation=number) for number in range(1, 15)]
    found = chain(tmp_path, moments)
    assert_little_is_redone(found)
    before = [process.resumed for process in found].index(3 * INTERVAL)
    assert before >= 8
    # The next steps run meanwhile, until the next checkpoint is due.
    assert {process.taken for process in found[:before]} <= set(
        range(3 * INTERVAL, 4 * INTERVAL + 1)
    )
    assert left(tmp_path) == uninterrupted


def test_resuming_nothing_starts_afresh_and_says_so(
    uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    gone = go_on(tmp_path)
    assert "nothing is saved in runs/killed: starting afresh" in gone.errors
    assert left(tmp_path) == uninterrupted


def test_a_run_that_is_over_stays_as_it_is(uninterrupted: dict[str, str], tmp_path: Path) -> None:
    go_on(tmp_path)
    summary = (tmp_path / "runs/killed/summary.json").read_bytes()
    gone = go_on(tmp_path)
    assert f"runs/killed {FINISHED}" in gone.errors
    assert (gone.summary["steps"], gone.summary["resumed_from"]) == (STEPS, None)
    assert gone.summary["eval"]["accuracy"] > 0.2
    assert gone.summary["step_ms"]["median"] > 0
    assert (tmp_path / "runs/killed/summary.json").read_bytes() == summary
    assert left(tmp_path) == uninterrupted


def test_a_finished_run_without_its_summary_gets_one(
    uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    """The new summary has no step times; the next process finds the same state."""
    go_on(tmp_path)
    (tmp_path / "runs/killed/summary.json").unlink()
    for _ in range(2):
        gone = go_on(tmp_path)
        assert (gone.summary["steps"], gone.summary["resumed_from"]) == (STEPS, STEPS)
        assert gone.summary["step_ms"]["median"] is None
    assert FINISHED in gone.errors
    assert left(tmp_path) == uninterrupted


def test_a_run_that_goes_on_has_no_summary(tmp_path: Path) -> None:
    go_on(tmp_path)
    run = tmp_path / "runs/killed"
    *before, last = saved_steps(run)
    shutil.rmtree(run / f"checkpoint-{last}")
    assert (run / "summary.json").exists()
    # Before a file operation, so that it is killed before its end however late that is.
    kill(tmp_path, Moment(before[-1] + 1, operation=1), "--resume")
    assert not (run / "summary.json").exists()


@pytest.mark.parametrize("content", [b"", b"name: killed\nthrea"])
def test_a_config_that_was_left_torn_is_no_obstacle(
    content: bytes, uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    """Killed while the first file of the run was written."""
    (tmp_path / "runs/killed").mkdir(parents=True)
    (tmp_path / "runs/killed/config.yaml").write_bytes(content)
    assert "starting afresh" in go_on(tmp_path).errors
    assert left(tmp_path) == uninterrupted


def test_what_was_recorded_before_anything_was_saved_is_recorded_anew(tmp_path: Path) -> None:
    rarely = "train.checkpoint={every: 1000 steps}"
    go_on(tmp_path / "uninterrupted", rarely)
    folder = tmp_path / "killed"
    assert kill(folder, Moment(EPOCH + 8), rarely).taken >= EPOCH + 8
    assert (folder / "runs/killed/metrics.jsonl").read_text().count("\n") >= 1
    assert "nothing is saved in runs/killed: starting afresh" in go_on(folder, rarely).errors
    assert left(folder) == left(tmp_path / "uninterrupted")


def test_F5_what_a_kill_after_the_last_save_left_goes(
    uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    """The last checkpoint was written, but the ones that it replaces were not removed yet."""
    run = tmp_path / "runs/killed"
    Started(tmp_path, moment=f"{2 * EPOCH}:evaluate").end()
    older = f"checkpoint-{saved_steps(run)[0]}"
    shutil.copytree(run / older, tmp_path / "aside")
    go_on(tmp_path)
    assert not (run / older).exists()
    shutil.move(tmp_path / "aside", run / older)
    (run / "summary.json").unlink()
    go_on(tmp_path)
    assert left(tmp_path) == uninterrupted
