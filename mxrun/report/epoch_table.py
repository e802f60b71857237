"""Columns of the table that grows by a line per epoch while a run trains on a terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mxrun.report.figures import count_text, duration_text, metric_text
from mxrun.train.metric_kind import Figure
from mxrun.train.observer import EpochDone, RunStarted, StepLogged

_GAP = "  "
# Width of 1.24e-05 and of 1.23 k.
_FIGURE_WIDTH, _RATE_WIDTH, _TIME_WIDTH = 8, 9, 7
_LOSS = "loss"


class EpochTable:
    """Lines of epochs with aligned columns, as many columns as fit the terminal."""

    def __init__(self, run: RunStarted) -> None:
        self._run = run
        self._headings: list[str] = []
        self._metrics: list[str] = []
        self._keeps_step = False

    def epoch_lines(self, event: EpochDone, width: int) -> list[str]:
        """Return the line of an epoch, after the headings if the columns have changed."""
        rate = event.records / max(event.train_seconds, 1e-9)
        values = {
            "epoch": f"{event.epoch}/{self._run.epochs}",
            "step": str(event.step),
            **_figures("train", event.train, self._run.same_as_loss),
            **_figures("eval", event.evaluation, self._run.same_as_loss),
            "samples/s": count_text(rate),
            "time": _time(event.seconds),
        }
        self._metrics = [name for name in values if name.startswith(("train ", "eval "))]
        return self._lines(values, width)

    def step_lines(self, event: StepLogged, width: int) -> list[str]:
        """Return the line of a step that is recorded, whose column is then always shown."""
        self._keeps_step = True
        values = {
            "epoch": f"{event.epoch}/{self._run.epochs}",
            "step": str(event.step),
            **_figures("train", event.train, self._run.same_as_loss),
        }
        for name in values:
            if name.startswith("train ") and name not in self._metrics:
                self._metrics.append(name)
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
        least = [*least, f"train {_LOSS}"] if self._keeps_step else ["step", *least]
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


def _figures(part: str, figures: Mapping[str, Figure], without: Collection[str]) -> dict[str, str]:
    return {
        f"{part} {name}": metric_text(value)
        for name, value in figures.items()
        if not isinstance(value, list) and name not in without
    }
