"""Steps of one or several series: rows of a table by series and time, and what they lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.io.series.clock import Clock, Period, calendar, find_clock
from mxrun.io.tables.features import FeatureColumn, FeatureTable
from mxrun.io.tables.forms import DateForm, NumberForm

_AS_ROWS = "`steps: rows` takes each row as the next step, whatever its time stamp"
_CALENDAR = NumberForm(scale="none", missing="error")


class DoubleStamps(UserError):
    """Time stamps that come twice in a series. share: how many of all."""

    def __init__(self, found: Diagnostic, share: float) -> None:
        super().__init__(found)
        self.share = share


@dataclass(frozen=True, eq=False)
class Roles:
    """Columns of a table by what they are in a series: positions among the columns read.

    time, series: None if there is none. targets, past, known: in the order of a step's numbers.
    """

    time: int | None
    series: int | None
    targets: tuple[int, ...]
    past: tuple[int, ...] = ()
    known: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class SeriesSteps:
    """Steps in the order of series and time.

    features: the columns: targets, past ones, known ones. targets, known: how many these are.
    positions: number of each step on the clock's grid, int64 [steps]; codes: its series, an index
    into `names`, int32 [steps]. seen: whether no number of a step is missing; ahead: whether
    neither a target nor a known number is, bool [steps]. notes: for the user. where: returns the
    place of a step in its file.
    """

    features: FeatureTable
    targets: int
    known: int
    positions: NDArray[np.int64]
    codes: NDArray[np.int32]
    names: tuple[str, ...]
    clock: Clock
    where: Callable[[int], str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def series(self) -> NDArray[np.str_]:
        """Name of the series of each step."""
        return np.array(self.names)[self.codes]

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Whether no number of a step is missing, bool [steps]."""
        return self.are_there(range(len(self.features.columns)))

    @property
    def ahead(self) -> NDArray[np.bool_]:
        """Whether neither a target nor a known number is missing, bool [steps]."""
        count = len(self.features.columns)
        return self.are_there([*range(self.targets), *range(count - self.known, count)])

    @property
    def has_targets(self) -> NDArray[np.bool_]:
        """Whether no target is missing, bool [steps]."""
        return self.are_there(range(self.targets))

    def are_there(self, columns: Sequence[int]) -> NDArray[np.bool_]:
        """Return whether no number of some columns is missing, bool [steps]."""
        found = np.ones(len(self), np.bool_)
        for at in columns:
            numbers = self.features.columns[at].numbers
            if numbers is not None:
                found &= ~np.isnan(numbers)
        return found

    def values(self, column: int) -> NDArray[np.float64]:
        """Return a target, float64 [steps]."""
        numbers = self.features.columns[column].numbers
        assert numbers is not None
        return numbers

    def bounds(self) -> NDArray[np.int64]:
        """Return where each series begins, and the end of the last, int64 [series + 1]."""
        return np.searchsorted(self.codes, np.arange(len(self.names) + 1))


def arrange(
    table: FeatureTable,
    roles: Roles,
    place: Callable[[int, int], str],
    *,
    as_rows: bool = False,
    clock: Clock | None = None,
) -> SeriesSteps:
    """Return the rows of a table as steps, ordered by series and time.

    place: returns that of a cell: row, position of its column. as_rows: whether each row is the
    next step, whatever its time stamp. clock: that of training, else it is found. Raises UserError
    for time stamps that are missing, double or not on a grid.
    """
    count = len(table)
    names: tuple[str, ...] = ("",)
    codes = np.zeros(count, np.int32)
    if roles.series is not None:
        names, codes = _series(table.columns[roles.series], roles.series, place)
    notes: list[str] = []
    stamps = None if roles.time is None else _stamps(table.columns[roles.time], roles.time, place)
    if stamps is None:
        order = np.argsort(codes, kind="stable")
    else:
        order = np.lexsort((stamps, codes))
        by_series = np.argsort(codes, kind="stable")
        if (order != by_series).any():
            row = int(np.flatnonzero(order != by_series)[0])
            at = place(int(by_series[row]), roles.time or 0)
            notes.append(f"{at}: the rows are not in order of time, and were sorted")
        stamps = stamps[order]
    codes = codes[order]

    def where(step: int) -> str:
        return place(int(order[step]), roles.targets[0] if roles.time is None else roles.time)

    is_new = np.append(True, codes[1:] != codes[:-1])
    if stamps is None or as_rows:
        begins = np.flatnonzero(is_new)
        positions = np.arange(count) - np.repeat(begins, np.diff(np.append(begins, count)))
        clock = Clock(unit="rows", step=1, origin=0)
    else:
        has_dates = isinstance(table.columns[roles.time or 0].form, DateForm)
        clock = clock or find_clock(stamps, codes, has_dates)
        positions, is_even = clock.positions(stamps)
        _check(clock, positions, is_even, is_new, where)
        missing = missing_steps(positions, codes)
        notes += [f"{missing:,} steps of {clock} have no row"] * bool(missing)
    chosen = [*roles.targets, *roles.past, *roles.known]
    columns = tuple(_ordered(table.columns[at], order) for at in chosen)
    features = FeatureTable(columns, cells=table.cells)
    counts = (len(roles.targets), len(roles.known))
    about = (features, *counts, positions, codes, names, clock, where)
    return SeriesSteps(*about, tuple(notes))


