"""Data sets of series: their options, the steps of a table, and windows as records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.base.params import Int32
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.split import ALL
from mxrun.io.paths import find_files
from mxrun.io.series.clock import Clock, Period
from mxrun.io.series.steps import Roles, SeriesSteps, arrange, filled, missing_steps, with_calendar
from mxrun.io.series.windows import SeriesWindows, WindowForm, window_starts
from mxrun.io.tables.cells import CellForm
from mxrun.io.tables.forms import (
    CategoryForm,
    ColumnForm,
    Columns,
    DateForm,
    NumberForm,
    or_auto,
)
from mxrun.io.tables.layout import TableForm
from mxrun.io.tables.options import Named, TableFile
from mxrun.io.tables.problems import HEADER_HINT
from mxrun.io.tables.text import parse_table, read_table

TRAIN, VALIDATION, TEST = "train", "validation", "test"
SPLITS = (TRAIN, VALIDATION, TEST, ALL)
_Size = Annotated[Int32, Option(ge=1)]
_Share = Annotated[float, Option(ge=0, lt=1)]
_Several = Annotated[tuple[Named, ...], Option(min_length=1)]
# Series that a note names.
_MAX_NAMED = 5


class SeriesOptions(CellForm, TableFile):
    """Files, the columns of a series, and its windows."""

    time: Named | None = Option(
        default=None,
        description="The column of time stamps: dates, or numbers if `columns` says so. Steps have "
        "a constant distance, the most frequent one; default: each row is the next step.",
        examples=["time"],
    )
    series: Named | None = Option(
        default=None,
        description="The column that names the series of a row, of a table that has several; "
        "default: the table is one series.",
        examples=["station"],
    )
    target: Named | _Several = Option(
        default=-1,
        description="The column of numbers to predict, by name or number from 0, or from -1, the "
        "last; or several.",
        examples=["load", ["load", "price"]],
    )
    past: tuple[Named, ...] = Option(
        default=(),
        description="Further columns that the network reads, of which the future is not known.",
        examples=[["temperature"]],
    )
    known: tuple[Named, ...] = Option(
        default=(),
        description="Further columns that are known in the future as well, such as holidays: the "
        "network also reads their values at the steps that it predicts.",
        examples=[["holiday"]],
    )
    calendar: tuple[Period, ...] = Option(
        default=(),
        description="Known columns made from dates: sine and cosine of the place in the day, week "
        "or year.",
        examples=[["day", "week"]],
    )
    columns: Columns | None = Option(
        default=None,
        description="Treatment of columns by name, number or pattern, as of a table (csv); "
        "default: targets are numbers, brought to mean 0 and deviation 1, others as they look. All "
        "is learned from the training windows alone.",
        examples=[{"time": {"date": {"format": "%d.%m.%Y %H:%M"}}, "holiday": "category"}],
        json_schema_extra=or_auto,
    )
    window: _Size | None = Option(
        default=None,
        description="Number of steps that the network reads; default: that of the network's input "
        "data.",
        examples=[168],
    )
    horizon: _Size | None = Option(
        default=None,
        description="Number of steps after them that it predicts; default: that of the network's "
        "input label.",
        examples=[24],
    )
    stride: _Size = Option(
        default=1,
        description="Steps from the beginning of a window to that of the next one.",
        examples=[24],
    )
    season: _Size | None = Option(
        default=None,
        description="Number of steps after which values come again, at most the window: `evaluate` "
        "compares with the forecast that repeats the last season, and MASE is in its units; "
        "default: none.",
        examples=[24],
    )
    validation: _Share = Option(
        default=0.1,
        description="The fraction of time before `test` that is the split validation.",
        examples=[0.2],
    )
    test: _Share = Option(
        default=0.1,
        description="The fraction at the end of time that is the split test.",
        examples=[0.2],
    )
    look_back: bool = Option(
        default=False,
        description="Whether windows of validation and test may begin in the part before theirs, "
        "so that only what they predict lies in their own.",
        examples=[True],
    )
    scale: Literal["series", "all"] = Option(
        default="series",
        description="series: targets are scaled by mean and deviation of their own series, so that "
        "large and small ones count alike; all: by those of all series.",
    )
    gaps: Literal["skip", "previous", "error"] = Option(
        default="skip",
        description="Steps without a row, and numbers that are missing: skip leaves out the "
        "windows that have one, previous takes the value of the step before, error refuses them.",
        examples=["previous"],
    )
    steps: Literal["time", "rows"] = Option(
        default="time",
        description="time: steps follow the time stamps. rows: each row is the next step, whatever "
        "its time stamp, as of days on which a market is open.",
        examples=["rows"],
    )

    @property
    def form(self) -> TableForm:
        """Format of the file and the treatment of columns."""
        return self.table_form(self.columns or {}, self.cells)

    @property
    def targets(self) -> tuple[Named, ...]:
        """The columns to predict."""
        return self.target if isinstance(self.target, tuple) else (self.target,)


def read_steps(
    options: SeriesOptions, clock: Clock | None = None, content: bytes | None = None
) -> SeriesSteps:
    """Read the steps of a table. clock: that of training, by default the one found.

    content: of a file, in place of the files that the options name. Raises UserError naming file,
    line and column of what cannot be read.
    """
    named = [each for each in (options.time, options.series) if each is not None]
    others = (*options.targets, *options.past, *options.known)
    usual: list[ColumnForm] = []
    usual += [DateForm(missing="error")] * (options.time is not None)
    usual += [CategoryForm()] * (options.series is not None)
    first = len(usual)
    usual += [NumberForm()] * len(options.targets)
    usual += [ColumnForm()] * (len(others) - len(options.targets))
    form = replace(
        options.form,
        data=(*named, *others),
        forms=tuple(usual),
    )
    if content is None:
        table = read_table(find_files(options.path), form)
    else:
        table = parse_table(content, "the records", form, HEADER_HINT)
    assert table.features is not None
    if len(table.columns) != len(usual):
        problem = "columns: a column of the series is ignored"
        raise UserError(Diagnostic(problem, hint="leave it out of target, past and known"))
    _check_roles(table.columns[first:], others)
    numbers = tuple(range(first, len(usual)))
    ends = len(options.targets), len(options.targets) + len(options.past)
    roles = Roles(
        0 if options.time is not None else None,
        first - 1 if options.series is not None else None,
        numbers[: ends[0]],
        numbers[ends[0] : ends[1]],
        numbers[ends[1] :],
    )

    def place(row: int, column: int) -> str:
        return table.places.where(row, table.columns[column])

    steps = arrange(table.features, roles, place, as_rows=options.steps == "rows", clock=clock)
    steps = replace(steps, notes=(*table.notes, *steps.notes))
    if options.gaps == "error":
        _refuse_gaps(steps)
    if options.gaps == "previous":
        steps = filled(steps)
    return with_calendar(steps, options.calendar)


def series_dataset(name: str, options: SeriesOptions, split: str, inputs: Inputs) -> Dataset:
    """Return the windows of a split of a table.

    Raises UserError for a table that cannot be read, and for a split without windows.
    """
    form = window_form(options, inputs)
    steps = read_steps(options)
    starts = window_starts(steps, form, _bounds(steps, options, split))
    if not len(starts):
        raise UserError(_no_windows(steps, options, form, split))
    notes = (*steps.notes, *_notes(steps, form, starts, split))
    return Dataset(name, {}, split=split, series=SeriesWindows(steps, form, starts), notes=notes)


def window_form(options: SeriesOptions, inputs: Inputs) -> WindowForm:
    """Return the sizes of windows: those given, or those of the network's inputs."""
    sizes = {"window": (options.window, "data"), "horizon": (options.horizon, "label")}
    found = {}
    for key, (given, field) in sizes.items():
        shape = inputs[field].shape if field in inputs else ()
        if given is None and not shape:
            raise UserError(Diagnostic(f"{key}: how many steps?", hint=f"write {key}: 24"))
        found[key] = given or shape[0]
    if options.season is not None and options.season > found["window"]:
        problem, expected = "the season is longer than the window", f"at most {found['window']}"
        raise UserError(Diagnostic(problem, None, expected, str(options.season)))
    return WindowForm(
        **found,
        stride=options.stride,
        season=options.season,
        look_back=options.look_back,
        scaled_by_series=options.scale == "series",
    )


