"""Forecasts: the steps after the last ones of a table, directly or step after step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.base.tensor import TensorSpec
from mxrun.executor.executor import Executor
from mxrun.inference.prepared_inference import PreparedInference
from mxrun.inference.records import Records, RecordSource
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.io.series.clock import Clock, calendar
from mxrun.io.series.dataset import SeriesOptions
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.io.series.steps import SeriesSteps
from mxrun.io.tables.features import MISSING, FeatureColumn, FeatureTable

# Series that a note names.
_MAX_NAMED = 5

Numbers = NDArray[np.float64]
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Predicted steps of one or several series.

    names: of the series. first: number of each series' first predicted step. values: float64
    [series, steps, targets] in the targets' units. targets: names of these columns. history: the
    values before, float64 [series, window, targets]. notes: for the user.
    """

    names: tuple[str, ...]
    clock: Clock
    first: NDArray[np.int64]
    values: Numbers
    targets: tuple[str, ...]
    history: Numbers
    notes: tuple[str, ...] = ()

    def times(self, series: int) -> list[str | float | int | None]:
        """Return the time stamps of a series' predicted steps; None without time stamps."""
        start = int(self.first[series])
        return [self.clock.text(start + step) for step in range(self.values.shape[1])]

    def to_json(self) -> Row:
        """Return the forecasts as JSON: `results` has the steps, `series` what is drawn."""
        return {
            "step": str(self.clock),
            "targets": list(self.targets),
            "series": [
                {
                    "name": name,
                    "history": self.history[at].T.tolist(),
                    "values": self.values[at].T.tolist(),
                }
                for at, name in enumerate(self.names)
            ],
            "notes": list(self.notes),
            "results": list(self.rows()),
        }

    def rows(self) -> Iterator[Row]:
        """Yield {series, step, time, TARGET: value} for each step of each series."""
        for at, name in enumerate(self.names):
            for step, time in enumerate(self.times(at)):
                row: Row = {"series": name} if len(self.names) > 1 or name else {}
                row |= {"step": step + 1}
                row |= {} if time is None else {"time": time}
                yield row | dict(zip(self.targets, self.values[at, step].tolist(), strict=True))


class Histories(RecordSource):
    """The last windows of all series, and what is known of the steps after them.

    rows: scaled numbers of the steps of each series, float32 [series, window + steps, inputs].
    `advance` writes predictions into them, and goes on by a horizon.
    """

    def __init__(
        self, rows: NDArray[np.float32], encoding: SeriesEncoding, series: NDArray[np.str_]
    ) -> None:
        self._rows, self._encoding, self._start = rows, encoding, 0
        self._series = series
        self.total = len(rows)

    def available(self, limit: int) -> int:
        """Return the number of series in the first batch."""
        return min(limit, len(self._rows))

    def staged(self, batch_size: int) -> Mapping[str, TensorSpec]:
        """Return no tensors: all is in memory."""
        return {}

    def batches(self, executor: Executor, batch_size: int) -> Iterator[Records]:
        """Yield batches of series, at the current step."""
        encoding, rows = self._encoding, self._rows
        ahead = self._start + encoding.window
        naive = ahead - encoding.naive_steps[0]
        inputs = {
            "data": rows[:, self._start : ahead],
            "last": rows[:, ahead - 1 : ahead],
            "naive": rows[:, naive : naive + encoding.naive_steps[1], : encoding.targets],
        }
        if known := encoding.known_inputs:
            inputs["future"] = rows[:, ahead : ahead + encoding.horizon, -known:]
        inputs = {name: each for name, each in inputs.items() if name in executor.plan.specs}
        slots = {name: executor.tensor(name).mirror() for name in inputs}
        if SAMPLE_WEIGHT in executor.plan.specs:
            executor.tensor(SAMPLE_WEIGHT).write(1)
        for start in range(0, len(self._rows), batch_size):
            count = min(batch_size, len(self._rows) - start)
            for name, slot in slots.items():
                rows = inputs[name][start : start + count]
                slot.array[:count] = rows.reshape(count, *slot.array.shape[1:])
                slot.store()
            series = self._series[start : start + count]
            yield Records([(name, 0) for name in series.tolist()], series=series)

    def advance(self, values: Numbers) -> None:
        """Take predictions, float64 [series, horizon, targets], as the values of the next steps."""
        encoding, ahead = self._encoding, self._start + self._encoding.window
        for at, column in enumerate(encoding.target_columns):
            flat = FeatureColumn(column.name, column.number, column.form, values[..., at].ravel())
            scaled = np.empty((values[..., at].size, 1), np.float32)
            series = np.repeat(self._series, encoding.horizon)
            column.write(FeatureTable((flat,), series=series), flat, scaled)
            self._rows[:, ahead : ahead + encoding.horizon, at] = scaled.reshape(len(values), -1)
        self._start += encoding.horizon


@dataclass(frozen=True, eq=False)
class Outlook:
    """Histories of the series of a table that can be predicted, and how many steps."""

    steps: SeriesSteps
    encoding: SeriesEncoding
    count: int
    origins: NDArray[np.int64]
    source: Histories
    notes: tuple[str, ...]

    def run(self, prepared: PreparedInference) -> Forecasts:
        """Predict one horizon after the other, each from the predictions before."""
        encoding, steps = self.encoding, self.steps
        shape = (len(self.origins), encoding.horizon, encoding.targets)
        found: list[Numbers] = []
        for _ in range(_rounds(self.count, encoding)):
            name = prepared.outputs[0].name
            batches = [batch.arrays[name] for batch in prepared.batches(self.source)]
            values = np.concatenate(batches).reshape(shape)
            found.append(values)
            self.source.advance(values)
        window = self.origins[:, None] - np.arange(encoding.window, 0, -1)
        history = np.stack([steps.values(at)[window] for at in range(encoding.targets)], axis=-1)
        return Forecasts(
            tuple(steps.names[steps.codes[origin - 1]] for origin in self.origins.tolist()),
            steps.clock,
            steps.positions[self.origins - 1] + 1,
            np.concatenate(found, axis=1)[:, : self.count],
            tuple(map(str, encoding.target_columns)),
            history,
            self.notes,
        )


