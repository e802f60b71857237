"""Progress output of training: plain lines in files, a table and live lines on a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from commands import HANG_S
from consoles import printed
from rich.console import Console

from mxrun.report.epoch_table import EpochTable
from mxrun.report.figures import metrics_text
from mxrun.report.live import TrainingLines
from mxrun.report.progress import EpochLines, run_length
from mxrun.train.observer import (
    EpochDone,
    RunStarted,
    StepDone,
    StepLogged,
    VariableGroup,
    WarmStart,
)

STARTED = RunStarted("lenet", 1, 2, 46, 23, 64, 36_938, 1_500_000)
EVENTS = (
    EpochDone(
        1, 23, 0.1, {"loss": 0.5, "accuracy": 0.75}, {"accuracy": 0.8}, 1438, 0.5, seconds=0.75
    ),
    EpochDone(2, 46, 0.1, {"loss": 1e-5, "accuracy": 1.0}, {}, 1438, 0.25, seconds=0.25),
)
# A line is read from standard input between the step and the epoch.
SCRIPT = """
import sys
from mxrun.report.progress import training_observer
from mxrun.train.observer import EpochDone, RunStarted, StepDone
with training_observer() as observer:
    run = RunStarted("lenet", 1, 2, 46, 23, 64, 36938, 1500000, eval_numbers=("accuracy",))
    observer.run_started(run)
    observer.step_done(StepDone(1, 10, {"loss": 0.5}, 640, 0.1))
    sys.stdin.readline()
    observer.epoch_done(EpochDone(1, 23, 0.1, {"loss": 0.25}, {"accuracy": 0.875}, 1438, 0.5, 0.75))
