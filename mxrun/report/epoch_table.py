"""Columns of the table that grows by a line per epoch while a run trains on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxrun.report.figures import count_text, duration_text, metric_text
from mxrun.train.metric_kind import Figure
from mxrun.train.observer import EpochDone, RunStarted, StepLogged

_GAP = "  "
# Width of 1.24e-05 and of 1.23 k.
_FIGURE_WIDTH, _RATE_WIDTH, _TIME_WIDTH = 8, 9, 7
_LOSS = "loss"


class EpochTable:
    """Lines of epochs with aligned columns, as many columns as fit the terminal.

    The columns depend on the run and on the width alone, so that lines of steps before the first
    evaluation have those of epochs.
    """

    def __init__(self, run: RunStarted) -> None:
        self._run = run
        self._headings: list[str] = []
        self._metrics = [
            f"{part} {name}"
            for part, names in (("train", run.train_numbers), ("eval", run.eval_numbers))
            for name in names
            if name not in run.same_as_loss
        ]

    def epoch_lines(self, event: EpochDone, width: int) -> list[str]:
        """Return the line of an epoch, after the headings if the width has changed."""
        rate = event.records / max(event.train_seconds, 1e-9)
        values = {
            "epoch": f"{event.epoch}/{self._run.epochs}",
            "step": str(event.step),
            **_figures("train", event.train),
            **_figures("eval", event.evaluation),
            "samples/s": count_text(rate),
            "time": _time(event.seconds),
        }
        return self._lines(values, width)

    def step_lines(self, event: StepLogged, width: int) -> list[str]:
        """Return the line of a step that is recorded, after the headings as for an epoch."""
        values = {
            "epoch": f"{event.epoch}/{self._run.epochs}",
            "step": str(event.step),
            **_figures("train", event.train),
        }
        return self._lines(values, width)

    def _lines(self, values: Mapping[str, str], width: int) -> list[str]:
        headings = self._columns(width)
        cells = [f"{values.get(name, ''):>{self._width(name)}}" for name in headings]
        lines = [_GAP.join(cells).rstrip()]
        if headings != self._headings:
            self._headings = headings
            lines.insert(0, _GAP.join(f"{name:>{self._width(name)}}" for name in headings))
        return lines

    def _columns(self, width: int) -> list[str]:
        """Return the columns that fit, without the least important ones."""
        columns = ["epoch", "step", *self._metrics, "samples/s", "time"]
        later = [name for name in reversed(self._metrics) if not name.endswith(f" {_LOSS}")]
        secondary = [name for name in later if name.startswith("train ")]
        least = ["time", "samples/s", *secondary, *(x for x in later if x not in secondary)]
        least = [*least, f"train {_LOSS}"] if self._run.logs_steps else ["step", *least]
        for name in least:
            if self._total(columns) <= width:
                break
            if name in columns and len(columns) > 1:
                columns.remove(name)
        while self._total(columns) > width and len(columns) > 1:
            columns.pop()
        return columns

    def _total(self, columns: Sequence[str]) -> int:
        return sum(self._width(name) + len(_GAP) for name in columns) - len(_GAP)

    def _width(self, name: str) -> int:
        run = self._run
        widths = {
            "epoch": 2 * len(str(run.epochs)) + 1,
            "step": len(str(run.total_steps)),
            "samples/s": _RATE_WIDTH,
            "time": _TIME_WIDTH,
        }
        return max(len(name), widths.get(name, _FIGURE_WIDTH))


def _time(seconds: float) -> str:
    return duration_text(seconds) if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


def _figures(part: str, figures: Mapping[str, Figure]) -> dict[str, str]:
    return {
        f"{part} {name}": metric_text(value)
        for name, value in figures.items()
        if not isinstance(value, list)
    }