def _bounds(
    steps: SeriesSteps, options: SeriesOptions, split: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first position of a split, and the one after its last, by series.

    All series are divided at the same moments; without time stamps each at its own.
    """
    if options.validation + options.test >= 1:
        problem = "validation and test leave no time for training"
        got = f"{options.validation:g} and {options.test:g}"
        raise UserError(Diagnostic(problem, None, "less than 1 together", got))
    edges = steps.bounds()
    first, end = steps.positions[edges[:-1]], steps.positions[edges[1:] - 1] + 1
    if steps.clock.unit != "rows":
        first, end = np.full_like(first, first.min()), np.full_like(end, end.max())
    length = end - first
    test = end - np.rint(options.test * length).astype(np.int64)
    validation = test - np.rint(options.validation * length).astype(np.int64)
    return {
        TRAIN: (first, validation),
        VALIDATION: (validation, test),
        TEST: (test, end),
        ALL: (first, end),
    }[split]


def _check_roles(columns: Sequence[int], named: Sequence[Named]) -> None:
    """Raise UserError for a column that is named twice: a target that is known holds the labels."""
    for at, column in enumerate(columns):
        if column in columns[:at]:
            problem = f"the column {named[at]} is named twice among target, past and known"
            hint = "leave it out of one; the window has the targets' own values"
            raise UserError(
                Diagnostic(problem, None, "each column once", str(named[at]), hint=hint)
            )


def _refuse_gaps(steps: SeriesSteps) -> None:
    """Raise UserError for the first step without a row, or with a missing number."""
    has_row = np.append(True, np.diff(steps.positions) == 1)
    has_row[steps.bounds()[:-1]] = True
    problems = ((has_row, "the step before has no row"), (steps.seen, "a number is missing"))
    for flags, problem in problems:
        wrong = np.flatnonzero(~flags)
        if len(wrong):
            where = steps.where(int(wrong[0]))
            got = f"{len(wrong):,} of {len(steps):,} steps"
            hint = "gaps: skip leaves out windows that have one, gaps: previous fills them"
            raise UserError(Diagnostic(f"{where}: {problem}", None, "no gaps", got, hint=hint))


def _no_windows(
    steps: SeriesSteps, options: SeriesOptions, form: WindowForm, split: str
) -> Diagnostic:
    """Return the diagnostic for a split in which no window fits."""
    low, high = _bounds(steps, options, split)
    edges = steps.bounds()
    at = int(np.argmax(np.diff(edges)))
    first = low[at]
    if form.look_back and split != TRAIN:
        first = max(first - form.window, steps.positions[edges[at]])
    longest = int(high[at] - first)
    problem = f"the split {split} has no window"
    expected = (
        f"{form.length:,} steps without gaps: the window {form.window}, the horizon {form.horizon}"
    )
    if longest >= form.length:
        lacking = int((~steps.seen).sum())
        got = f"gaps: {lacking:,} of {len(steps):,} rows lack a number"
        if missing := missing_steps(steps.positions, steps.codes):
            got = f"{got}, {missing:,} steps have no row"
        hint = "gaps: previous fills them; steps: rows takes rows as steps"
        return Diagnostic(problem, None, expected, got, hint=hint)
    hint = "write a smaller window"
    if split in (VALIDATION, TEST) and not form.look_back:
        hint = f"write look_back: true, a larger {split}, or a smaller window"
    return Diagnostic(problem, None, expected, f"{longest:,} steps", hint=hint)


def _notes(
    steps: SeriesSteps, form: WindowForm, starts: NDArray[np.int64], split: str
) -> list[str]:
    """Return what was left out: series without a window, and gaps."""
    found = []
    with_windows = np.unique(steps.codes[starts])
    without = sorted(set(range(len(steps.names))) - set(with_windows.tolist()))
    if without:
        lengths = np.diff(steps.bounds())
        named = [f"{steps.names[code]} ({lengths[code]:,} steps)" for code in without]
        found.append(
            f"{split}: {len(without)} of {len(steps.names)} series have no window of "
            f"{form.length} steps: {listed(named, _MAX_NAMED)}"
        )
    missing = int((~steps.has_targets).sum())
    if missing:
        found.append(f"{missing:,} of {len(steps):,} steps lack a target: no window has them")
    return found