"""


def test_one_line_per_epoch() -> None:
    lines: list[str] = []
    observer = EpochLines(lines.append)
    observer.run_started(STARTED)
    observer.step_done(StepDone(1, 10, {"loss": 0.7}, 640, 0.1))
    for event in EVENTS:
        observer.epoch_done(event)
    assert (
        lines[0]
        == "lenet: 36.9 k parameters, arena 1.43 MiB, 2 epochs of 23 steps, batch 64, 1 thread"
    )
    assert lines[1].startswith(
        "epoch 1/2  step 23  loss 0.5000  accuracy 0.7500  eval accuracy 0.8000  2.88 k samples/s"
    )
    assert lines[1].endswith(" left")
    assert lines[2] == "epoch 2/2  step 46  loss 1.00e-05  accuracy 1.0000  5.75 k samples/s"


@pytest.mark.parametrize(
    ("epochs", "total", "each", "text"),
    [
        (2, 46, 23, "2 epochs of 23 steps"),
        (1, 1, 1, "1 epoch of 1 step"),
        (3, 25, 10, "25 steps, 10 an epoch"),
        (1, 1, 10, "1 step, 10 an epoch"),
    ],
)
def test_the_length_of_a_run_is_counted_in_words(
    epochs: int, total: int, each: int, text: str
) -> None:
    run = replace(STARTED, epochs=epochs, total_steps=total, steps_per_epoch=each)
    assert run_length(run) == text


def test_what_a_run_starts_from_is_said_once() -> None:
    """Names that differ in numbers only are merged into a pattern; of many, the first are shown."""
    layers = [f"stage{stage}/unit{unit}/conv_weight" for stage in (1, 2) for unit in range(3)]
    many = [f"layer_{letter}" for letter in "abcdefgh"]
    start = WarmStart(
        "runs/base/checkpoint-44",
        (
            VariableGroup("loaded", (*layers, "conv1_bias"), 512, 2048),
            VariableGroup("left_out", ("fc2_weight",)),
            VariableGroup("trainable", tuple(many), 10, 40),
        ),
        ("fc1_bias [12] there, [16] here",),
    )
    started = replace(STARTED, trainable=10, warm_start=start)
    lines: list[str] = []
    EpochLines(lines.append).run_started(started)
    assert lines[0].startswith("lenet: 36.9 k parameters (10 trainable), arena")
    assert lines[1:] == [
        "starts from runs/base/checkpoint-44",
        "  loaded     7 tensors  2.00 KiB  stage*/unit*/conv_weight, conv1_bias",
        "  left out   1 tensor             fc2_weight",
        "  trainable  8 tensors      40 B  layer_a, layer_b, layer_c, layer_d, layer_e, layer_f "
        "and 2 more",
        "  not loaded, of another shape: fc1_bias [12] there, [16] here",
    ]
    lines.clear()
    EpochLines(lines.append).run_started(replace(started, resumed_from=7))
    assert lines[1:] == ["resuming after step 7"]


def test_into_a_file_go_plain_lines_and_no_rich() -> None:
    script = f"{SCRIPT}\nassert 'rich' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", script], input="", capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert "\x1b" not in done.stderr
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["lenet:", "epoch"]


def test_a_terminal_gets_live_lines_and_a_table_of_epochs() -> None:
    shown = plain(in_terminal([sys.executable, "-c", SCRIPT], "step 10 of 23"))
    assert "epoch 1 of 2  step 10 of 23" in shown
    assert "10 of 46 steps" in shown
    assert "epoch 2 of 2  step 0 of 23" in shown
    for part in ("loss 0.5000", "6.4 k samples/s", "100 steps/s", "peak memory"):
        assert part in shown
    lines = [line.split() for line in shown.split("\n")]
    heading = "epoch step train loss eval accuracy samples/s time"
    assert heading.split() in lines
    assert ["1/2", "23", "0.2500", "0.8750", "2.88", "k", "750", "ms"] in lines


@pytest.mark.parametrize(
    ("columns", "left_out"),
    [
        (200, set()),
        (80, {"step", "time"}),
        (60, {"step", "time", "samples/s", "train accuracy"}),
    ],
)
def test_a_narrow_terminal_leaves_out_the_least_important_columns(
    columns: int, left_out: set[str]
) -> None:
    """Metrics that are the loss by definition are left out, and nothing wraps."""
    every = ["epoch", "step", "train loss", "train accuracy", "eval loss", "eval accuracy"]
    every += ["samples/s", "time"]
    figures = {"loss": 0.5, "accuracy": 0.75, "cross_entropy": 0.5}
    run = replace(STARTED, train_numbers=tuple(figures), eval_numbers=tuple(figures), epochs=1000)
    table = EpochTable(replace(run, same_as_loss=frozenset({"cross_entropy"})))
    heading, line = table.epoch_lines(
        EpochDone(1, 23, 0.1, figures, figures, 1438, 0.5, seconds=75.0), columns
    )
    assert re.split("  +", heading.strip()) == [name for name in every if name not in left_out]
    assert max(len(heading), len(line)) <= columns
    assert len(heading) == len(line)
    following = replace(EVENTS[0], train=figures, evaluation=figures)
    assert len(table.epoch_lines(following, columns)) == 1


def test_live_lines_follow_steps_and_epochs() -> None:
    """Quick runs have a few events only: an epoch counts, and no time left is guessed at once."""
    now = [10.0]
    lines = TrainingLines(STARTED, clock=lambda: now[0])

    def figures() -> str:
        return printed(lines, width=200).splitlines()[1].partition("  peak memory")[0]

    assert figures() == "first step ..."
    now[0] += 0.25
    lines.step_done(StepDone(1, 1, {"loss": 2.25}, 64, 0.1))
    assert figures() == "loss 2.2500  640 samples/s  10 steps/s"
    lines.epoch_done(EVENTS[0])
    assert figures() == "loss 0.5000  accuracy 0.7500  2.88 k samples/s  46 steps/s"
    now[0] += 0.25
    assert figures() == "loss 0.5000  accuracy 0.7500  0.5 s left  2.88 k samples/s  46 steps/s"
    lines.step_done(StepDone(2, 33, {"loss": 0.25}, 2078, 0.5))
    assert figures() == "loss 0.2500  0.2 s left  4.16 k samples/s  66 steps/s"


def test_live_lines_fit_a_narrow_terminal() -> None:
    script = SCRIPT.replace(
        '{"loss": 0.5}', '{"loss": 0.5, "accuracy": 0.5, "cross_entropy": 0.5}'
    ).replace('"lenet", 1, 2, 46', '"lenet", 9, 12, 276')
    script = script.replace("StepDone(1, 10", "StepDone(9, 194").replace(
        "Done(1, 23", "Done(9, 207"
    )
    shown = plain(in_terminal([sys.executable, "-c", script], "step 10 of 23", columns=60))
    live = [line.strip() for line in shown.split("\n") if "step 10 of 23" in line]
    assert live[0] == f"epoch 9 of 12  step 10 of 23  {8 * '━'}{12 * '─'}"
    assert max(len(line.rstrip()) for line in shown.split("\n")[2:]) <= 60


def test_the_bar_is_ascii_where_nothing_else_can_be_shown() -> None:
    run = replace(STARTED, steps_per_epoch=20)
    lines = TrainingLines(run)
    lines.step_done(StepDone(1, 10, {"loss": 0.5}, 640, 0.1))
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(file=stream, width=80).print(lines)
    assert f"step 10 of 20  {10 * '#'}{10 * '-'}" in stream.buffer.getvalue().decode()


def test_within_a_long_epoch_a_pipe_gets_a_line_a_minute_and_every_recorded_step() -> None:
    now = [0.0]
    lines: list[str] = []
    observer = EpochLines(lines.append, clock=lambda: now[0])
    observer.run_started(replace(STARTED, same_as_loss=frozenset({"cross_entropy"})))
    for seconds, step in ((30, 5), (59, 9), (61, 10), (62, 11), (120, 15), (122, 20)):
        now[0] = seconds
        observer.step_done(StepDone(1, step, {"loss": 0.5, "cross_entropy": 0.5}, 64 * step, 4.0))
    assert lines[1:] == [
        "epoch 1/2  step 10  loss 0.5000  160 samples/s  3:40 left",
        "epoch 1/2  step 20  loss 0.5000  320 samples/s  2:39 left",
    ]
    observer.step_logged(StepLogged(1, 20, 0.1, {"loss": 0.25}))
    assert lines[3] == "epoch 1/2  step 20  loss 0.2500  320 samples/s  2:39 left"


def test_nobody_who_reads_is_no_reason_to_stop() -> None:
    """The pipe of standard error closes during a run."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{SCRIPT}\nprint('trained')"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("lenet:")
    process.stderr.close()
    process.stderr = None
    output, _ = process.communicate("", timeout=HANG_S)
    assert (output, process.returncode) == ("trained\n", 0)


def plain(shown: str) -> str:
    """Return the text without control sequences; a line that is written anew starts a line."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r\n", "\n").replace("\r", "\n")


def in_terminal(command: list[str], awaited: str, columns: int = 200) -> str:
    """Return the output of a command whose standard error is a terminal with `columns` columns.

    Its standard input is closed once it has printed `awaited`.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": str(columns)},
    )
    assert process.stdin is not None
    os.close(theirs)
    output = io.BytesIO()
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        output.write(part)
        text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", output.getvalue())
        if awaited.encode() in text:
            process.stdin.close()
    os.close(ours)
    assert process.wait() == 0
    return output.getvalue().decode()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.98334, "0.9833"), (0.0, "0.0000"), (1e-4, "1.00e-04"), (-2, "-2.0000"), (-1e-12, "0.0000")],
)
def test_metrics_are_short(value: float, text: str) -> None:
    assert metrics_text({"loss": value}) == f"loss {text}"
