"""Lines at the bottom of the terminal while a run trains, made anew a few times a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from mxrun.base.dataclass import dataclass
from mxrun.report.console import stderr
from mxrun.report.figures import bytes_text, count_text, duration_text, metrics_text
from mxrun.runtime.memory_limits import peak_rss_bytes
from mxrun.train.metric_kind import Figure
from mxrun.train.observer import EpochDone, RunStarted, StepDone

_BAR = 20
_GAP = "  "
# Share of the time spent waiting for data from which it is shown.
WAIT_SHOWN = 0.05


# Time from which the rate so far tells the time left: the first steps are slower.
_ESTIMATE_AFTER_S = 0.5


@dataclass(frozen=True)
class _Figures:
    """Metrics and speeds of the last event; waits: share of the time spent waiting for data."""

    metrics: Mapping[str, Figure]
    samples_per_s: float
    steps_per_s: float
    waits: float


class TrainingLines:
    """Epoch and step with a bar; below, the current metrics, rates, time left and memory.

    Each line shows as many of its parts as fit the width, the most important ones first.
    """

    def __init__(self, run: RunStarted, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._clock = run, clock
        self._started = clock()
        self._first_step = run.resumed_from or 0
        self._epoch, self._step = run.epoch, self._first_step
        self._epoch_start = (run.epoch - 1) * run.steps_per_epoch
        self._last: _Figures | None = None

    def step_done(self, event: StepDone) -> None:
        """Show a step."""
        self._epoch, self._step = event.epoch, event.step
        seconds = max(event.train_seconds, 1e-9)
        self._last = _Figures(
            event.metrics,
            event.records / seconds,
            (event.step - self._first_step) / seconds,
            event.waited_seconds / seconds,
        )

    def epoch_done(self, event: EpochDone) -> None:
        """Show the epoch's figures, and the next epoch."""
        seconds = max(event.train_seconds, 1e-9)
        self._last = _Figures(
            event.train,
            event.records / seconds,
            (event.step - max(self._epoch_start, self._first_step)) / seconds,
            0.0 if self._last is None else self._last.waits,
        )
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
        parts = [Text(metrics_text(last.metrics, self._run.same_as_loss))]
        if (left := self._left_s()) is not None:
            parts.append(Text(f"{duration_text(left)} left", "green"))
        parts.append(Text(f"{count_text(last.samples_per_s)} samples/s", "cyan"))
        if last.waits > WAIT_SHOWN:
            parts.append(Text(f"{last.waits:.0%} waiting for data", "yellow"))
        return [
            *parts,
            Text(f"{count_text(last.steps_per_s)} steps/s", "cyan"),
            Text(f"peak memory {bytes_text(peak_rss_bytes())}"),
        ]

    def _left_s(self) -> float | None:
        """Return the seconds left, from the time of all steps so far with their evaluations.

        None while too little time has passed.
        """
        passed = self._clock() - self._started
        if passed < _ESTIMATE_AFTER_S:
            return None
        each = passed / max(1, self._step - self._first_step)
        return each * (self._run.total_steps - self._step)


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