def outlook(
    steps: SeriesSteps, encoding: SeriesEncoding, options: SeriesOptions, count: int | None
) -> Outlook:
    """Return the histories from which the next `count` steps are predicted, by default a horizon.

    steps: of the table, with rows after the last target where columns are known of the future.
    Raises UserError if a series is too short, has gaps, or lacks what is known.
    """
    count = encoding.horizon if count is None else count
    total = _rounds(count, encoding) * encoding.horizon
    past = [str(each) for each in encoding.columns[encoding.targets : _first_known(encoding)]]
    if past and count > encoding.horizon:
        problem = f"--steps {count}: the network reads columns that it does not predict"
        expected = f"at most the horizon, {encoding.horizon} steps"
        hint = "train with a longer horizon, or without `past`"
        raise UserError(Diagnostic(problem, None, expected, listed(past), hint=hint))
    bounds = steps.bounds().tolist()
    origins: list[int] = []
    problems: list[Diagnostic] = []
    for start, end in pairwise(bounds):
        known = np.flatnonzero(steps.has_targets[start:end])
        origin = start + int(known[-1]) + 1 if len(known) else start
        wrong = _why_not(steps, encoding, (start, origin))
        if wrong is None:
            origins.append(origin)
        else:
            problems.append(wrong)
    if not origins:
        raise UserError(problems[:1])
    blocks = [_rows(steps, encoding, options, origin, total) for origin in origins]
    rows = np.stack(blocks)
    notes = tuple(f"no forecast: {each.problem}" for each in problems)
    series = steps.series[np.array(origins) - 1]
    strange = [name for name in series.tolist() if name not in encoding.naive_errors]
    if strange:
        notes += (f"series that training did not have: {listed(strange, _MAX_NAMED)}",)
    source = Histories(rows, encoding, series)
    return Outlook(steps, encoding, count, np.array(origins), source, (*steps.notes, *notes))


def _rounds(count: int, encoding: SeriesEncoding) -> int:
    return -(-count // encoding.horizon)


def _first_known(encoding: SeriesEncoding) -> int:
    return len(encoding.columns) - encoding.known


def _why_not(
    steps: SeriesSteps, encoding: SeriesEncoding, span: tuple[int, int]
) -> Diagnostic | None:
    """Return why a series has no window before its first predicted step; None if it has one."""
    start, origin = span
    window = encoding.window
    name = steps.names[steps.codes[start]]
    series = f"series {name!r}" if name else "the series"
    expected = f"the {window} steps before the forecast, without gaps"
    if origin - start < window:
        return Diagnostic(f"{series} is too short", None, expected, f"{origin - start} steps")
    begin = origin - window
    places = steps.positions[begin:origin]
    is_whole = np.append(True, np.diff(places) == 1) & steps.seen[begin:origin]
    if is_whole.all():
        return None
    where = steps.where(begin + int(np.flatnonzero(~is_whole)[-1]))
    problem = f"{where}: {series} has a gap within its last {window} steps"
    return Diagnostic(problem, None, expected, hint="gaps=previous fills it")


def _rows(
    steps: SeriesSteps,
    encoding: SeriesEncoding,
    options: SeriesOptions,
    origin: int,
    total: int,
) -> NDArray[np.float32]:
    """Return the numbers of a window and of the steps after it, float32 [steps, inputs]."""
    begin, after = origin - encoding.window, steps.positions[origin - 1] + 1 + np.arange(total)
    end = min(int(steps.bounds()[steps.codes[origin - 1] + 1]), origin + total)
    calendars, first = 2 * len(options.calendar), _first_known(encoding)
    from_table = range(first, len(encoding.columns) - calendars)
    if from_table:
        is_there = steps.positions[origin:end] == after[: end - origin]
        is_there &= steps.are_there(from_table)[origin:end]
        known = int(np.argmin(np.append(is_there, False)))
        if known < total:
            problem = f"{steps.where(origin + known - 1)}: the future after this row is not known"
            columns = listed([str(encoding.columns[at]) for at in from_table])
            expected = f"{total} rows after the last one with a target that have {columns}"
            raise UserError(Diagnostic(problem, None, expected, f"{known} rows"))
    made: list[FeatureColumn] = []
    stamps = steps.clock.stamps(after) if calendars else np.empty(0)
    places = [each for period in options.calendar for each in calendar(stamps, period)]
    for at, column in enumerate(steps.features.columns):
        if column.numbers is None:
            assert column.codes is not None
            more = column.codes[origin:end] if at in from_table else np.full(total, MISSING)
            codes = np.concatenate([column.codes[begin:origin], more]).astype(np.int32)
            made.append(replace(column, codes=codes))
            continue
        ahead = column.numbers[origin:end] if at in from_table else np.full(total, np.nan)
        if at >= len(steps.features.columns) - calendars:
            ahead = places[at - len(steps.features.columns)]
        numbers = np.concatenate([column.numbers[begin:origin], ahead])
        made.append(replace(column, numbers=numbers))
    series = np.repeat(steps.series[origin - 1], encoding.window + total)
    table = FeatureTable(tuple(made), cells=steps.features.cells, series=series)
    rows, _ = encoding.encode(table, "the table")
    return rows
