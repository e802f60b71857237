"""Progress output of training: plain lines in files, a bar on a terminal."""

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

from mxrun.report.progress import EpochLines, metrics_text
from mxrun.train.observer import EpochDone, RunStarted, StepDone, VariableGroup, WarmStart

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
    observer.run_started(RunStarted("lenet", 1, 2, 46, 23, 64, 36938, 1500000))
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


def test_a_terminal_gets_a_bar_and_the_epochs() -> None:
    shown = in_terminal([sys.executable, "-c", SCRIPT], "step 10/46")
    assert "step 10/46" in shown
    assert "1/2" in shown
    assert "samples/s" in shown
    assert "eval accuracy 0.8750" in shown


def test_a_narrow_terminal_cuts_metrics_first() -> None:
    script = SCRIPT.replace(
        '{"loss": 0.5}', '{"loss": 0.5, "accuracy": 0.5, "cross_entropy": 0.5}'
    ).replace('RunStarted("lenet", 1, 2, 46', 'RunStarted("lenet", 9, 12, 12_000')
    shown = in_terminal([sys.executable, "-c", script], "step 10/12000", columns=80)
    lines = [part for part in re.split("[\r\n]+", shown) if "step 10/12000" in part]
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", lines[0])
    assert "epoch 1/12" in plain
    assert "6.4 k samples/s" in plain
    assert "loss 0" in plain
    assert len(plain.rstrip()) <= 80
    assert "epoch 9/12" in shown


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
        if awaited.encode() in output.getvalue():
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
