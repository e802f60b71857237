"""Runs stopped by a signal save at once, exit with 75, and resume to the same bytes."""

from __future__ import annotations

import json
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import result
from interrupted_runs import EPOCH, STEPS, Started, go_on, left, resumed_from

from mxrun.train.checkpoint import read_manifest
from mxrun.train.checkpoint_manager import saved_steps

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
STOPPED, INTERRUPTED = 75, 130
# Before the run handles signals, they have Python's default effect.
EARLY = {
    signal.SIGTERM: -signal.SIGTERM,
    signal.SIGINT: INTERRUPTED,
    signal.SIGUSR1: -signal.SIGUSR1,
}


@dataclass(frozen=True)
class Moment:
    """Delay after a step (0: after the start of the command), and the signal sent then."""

    step: int
    seconds: float
    number: signal.Signals


def chains() -> list[list[Moment]]:
    """Return 20 moments over the entire run; four per run, in order."""
    draw = random.Random(11)
    steps = [1 + draw.randrange(STEPS - 1) for _ in range(17)]
    # Early ones among them: before and after the run handles signals.
    places = [(0, draw.uniform(0.0, 0.4)) for _ in range(3)]
    places += [(step, draw.uniform(0.0, 0.01)) for step in steps]
    drawn = [Moment(*place, SIGNALS[number % 3]) for number, place in enumerate(places)]
    draw.shuffle(drawn)
    return [sorted(drawn[first::5], key=lambda moment: moment.step) for first in range(5)]


def stop(folder: Path, moment: Moment, reached: int) -> int:
    """Start or resume a run, stop it, and return the saved step."""
    started = Started(folder, "--resume")
    started.wait_for(moment.step, moment.seconds)
    early = started.step <= 0
    started.process.send_signal(moment.number)
    at_most = max(reached, started.step) + 1
    code, output, errors = started.end()
    assert "Traceback" not in errors
    if code == 0:
        # A late moment may find the run at its end.
        return STEPS
    if code != STOPPED:
        assert output == ""
        assert early
        assert code == EARLY[moment.number]
        return reached
    error = json.loads(output)
    assert (error["error"]["kind"], error["exit_code"]) == ("stopped", STOPPED)
    newest = saved_steps(folder / "runs/killed")[-1]
    assert f"stopped after step {newest} and saved in runs/killed; the same command" in errors
    # No saved step is repeated, and the current step is the last.
    assert (resumed_from(errors) or 0) == reached
    assert reached <= newest <= at_most
    return newest


@pytest.mark.full
def test_F5_runs_asked_to_stop_go_on_to_the_same_bytes(
    uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    drawn = chains()
    assert sum(map(len, drawn)) == 20

    def run(number: int) -> None:
        reached = 0
        for moment in drawn[number]:
            reached = stop(tmp_path / str(number), moment, reached)
        gone = go_on(tmp_path / str(number))
        if "already finished" not in gone.errors:
            assert (gone.summary["resumed_from"] or 0) == reached

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, range(len(drawn))))
    for number in range(len(drawn)):
        assert left(tmp_path / str(number)) == uninterrupted, drawn[number]


ONLY_STEPS = "train.checkpoint={every: 7 steps, keep: 2}"


