"""Statistics of forecasts in their own units, beside those of naive forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mxrun.base.regression import Regression
from mxrun.inference.head_statistics import HeadEvaluation, NumberStatistics, Row
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.io.series.windows import SeriesWindows
from mxrun.train.measure import LossTensors
from mxrun.train.metric_kind import MetricKind
from mxrun.train.predictions import Array

NETWORK, LAST = "network", "last value"


class ForecastStatistics(NumberStatistics):
    """Errors of forecasts, and of forecasts that repeat the last value or the last season."""

    def __init__(
        self,
        loss: LossTensors,
        task: Regression,
        rows: int,
        errors: int,
        series: SeriesWindows,
        encoding: SeriesEncoding,
    ) -> None:
        super().__init__(loss, task, rows, errors)
        self._series, self._encoding = series, encoding
        seasons = {LAST: 1}
        if encoding.season is not None:
            seasons[f"season of {encoding.season}"] = encoding.season
        self._seasons = seasons
        # By forecast: sums of |error|, error^2 and |error| / unit of each target; numbers that are
        # summed, and those that have a unit.
        self._errors = {name: np.zeros((3, encoding.targets)) for name in (NETWORK, *seasons)}
        self._counts = np.zeros((2, encoding.targets))

    def measure(self, configured: Iterable[MetricKind]) -> None:
        """Compute all metrics here: those of the run's evaluation are of scaled numbers."""
        self._compute([*configured, *self._usual()])

    def add_windows(self, names: Sequence[tuple[str, int]], numbers: Array, outputs: Array) -> None:
        """Add a batch of records: their numbers, int64, and forecasts in their own units."""
        truth = self._series.targets(numbers)
        self.add(names, truth.reshape(outputs.shape), outputs)
        forecasts = {NETWORK: outputs.reshape(truth.shape)}
        forecasts |= {
            name: self._series.naive(numbers, season) for name, season in self._seasons.items()
        }
        units = self._units(numbers)[:, None]
        has_unit = np.broadcast_to(units > 0, truth.shape)
        self._counts += [np.full(truth.shape[-1], truth[..., 0].size), has_unit.sum((0, 1))]
        for name, values in forecasts.items():
            differences = abs(values - truth)
            scaled = np.where(has_unit, differences / np.where(units > 0, units, 1), 0)
            self._errors[name] += np.stack([differences, differences**2, scaled]).sum((1, 2))

    def _units(self, numbers: Array) -> Array:
        """Return the units of MASE of records, [records, targets]; 0 where a series has none."""
        known = self._encoding.naive_errors
        names, at = np.unique(self._series.series_of(numbers), return_inverse=True)
        usual = (0.0,) * self._encoding.targets
        found: Array = np.array([known.get(name, usual) for name in names.tolist()])[at]
        return found

    def evaluation(self, known: Mapping[str, float], classes: Sequence[str]) -> HeadEvaluation:
        """Return the evaluation with the errors of all forecasts; metrics are computed here."""
        del known, classes
        forecasts = tuple(self._forecast_rows())
        mase = [row["mase"] for row in forecasts if row["forecast"] == NETWORK]
        metrics = {**self._figures({}), "mase": float(np.mean(mase))}
        names = [str(column) for column in self._encoding.target_columns]
        several = len(names) > 1
        steps = range(1, self._encoding.horizon + 1)
        labels = [f"{name} +{step}" if several else f"+{step}" for step in steps for name in names]
        rows = self._output_rows() if 1 < len(labels) <= self.max_rows else ()
        rows = tuple({**row, "output": labels[row["output"]]} for row in rows)
        errors = self._worst.rows()
        return HeadEvaluation(
            self.name, self.kind, metrics, rows=rows, errors=errors, forecasts=forecasts
        )

    def _forecast_rows(self) -> Iterable[Row]:
        """Yield the errors of each forecast and target."""
        for at, column in enumerate(self._encoding.target_columns):
            count, with_unit = self._counts[:, at]
            for name, (absolute, squared, scaled) in self._errors.items():
                yield {
                    "target": str(column),
                    "forecast": name,
                    "mae": float(absolute[at] / count),
                    "rmse": float(np.sqrt(squared[at] / count)),
                    "mase": float(scaled[at] / with_unit) if with_unit else float("nan"),
                }
