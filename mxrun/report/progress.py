"""Progress of a training run: a live line on a terminal, else one plain line per epoch.

rich is imported with the first live line, so that runs without a terminal do not import it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mxrun.report.figures import bytes_text, count_text, duration_text, metric_text
from mxrun.report.printable import printable
from mxrun.report.streams import optional_stderr
from mxrun.report.warm_start import warm_start_lines
from mxrun.train.metric_kind import Figure
from mxrun.train.observer import EpochDone, Observer, RunStarted, StepDone

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


@contextmanager
def training_observer() -> Iterator[Observer]:
    """Context manager that gives an observer which writes to standard error."""
    if not sys.stderr.isatty():
        yield EpochLines(_write_plain)
        return
    live = LiveLine()
    try:
        yield live
    finally:
        live.close()


def _write_plain(line: str) -> None:
    with optional_stderr():
        sys.stderr.write(f"{printable(line)}\n")
        sys.stderr.flush()


class EpochLines:
    """Observer that writes a line at the start of the run and one after each epoch."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._run: RunStarted | None = None
        self._started = 0.0
        self._epochs = 0

    def run_started(self, event: RunStarted) -> None:
        """Write the name, size and settings of the run."""
        self._run, self._started = event, time.monotonic()
        frozen = event.trainable is not None
        trainable = f" ({count_text(event.trainable or 0)} trainable)" if frozen else ""
        self._write(
            f"{event.name}: {count_text(event.parameters)} parameters{trainable}, "
            f"arena {bytes_text(event.planned_bytes)}, {event.epochs} epochs of "
            f"{event.steps_per_epoch} steps, batch {event.batch_size}, "
            f"{event.threads} thread{'s' if event.threads > 1 else ''}"
            f"{', synthetic data' if event.synthetic_data else ''}"
        )
        if event.resumed_from is not None:
            self._write(f"resuming after step {event.resumed_from}")
        elif event.warm_start is not None:
            for line in warm_start_lines(event.warm_start):
                self._write(line)

    def note(self, text: str) -> None:
        """Write a note."""
        self._write(f"mxrun: {text}")

    def step_done(self, event: StepDone) -> None:
        """Do nothing: printed lines cannot be replaced."""

    def epoch_done(self, event: EpochDone) -> None:
        """Write the metrics and the speed of the epoch."""
        assert self._run is not None
        run = self._run
        parts = [
            f"epoch {event.epoch:>{len(str(run.epochs))}}/{run.epochs}",
            f"step {event.step}",
            metrics_text(event.train),
        ]
        if event.evaluation:
            parts.append(f"eval {metrics_text(event.evaluation)}")
        if run.synthetic_data:
            parts.append("(synthetic data)")
        parts.append(f"{_rate(event)} samples/s")
        if event.epoch < run.epochs:
            self._epochs += 1
            elapsed = time.monotonic() - self._started
            left = elapsed / self._epochs * (run.epochs - event.epoch)
            parts.append(f"{duration_text(left)} left")
        self._write("  ".join(parts))


class LiveLine:
    """Observer that shows a bar with epoch, step, speed, metrics and the time left, below the
    epochs.
    """

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._run: RunStarted | None = None
        self._lines = EpochLines(self._print)

    def run_started(self, event: RunStarted) -> None:
        """Start the bar."""
        from mxrun.report.live import training_bar

        self._run, self._progress = event, training_bar()
        self._lines.run_started(event)
        with optional_stderr():
            self._progress.start()
            self._task = self._progress.add_task(
                "train",
                total=event.total_steps,
                completed=event.resumed_from or 0,
                epoch=f"{event.epoch}/{event.epochs}",
                rate="-",
                metrics="",
            )

    def note(self, text: str) -> None:
        """Write a note above the bar, if it is shown yet."""
        if self._progress is None:
            _write_plain(f"mxrun: {text}")
        else:
            self._lines.note(text)

    def step_done(self, event: StepDone) -> None:
        """Update the bar."""
        assert self._progress is not None
        assert self._task is not None
        assert self._run is not None
        with optional_stderr():
            self._progress.update(
                self._task,
                completed=event.step,
                epoch=f"{event.epoch}/{self._run.epochs}",
                rate=_rate(event),
                metrics=metrics_text(event.metrics),
            )

    def epoch_done(self, event: EpochDone) -> None:
        """Write the epoch's line above the bar."""
        self._lines.epoch_done(event)

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            with optional_stderr():
                self._progress.stop()

    def _print(self, line: str) -> None:
        assert self._progress is not None
        with optional_stderr():
            self._progress.console.print(line, markup=False)


def _rate(event: StepDone | EpochDone) -> str:
    """Return the records trained on per second of training."""
    return count_text(event.records / max(event.train_seconds, 1e-9))


def metrics_text(metrics: Mapping[str, Figure]) -> str:
    """Return the scalar metrics on one line: `loss 0.1234  accuracy 0.9800`."""
    return "  ".join(
        f"{name} {metric_text(value)}"
        for name, value in metrics.items()
        if not isinstance(value, list)
    )
