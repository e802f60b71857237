"""Panels of learning curves: which curves share a panel, and the axis of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.report.figures import metric_text

Report = Mapping[str, Any]
Values = Sequence[float | None]

LEARNING_RATE = "learning rate"
# Figures are one if they differ by no more than this, relatively: a loss is summed in another order
# than its metric.
_SAME = 1e-6
# Ratio of the greatest to the least value from which an axis is logarithmic.
_LOG_RATIO = 100.0
_PARTS = ("train", "eval")


@dataclass(frozen=True)
class Axis:
    """Axis of values from `low` to `high`; both are positive if it is logarithmic."""

    low: float
    high: float
    is_log: bool = False

    def position(self, value: float) -> float:
        """Return the position of a value: 0 at `low`, 1 at `high`."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        return (self._scaled(value) - low) / (high - low)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.is_log else value

    def ticks(self, limit: int) -> list[float]:
        """Return about `limit` round values from `low` to `high`."""
        return log_ticks(self.low, self.high, limit) if self.is_log else self._linear(limit)

    def _linear(self, limit: int) -> list[float]:
        return ticks(self.low, self.high, limit)


@dataclass(frozen=True)
class Curve:
    """Values of a figure after each epoch. run: number of the run; part: train or eval.

    Of a series they are the values of steps, and the parts history and forecast.
    """

    run: int
    part: str
    epochs: Sequence[int]
    values: Values

    def points(self) -> list[list[tuple[int, float]]]:
        """Return (epoch, value) in series of consecutive finite values."""
        series: list[list[tuple[int, float]]] = [[]]
        for epoch, value in zip(self.epochs, self.values, strict=True):
            if value is None:
                series.append([])
            else:
                series[-1].append((epoch, value))
        return [each for each in series if each]

    @property
    def is_second(self) -> bool:
        """Whether it is of the second part, which is dashed."""
        return self.part in ("eval", "forecast")

    @property
    def last(self) -> float:
        """Last finite value."""
        return self.points()[-1][-1][1]


@dataclass(frozen=True)
class CurvePanel:
    """Curves of one figure, or of several figures with the same values, of all runs.

    across: what the horizontal axis counts.
    """

    title: str
    curves: Sequence[Curve]
    axis: Axis
    first: int
    last: int
    across: str = "epoch"

    def text(self, value: float) -> str:
        """Return a value of this panel as text."""
        return f"{value:.4g}" if self.title == LEARNING_RATE else metric_text(value)


def curve_panels(report: Report, log: bool | None = None) -> list[CurvePanel]:
    """Return the panels of the figures with at least one finite value.

    The learning rate has one if it changes, or differs between runs. log: whether axes of positive
    values are logarithmic; by default those are whose values span more than two decades.
    """
    runs = report["runs"]
    recorded = dict.fromkeys(metric["name"] for run in runs for metric in run["metrics"])
    names = sorted(recorded, key=lambda name: name != "loss")
    curves = [(name, _curves(runs, name)) for name in names]
    merged: list[tuple[str, list[Curve]]] = []
    for name, found in curves:
        same = next((at for at, (_, other) in enumerate(merged) if _are_same(found, other)), None)
        if same is None:
            merged.append((name, found))
        else:
            merged[same] = (f"{merged[same][0]}, {name}", merged[same][1])
    if len(rates(report)) > 1:
        merged.append((LEARNING_RATE, _rate_curves(runs)))
    epochs = [epoch for run in runs for epoch in run["epochs"]]
    return [
        CurvePanel(name, found, _axis(found, log), min(epochs), max(epochs))
        for name, found in merged
        if found
    ]


def rates(report: Report) -> set[float]:
    """Return the learning rates of all epochs of all runs."""
    return {rate for run in report["runs"] for rate in run["learning_rate"] if rate is not None}


def run_names(report: Report) -> list[str]:
    """Return the names of the runs; paths if names are the same."""
    names = [run["name"] for run in report["runs"]]
    if len(set(names)) == len(names):
        return names
    return [run["run_dir"] for run in report["runs"]]


def _curves(runs: Sequence[Report], name: str) -> list[Curve]:
    return [
        Curve(number, part, run["epochs"], metric[part])
        for number, run in enumerate(runs)
        for metric in run["metrics"]
        for part in _PARTS
        if metric["name"] == name and any(value is not None for value in metric[part])
    ]


def _rate_curves(runs: Sequence[Report]) -> list[Curve]:
    return [
        Curve(number, "train", run["epochs"], run["learning_rate"])
        for number, run in enumerate(runs)
        if any(rate is not None for rate in run["learning_rate"])
    ]


def _are_same(curves: Sequence[Curve], others: Sequence[Curve]) -> bool:
    """Return whether two figures have the same values in all runs."""
    if [(each.run, each.part) for each in curves] != [(each.run, each.part) for each in others]:
        return False
    return all(
        value == other
        or (value is not None and other is not None and math.isclose(value, other, rel_tol=_SAME))
        for curve, another in zip(curves, others, strict=True)
        for value, other in zip(curve.values, another.values, strict=True)
    )


def _axis(curves: Sequence[Curve], log: bool | None) -> Axis:
    values = [value for curve in curves for value in curve.values if value is not None]
    low, high = min(values), max(values)
    if low > 0 and (log or (log is None and high / low > _LOG_RATIO)):
        return Axis(*((low, high) if low < high else (low / 2, high * 2)), is_log=True)
    return Axis(*bounds(values))


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest value, widened if they are equal."""
    low, high = min(values), max(values)
    if low < high:
        return low, high
    room = abs(low) / 10 or 1.0
    return low - room, high + room


def ticks(low: float, high: float, limit: int) -> list[float]:
    """Return round numbers from `low` to `high`: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / limit
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float, limit: int) -> list[float]:
    """Return powers of ten from `low` to `high`, or 1, 2 and 5 times powers if these are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, -(-(last - first) // limit))
    for factors in ((1,), (1, 2, 5)):
        found = [
            factor * 10.0**power for power in range(first, last + 1, every) for factor in factors
        ]
        inside = [value for value in found if low * 0.999 <= value <= high * 1.001]
        if len(inside) > 2 or every > 1:
            return inside
    return inside or ticks(low, high, limit)
