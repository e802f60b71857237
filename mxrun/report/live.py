"""Lines at the bottom of the terminal while a run trains, made anew a few times a second."""

from __future__ import annotations

import time

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from mxrun.report.console import stderr
from mxrun.report.figures import bytes_text, count_text, duration_text, metrics_text
from mxrun.runtime.memory_limits import peak_rss_bytes
from mxrun.train.observer import EpochDone, RunStarted, StepDone

_BAR = 20
_GAP = "  "
# Share of the time spent waiting for data from which it is shown.
WAIT_SHOWN = 0.05


class TrainingLines:
    """Epoch and step with a bar; below, the current metrics, rates, time left and memory.

    Each line shows as many of its parts as fit the width, the most important ones first.
    """

    def __init__(self, run: RunStarted) -> None:
        self._run = run
        self._started = time.monotonic()
        self._first_step = run.resumed_from or 0
        self._epoch, self._step = run.epoch, self._first_step
        self._epoch_start = (run.epoch - 1) * run.steps_per_epoch
        self._last: StepDone | None = None

    def step_done(self, event: StepDone) -> None:
        """Show a step."""
        self._epoch, self._step, self._last = event.epoch, event.step, event

    def epoch_done(self, event: EpochDone) -> None:
        """Show the next epoch."""
        self._step = event.step
        if event.step < self._run.total_steps:
            self._epoch, self._epoch_start = event.epoch + 1, event.step

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the two lines."""
        run = self._run
        total = max(1, min(run.steps_per_epoch, run.total_steps - self._epoch_start))
        taken = max(0, min(total, self._step - self._epoch_start))
        filled = _BAR * taken // total
        done, left = ("#", "-") if options.ascii_only else ("━", "─")
        bar = Text.assemble((done * filled, "magenta"), (left * (_BAR - filled), "dim"))
        position = [
            Text(f"epoch {self._epoch} of {run.epochs}", "bold"),
            Text(f"step {taken} of {total}"),
            bar,
            Text(f"{self._step:,} of {run.total_steps:,} steps"),
        ]
        yield _fitted(position, options.max_width)
        yield _fitted(self._figures(), options.max_width)

    def _figures(self) -> list[Text]:
        last = self._last
        if last is None:
            return [Text("first step ...")]
        seconds = max(last.train_seconds, 1e-9)
        steps = last.step - self._first_step
        parts = [
            Text(metrics_text(last.metrics, self._run.same_as_loss)),
            Text(self.left(), "green"),
            Text(f"{count_text(last.records / seconds)} samples/s", "cyan"),
        ]
        if last.waited_seconds / seconds > WAIT_SHOWN:
            parts.append(Text(f"{last.waited_seconds / seconds:.0%} waiting for data", "yellow"))
        return [
            *parts,
            Text(f"{count_text(steps / seconds)} steps/s", "cyan"),
            Text(f"peak memory {bytes_text(peak_rss_bytes())}"),
        ]

    def left(self) -> str:
        """Return the time left, from the time of all steps so far with their evaluations."""
        steps = max(1, self._step - self._first_step)
        each = (time.monotonic() - self._started) / steps
        return f"{duration_text(each * (self._run.total_steps - self._step))} left"


def _fitted(parts: list[Text], width: int) -> Text:
    """Return the first parts that fit on a line."""
    line = Text(no_wrap=True, overflow="ellipsis")
    for part in parts:
        if len(line) and len(line) + len(_GAP) + len(part) > width:
            break
        line = line.append(_GAP if len(line) else "").append_text(part)
    return line


def training_display(lines: TrainingLines) -> Live:
    """Return the display of the lines on standard error."""
    return Live(lines, console=stderr(), refresh_per_second=8, transient=True)