# Masks are drawn in evaluation as well.
ALWAYS = "network.layers[6].Dropout.mode=always"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((), id="plain"),
        pytest.param((ALWAYS,), id="random evaluation", marks=pytest.mark.full),
    ],
)
def test_F5_stopped_while_it_evaluates_and_killed_soon_after(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    """The epoch's metrics are recorded once, though its last step was saved before them."""
    words = (ONLY_STEPS, *more)
    go_on(tmp_path / "uninterrupted", *words)
    folder = tmp_path / "stopped"
    stopped = Started(folder, *words, moment=f"{EPOCH}:evaluate")
    assert stopped.end()[0] == STOPPED
    assert saved_steps(folder / "runs/killed")[-1] == EPOCH
    # The evaluation is made and recorded, and of the next epoch a few steps are taken.
    started = Started(folder, *words, "--resume", moment=f"{EPOCH + 6}:1")
    assert started.end()[0] == -signal.SIGKILL
    metrics = (folder / "runs/killed/metrics.jsonl").read_text()
    assert [json.loads(line)["epoch"] for line in metrics.splitlines() if '"eval"' in line] == [1]
    assert resumed_from(go_on(folder, *words).errors) == EPOCH
    assert left(folder) == left(tmp_path / "uninterrupted")


def test_F4_numbers_drawn_in_evaluation_do_not_depend_on_how_it_is_asked_for(
    tmp_path: Path,
) -> None:
    """They depend neither on the batch size nor on the epoch, and are the same in `infer`."""
    evaluation = go_on(tmp_path, ALWAYS).summary["eval"]
    for size in (64, 50, 7):
        command = ("infer", "runs/killed", "--split", "eval", "--batch", str(size))
        found = result(*command, cwd=tmp_path)["metrics"]
        assert found["accuracy"] == evaluation["accuracy"]
        assert found["loss"] == pytest.approx(evaluation["loss"], rel=1e-5)
    plain = result("infer", "runs/killed", "--split", "eval", cwd=tmp_path)
    # Batch normalisation is folded into the convolution there, which rounds otherwise.
    assert plain["metrics"]["loss"] == pytest.approx(evaluation["loss"], rel=1e-6)


def test_an_evaluation_is_stopped_and_what_was_saved_before_is_kept(tmp_path: Path) -> None:
    """The checkpoint that is due is saved after the evaluation; only then are others removed."""
    policy = f"train.checkpoint={{every: {EPOCH} steps, keep: 1}}"
    run = tmp_path / "runs/killed"
    assert Started(tmp_path, policy, moment=f"{2 * EPOCH}:evaluate").end()[0] == STOPPED
    assert saved_steps(run) == [EPOCH, 2 * EPOCH]
    assert [read_manifest(run / f"checkpoint-{step}").due for step in saved_steps(run)] == [
        True,
        False,
    ]
    assert resumed_from(go_on(tmp_path, policy).errors) == 2 * EPOCH
    assert saved_steps(run) == [STEPS]


def test_a_terminal_that_goes_away_stops_a_run_unless_nohup_says_otherwise(
    tmp_path: Path,
) -> None:
    # Long enough for the signal to arrive before the end; the tests may run under nohup themselves.
    long = "train.epochs=30"
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        started = Started(tmp_path, long)
        started.wait_for(3, 0)
        started.process.send_signal(signal.SIGHUP)
        code, _, errors = started.end()
        assert code == STOPPED, errors
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        started = Started(tmp_path, long, "--resume")
    finally:
        signal.signal(signal.SIGHUP, before)
    started.wait_for(5, 0)
    started.process.send_signal(signal.SIGHUP)
    code, _, errors = started.end()
    assert code == 0, errors


def wait_until_delivered(process: int, number: int) -> None:
    """Wait until a signal is no longer pending: an equal one would be merged with it."""
    status = Path(f"/proc/{process}/status")
    while any(
        int(line.split()[1], 16) & 1 << number - 1
        for line in status.read_text().splitlines()
        if line.startswith(("SigPnd", "ShdPnd"))
    ):
        time.sleep(0.001)


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    """Even in the middle of a long step."""
    started = Started(
        tmp_path,
        "train.optimizer.adam.lr=1e-9",
        "train.epochs=1000",
        "train.accumulate=5",
        "data.batch_size=128",
        "network.layers[0].Convolution.num_filter=2048",
    )
    # The second step of an epoch, as long as five batches, has begun.
    started.wait_for(1, 0.1)
    started.process.send_signal(signal.SIGINT)
    wait_until_delivered(started.process.pid, signal.SIGINT)
    started.process.send_signal(signal.SIGINT)
    code, output, errors = started.end()
    # The step did not finish; it would have been reported and saved.
    assert started.step == 1
    assert (code, output) == (INTERRUPTED, "")
    assert "Traceback" not in errors
    assert "stopped after" not in errors
    last = errors.splitlines()[-1]
    assert last.startswith("mxrun: ended at once; --resume continues from the last checkpoint")
    assert saved_steps(tmp_path / "runs/killed") == []