def _series(
    column: FeatureColumn, at: int, place: Callable[[int, int], str]
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the names of the series, sorted, and the one of each row."""
    assert column.codes is not None
    gaps = np.flatnonzero(column.codes < 0)
    if len(gaps):
        problem = f"{place(int(gaps[0]), at)}: {column}: the name of the series is missing"
        raise UserError(Diagnostic(problem, None, "a name in each row", f"none in {len(gaps)}"))
    order = sorted(range(len(column.words)), key=lambda code: column.words[code])
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order))
    return tuple(column.words[code] for code in order), ranks[column.codes]


def _stamps(
    column: FeatureColumn, at: int, place: Callable[[int, int], str]
) -> NDArray[np.float64]:
    if column.numbers is None:
        problem = f"{column}: words are no time stamps"
        hint = f"write its form: columns: {{{column.name or column.number}: {{date: ...}}}}"
        raise UserError(Diagnostic(problem, None, "dates or numbers", hint=hint))
    gaps = np.flatnonzero(np.isnan(column.numbers))
    if len(gaps):
        problem = f"{place(int(gaps[0]), at)}: {column}: the time stamp is missing"
        raise UserError(Diagnostic(problem, None, "one in each row", f"none in {len(gaps)} rows"))
    return column.numbers


def _check(
    clock: Clock,
    positions: NDArray[np.int64],
    is_even: NDArray[np.bool_],
    is_new: NDArray[np.bool_],
    where: Callable[[int], str],
) -> None:
    """Raise UserError for time stamps that are double or not on the grid."""
    double = np.flatnonzero((positions[1:] == positions[:-1]) & ~is_new[1:] & is_even[1:]) + 1
    if len(double):
        step = int(double[0])
        problem = f"{where(step)}: a series has this time stamp twice: {where(step - 1)}"
        hint = "name the column that tells several series apart, `series: NAME`"
        if clock.has_dates:
            hint = f"{hint}; write local times with daylight saving as UTC"
        got = f"{len(double)} double ones"
        found = Diagnostic(problem, None, "one row a step and series", got, hint=hint)
        raise DoubleStamps(found, len(double) / len(positions))
    odd = np.flatnonzero(~is_even)
    if len(odd):
        problem = f"{where(int(odd[0]))}: the time stamp is irregular"
        expected = f"a multiple of {clock} after {clock.text(0)}, as most are"
        got = f"{len(odd):,} of {len(positions):,} are not"
        raise UserError(Diagnostic(problem, None, expected, got, hint=_AS_ROWS))


def missing_steps(positions: NDArray[np.int64], codes: NDArray[np.int32]) -> int:
    """Return the number of steps without a row, by the steps' positions and their series."""
    distances = np.diff(positions)[codes[1:] == codes[:-1]]
    return int(distances.sum()) - len(distances)


def _ordered(column: FeatureColumn, order: NDArray[np.int64]) -> FeatureColumn:
    numbers = None if column.numbers is None else column.numbers[order]
    codes = None if column.codes is None else column.codes[order]
    return replace(column, numbers=numbers, codes=codes)


def with_calendar(steps: SeriesSteps, periods: Sequence[Period]) -> SeriesSteps:
    """Return the steps with their place in the calendar, two known columns for each period."""
    if not periods:
        return steps
    if not steps.clock.has_dates:
        problem = f"calendar: {listed(periods)}: the steps have no dates"
        raise UserError(Diagnostic(problem, None, "a column of dates: `time: NAME`"))
    stamps = steps.clock.stamps(steps.positions)
    added = tuple(
        FeatureColumn(f"{period} {name}", 0, _CALENDAR, values)
        for period in periods
        for name, values in zip(("sin", "cos"), calendar(stamps, period), strict=True)
    )
    features = replace(steps.features, columns=(*steps.features.columns, *added))
    return replace(steps, features=features, known=steps.known + len(added))


def filled(steps: SeriesSteps) -> SeriesSteps:
    """Return the steps with a row for each missing one, and the value before in place of gaps.

    Numbers before the first value of their series stay missing, and targets after the last.
    """
    bounds = steps.bounds().tolist()
    sources = []
    for start, end in pairwise(bounds):
        own = steps.positions[start:end] - steps.positions[start]
        every = np.arange(own[-1] + 1)
        sources.append(start + np.searchsorted(own, every, side="right") - 1)
    rows = np.concatenate(sources)
    is_first = np.append(True, np.diff(rows) > 0)
    back = np.arange(len(rows)) - np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
    positions, codes = steps.positions[rows] + back, steps.codes[rows]
    begins = np.maximum.accumulate(
        np.where(np.append(True, codes[1:] != codes[:-1]), np.arange(len(rows)), 0)
    )
    columns = []
    for at, column in enumerate(steps.features.columns):
        taken = _ordered(column, rows)
        if taken.numbers is not None:
            numbers = _carried(taken.numbers, begins)
            if at < steps.targets:
                numbers[_after_last(taken.numbers, codes, len(steps.names))] = np.nan
            taken = replace(taken, numbers=numbers)
        columns.append(taken)
    if count := len(rows) - len(steps):
        note = f"{count:,} steps without a row have the values of the step before"
    else:
        note = ""
    features = replace(steps.features, columns=tuple(columns))
    return replace(
        steps,
        features=features,
        positions=positions,
        codes=codes,
        where=lambda step: steps.where(int(rows[step])),
        notes=(*steps.notes, *([note] if note else ())),
    )


def _carried(numbers: NDArray[np.float64], begins: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return numbers with the one before in place of missing ones, within each series."""
    known = np.where(np.isnan(numbers), -1, np.arange(len(numbers)))
    last = np.maximum.accumulate(known)
    return np.where(last >= begins, numbers[np.maximum(last, 0)], np.nan)


def _after_last(
    numbers: NDArray[np.float64], codes: NDArray[np.int32], count: int
) -> NDArray[np.bool_]:
    """Return which numbers are after the last known one of their series."""
    last = np.full(count, -1)
    known = np.flatnonzero(~np.isnan(numbers))
    last[codes[known]] = known
    found: NDArray[np.bool_] = np.arange(len(numbers)) > last[codes]
    return found
