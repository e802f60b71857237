"""Events of a training for Python callbacks, and progress as text."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from mxrun.base.errors import Diagnostic, UserError
from mxrun.report.figures import metrics_text
from mxrun.report.printable import printable
from mxrun.report.progress import start_lines
from mxrun.train.interruption import Interruption
from mxrun.train.metric_kind import Figure
from mxrun.train.observer import EpochDone, Note, RunStarted, StepDone, StepLogged

Event: TypeAlias = RunStarted | StepDone | EpochDone | Note
Callback: TypeAlias = Callable[[Event], object]


def callback_functions(callbacks: Any) -> tuple[Callback, ...]:
    """Return one callback or several as a tuple. Raises UserError for what cannot be called."""
    if callable(callbacks):
        return (callbacks,)
    functions = tuple(callbacks) if isinstance(callbacks, Iterable) else (callbacks,)
    for function in functions:
        if not callable(function):
            expected, got = "a function, or a list of functions", repr(function)
            raise UserError(Diagnostic("callbacks cannot be called", None, expected, got))
    return functions


class StopTraining(Exception):
    """Raised by a callback to end the training: the run is saved, and `resume=True` continues it.

    Its text becomes the reason in `RunResult.why`.
    """


class CallbackObserver:
    """Observer that hands the events of a training to callbacks, in order.

    notes: the texts of all notes so far.
    """

    def __init__(self, callbacks: Iterable[Callback], interruption: Interruption) -> None:
        self._callbacks, self._interruption = tuple(callbacks), interruption
        self.notes: list[str] = []

    def run_started(self, event: RunStarted) -> None:
        """Handle the start of the run."""
        self._emit(event)

    def note(self, text: str) -> None:
        """Handle a note to the user."""
        self.notes.append(text)
        self._emit(Note(text))

    def step_done(self, event: StepDone) -> None:
        """Handle a step; at most ten times a second."""
        self._emit(event)

    def step_logged(self, event: StepLogged) -> None:
        """Do nothing: callbacks receive steps as they are shown, and metrics.jsonl has the rest."""

    def epoch_done(self, event: EpochDone) -> None:
        """Handle an epoch's evaluation."""
        self._emit(event)

    def _emit(self, event: Event) -> None:
        for callback in self._callbacks:
            try:
                callback(event)
            except StopTraining as stop:
                self._interruption.request(str(stop) or "a callback stopped the training")


class TextProgress:
    """Callback that writes a line for each epoch to standard error.

    On a terminal and in a notebook, where a line can be replaced, the current step is below.
    """

    def __init__(self) -> None:
        self._replaces = _can_replace_lines()
        self._run: RunStarted | None = None
        self._width = 0

    def __call__(self, event: Event) -> None:
        """Write an event."""
        if isinstance(event, Note):
            self._write(f"mxrun: {event.text}\n")
        elif isinstance(event, RunStarted):
            self._run = event
            for line in start_lines(event):
                self._write(f"{line}\n")
        elif isinstance(event, StepDone):
            if not self._replaces:
                return
            line = f"{self._epoch(event.epoch)}  step {event.step}  {self._text(event.metrics)}"
            # A line that the terminal wraps could not be replaced.
            self._write(line[: shutil.get_terminal_size().columns - 1])
        else:
            evaluation = f"  eval {self._text(event.evaluation)}" if event.evaluation else ""
            self._write(f"{self._epoch(event.epoch)}  {self._text(event.train)}{evaluation}\n")

    def close(self) -> None:
        """Remove the line of the current step."""
        self._write("")

    def _epoch(self, epoch: int) -> str:
        epochs = epoch if self._run is None else self._run.epochs
        return f"epoch {epoch:>{len(str(epochs))}}/{epochs}"

    def _text(self, metrics: Mapping[str, Figure]) -> str:
        return metrics_text(metrics, () if self._run is None else self._run.same_as_loss)

    def _write(self, text: str) -> None:
        """Replace the unfinished line by `text`."""
        blank = f"\r{' ' * self._width}\r" if self._width else ""
        # A closed terminal does not end the training.
        with suppress(OSError):
            sys.stderr.write(blank + printable(text))
            sys.stderr.flush()
        self._width = 0 if text.endswith("\n") else len(text)


def shows_progress(requested: bool | None) -> bool:
    """Return whether to show progress: as requested, by default on a terminal or in a notebook."""
    if requested is not None:
        return requested
    return _can_replace_lines()


def _can_replace_lines() -> bool:
    """Return whether standard error is a terminal or a notebook's cell."""
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")
