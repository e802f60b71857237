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
        # By forecast: sums of |error| and error^2 of each target, and the numbers summed.
        self._errors = {name: np.zeros((2, encoding.targets)) for name in (NETWORK, *seasons)}
        self._forecasts = 0

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
        self._forecasts += truth.shape[0] * truth.shape[1]
        for name, values in forecasts.items():
            differences = abs(values - truth)
            self._errors[name] += np.stack([differences, differences**2]).sum((1, 2))

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
        columns = self._encoding.target_columns
        count = max(self._forecasts, 1)
        for at, column in enumerate(columns):
            unit = self._encoding.naive_errors[at]
            for name, (absolute, squared) in self._errors.items():
                mae = float(absolute[at] / count)
                yield {
                    "target": str(column),
                    "forecast": name,
                    "mae": mae,
                    "rmse": float(np.sqrt(squared[at] / count)),
                    "mase": mae / unit if unit else float("nan"),
                }
