"""Progress of a training run: a table and live lines on a terminal, else plain lines.

rich is imported with the first live line, so that runs without a terminal do not import it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mxrun.report.epoch_table import EpochTable
from mxrun.report.figures import bytes_text, count_text, duration_text, metrics_text
from mxrun.report.printable import printable
from mxrun.report.status import stop_status, write_lines
from mxrun.report.streams import optional_stderr
from mxrun.report.warm_start import warm_start_lines
from mxrun.train.observer import EpochDone, Observer, RunStarted, StepDone, StepLogged

if TYPE_CHECKING:
    from rich.live import Live

    from mxrun.report.live import TrainingLines

# Longest time without a line where lines cannot be replaced.
_SILENCE_S = 60.0


@contextmanager
def training_observer() -> Iterator[Observer]:
    """Context manager that gives an observer which writes to standard error."""
    if not sys.stderr.isatty():
        yield EpochLines(_write_plain)
        return
    live = LiveLines()
    try:
        yield live
    finally:
        live.close()


def _write_plain(line: str) -> None:
    write_lines(f"{printable(line)}\n")


def report_abrupt_end() -> None:
    """Write that a second Ctrl-C ends the process before the current step is finished.

    It is called while another thread may write progress, whose lock it does not wait for. On a
    terminal it shows the cursor, which the live lines hide.
    """
    start = "\r\n\x1b[?25h" if sys.stderr.isatty() else ""
    line = "mxrun: ended at once; --resume continues from the last checkpoint, if there is one\n"
    with suppress(OSError):
        os.write(sys.stderr.fileno(), f"{start}{line}".encode())


def run_length(event: RunStarted) -> str:
    """Return the length of a run: `20 epochs of 23 steps`, `500 steps, 23 an epoch`."""
    each = event.steps_per_epoch
    if event.total_steps < event.epochs * each:
        return f"{_counted(event.total_steps, 'step')}, {each} an epoch"
    return f"{_counted(event.epochs, 'epoch')} of {_counted(each, 'step')}"


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def start_lines(event: RunStarted) -> Iterator[str]:
    """Yield the lines at the start of a run: its name, size and settings."""
    frozen = event.trainable is not None
    trainable = f" ({count_text(event.trainable or 0)} trainable)" if frozen else ""
    length = run_length(event)
    yield (
        f"{event.name}: {count_text(event.parameters)} parameters{trainable}, "
        f"arena {bytes_text(event.planned_bytes)}, {length}, batch {event.batch_size}, "
        f"{f'{event.contexts} contexts of ' if event.contexts > 1 else ''}"
        f"{_counted(event.threads, 'thread')}"
        f"{', synthetic data' if event.synthetic_data else ''}"
    )
    if event.values:
        yield event.values
    if event.resumed_from is not None:
        yield f"resuming after step {event.resumed_from}"
    elif event.warm_start is not None:
        yield from warm_start_lines(event.warm_start)


class EpochLines:
    """Observer that writes a line at the start of the run and one after each epoch.

    Within an epoch it writes a line for each step that is recorded, and one a minute.
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._clock = write, clock
        self._run: RunStarted | None = None
        self._started = self._written = 0.0
        self._steps_before = 0
        self._rate = ""

    def run_started(self, event: RunStarted) -> None:
        """Write the name, size and settings of the run."""
        self._run, self._started = event, self._clock()
        self._written = self._started
        self._steps_before = event.resumed_from or 0
        for line in start_lines(event):
            self._write(line)

    def note(self, text: str) -> None:
        """Write a note."""
        self._write(f"mxrun: {text}")

    def step_done(self, event: StepDone) -> None:
        """Write a line if the last one was written a minute ago."""
        self._rate = f"{_rate(event)} samples/s"
        if self._clock() - self._written >= _SILENCE_S:
            assert self._run is not None
            figures = metrics_text(event.metrics, self._run.same_as_loss)
            self._line(event.epoch, event.step, [figures, self._rate])

    def step_logged(self, event: StepLogged) -> None:
        """Write the metrics of a step."""
        assert self._run is not None
        figures = metrics_text(event.train, self._run.same_as_loss)
        self._line(event.epoch, event.step, [figures, *filter(None, [self._rate])])

    def epoch_done(self, event: EpochDone) -> None:
        """Write the metrics and the speed of the epoch."""
        assert self._run is not None
        run = self._run
        parts = [metrics_text(event.train, run.same_as_loss)]
        if event.evaluation:
            parts.append(f"eval {metrics_text(event.evaluation, run.same_as_loss)}")
        if run.synthetic_data:
            parts.append("(synthetic data)")
        parts.append(f"{_rate(event)} samples/s")
        self._line(event.epoch, event.step, parts)

    def _line(self, epoch: int, step: int, parts: list[str]) -> None:
        """Write a line with the position in the run, some parts, and the time left."""
        assert self._run is not None
        self._written = self._clock()
        run = self._run
        head = [f"epoch {epoch:>{len(str(run.epochs))}}/{run.epochs}", f"step {step}"]
        left = run.total_steps - step
        if left > 0:
            each = (self._written - self._started) / max(1, step - self._steps_before)
            parts = [*parts, f"{duration_text(each * left)} left"]
        self._write("  ".join([*head, *parts]))


class LiveLines:
    """Observer that shows a table with a line per epoch, and below it the current position,
    metrics, speeds and the time left.
    """

    def __init__(self) -> None:
        self._lines: TrainingLines | None = None
        self._display: Live | None = None
        self._table: EpochTable | None = None

    def run_started(self, event: RunStarted) -> None:
        """Start the display."""
        from mxrun.report.live import TrainingLines, training_display

        stop_status()
        self._table, self._lines = EpochTable(event), TrainingLines(event)
        self._display = training_display(self._lines)
        for line in start_lines(event):
            self._print(line, wrapped=True)
        with optional_stderr():
            self._display.start()

    def note(self, text: str) -> None:
        """Write a note above the display, if it is shown yet."""
        if self._display is None:
            _write_plain(f"mxrun: {text}")
        else:
            self._print(f"mxrun: {text}", wrapped=True)

    def step_done(self, event: StepDone) -> None:
        """Update the display."""
        assert self._lines is not None
        self._lines.step_done(event)

    def step_logged(self, event: StepLogged) -> None:
        """Write the step's line into the table."""
        assert self._table is not None
        for line in self._table.step_lines(event, self._width()):
            self._print(line)

    def epoch_done(self, event: EpochDone) -> None:
        """Write the epoch's line into the table."""
        assert self._table is not None
        assert self._lines is not None
        self._lines.epoch_done(event)
        for line in self._table.epoch_lines(event, self._width()):
            self._print(line)

    def close(self) -> None:
        """Remove the display."""
        if self._display is not None:
            with optional_stderr():
                self._display.stop()

    def _width(self) -> int:
        assert self._display is not None
        return self._display.console.width

    def _print(self, line: str, wrapped: bool = False) -> None:
        assert self._display is not None
        with optional_stderr():
            console = self._display.console
            console.print(line, markup=False, no_wrap=not wrapped, crop=not wrapped)


def _rate(event: StepDone | EpochDone) -> str:
    """Return the records trained on per second of training."""
    return count_text(event.records / max(event.train_seconds, 1e-9))
