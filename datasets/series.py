"""Time series in tables: windows of steps, to predict the steps after them."""

from __future__ import annotations

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.series.dataset import SPLITS, SeriesOptions, series_dataset


@register(
    "series",
    SeriesOptions,
    SPLITS,
    foreign={"series": "timeseries forecasting timeseriesdataset timeseriesgenerator"},
)
def read(options: SeriesOptions, split: str, inputs: Inputs) -> Dataset:
    """Windows of a table in order of time; data float32 [window, numbers of a step], future
    [horizon, known numbers], label [horizon], or [horizon, targets] of several.

    A step has the targets, then `past`, `known` and `calendar`. `train` is the beginning of time,
    `validation` and `test` are what follows, `all` everything. No window looks over the edge of its
    split. Numbers are scaled as the training windows say; forecasts are in the file's units.
    """
    return series_dataset("series", options, split, inputs)
