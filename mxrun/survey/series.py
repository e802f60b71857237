"""Survey of a series: the columns of time, names and targets, and windows that suit the data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import folded, listed
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.series.clock import Clock
from mxrun.io.series.dataset import (
    TRAIN,
    VALIDATION,
    SeriesOptions,
    read_steps,
    series_dataset,
)
from mxrun.io.series.steps import DoubleStamps, SeriesSteps
from mxrun.io.tables.columns import TableOutline
from mxrun.io.tables.readers import TableColumn
from mxrun.survey.cell_forms import written_cells
from mxrun.survey.columns import choose_form, why_useless
from mxrun.survey.survey import DataSurvey, SurveyedPart
from mxrun.survey.table_labels import named_columns
from mxrun.survey.tables import file_options

SERIES = "series"

_HOUR, _DAY = 3_600_000, 86_400_000
# Names of columns of numbers that may be time stamps, folded.
_TIMES = frozenset(
    ("time", "t", "step", "year", "timestamp", "date", "datetime", "period", "ds", "epoch")
)
_TARGETS = frozenset(("target", "y", "value", "values", "label"))
# A table is taken for a series from so many steps on, if it has at least this share of them.
_MIN_STEPS, _MIN_PRESENT = 40, 0.8
# It resembles one if at most this share of its time stamps comes twice, as an hour in autumn.
_MOST_DOUBLE = 0.05
# Columns that may name the series, of those with few values, and steps of the longest season.
_MAX_TRIED, _MAX_SEASON = 4, 288
_WEEK, _YEAR = 7, 12


@dataclass(frozen=True)
class _Sizes:
    """Steps of windows. calendar: periods that the data have."""

    window: int
    horizon: int
    season: int | None
    calendar: tuple[str, ...]


@dataclass
class _Choice:
    """Columns of a series while they are chosen; columns: their treatment, by key."""

    outline: TableOutline
    time: TableColumn | None
    columns: dict[str, object] = field(default_factory=dict)
    series: TableColumn | None = None
    targets: Sequence[TableColumn] = ()
    past: list[TableColumn] = field(default_factory=list)
    known: list[TableColumn] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def key(self, column: TableColumn) -> str | int:
        """Return how a config names a column."""
        return column.name if self.outline.by_name else column.number

    def options(self) -> dict[str, object]:
        """Return the keys of the columns."""
        found: dict[str, object] = {}
        for name, column in (("time", self.time), ("series", self.series)):
            if column is not None:
                found[name] = self.key(column)
        targets = [self.key(each) for each in self.targets]
        found["target"] = targets if len(targets) > 1 else targets[0]
        for name, columns in (("past", self.past), ("known", self.known)):
            if columns:
                found[name] = [self.key(each) for each in columns]
        treated = self.columns | dict(self._own_cells())
        return {**found, **({"columns": treated} if treated else {})}

    def _own_cells(self) -> Iterator[tuple[str, object]]:
        """Yield the treatment of columns that are not written as the table's others."""
        for column in (*self.targets, *self.past, *self.known):
            own = self.outline.own_cells(column)
            if own is not None:
                yield self.outline.key(column), {"number": {"cells": written_cells(own)}}


def survey_series(
    source: str,
    read: tuple[TableOutline, tuple[str, ...]],
    label: str | None,
    given: SeriesOptions,
    required: bool,
) -> DataSurvey | str:
    """Look at a table as a series; returns else why it is none, empty if it does not look like one.

    read: the table's outline, and what was decided of its cells. label: the columns to predict.
    given: the options that are known. required: whether it is one for certain. Raises UserError for
    a table that cannot be read as a series, if it is required.
    """
    outline, decided = read
    try:
        chosen = _chosen(source, outline, label, given, required)
        return chosen if isinstance(chosen, str) else _survey(source, *chosen, decided, given)
    except UserError:
        if required:
            raise
        return ""


def _chosen(
    source: str, outline: TableOutline, label: str | None, given: SeriesOptions, required: bool
) -> tuple[_Choice, SeriesSteps] | str:
    """Return the columns and the steps; else why it is no series, if it looks like one."""
    errors: list[UserError] = []
    why = ""
    for choice in _times(outline, given):
        _choose_targets(choice, label, given, source)
        for series in _names_of_series(choice, given) if choice.targets else ():
            choice.series = series
            try:
                steps = _read(source, choice, given)
            except UserError as error:
                errors.append(error)
                is_rare = isinstance(error, DoubleStamps) and error.share <= _MOST_DOUBLE
                if is_rare and outline.rows >= _MIN_STEPS and not _has_class(choice):
                    why = error.diagnostics[0].problem
                continue
            is_series = _is_complete(steps) and not _has_class(choice)
            if required or (is_series and not _is_sorted(steps)):
                return choice, steps
            if is_series:
                why = f"the rows are not in order of {choice.time}; `--as series` sorts them"
    if not required:
        return f"the table is read as records, although it resembles a series: {why}" * bool(why)
    if errors:
        raise errors[0]
    choice = _Choice(outline, None)
    _choose_targets(choice, label, given, source)
    if not choice.targets:
        problem = f"{source}: no column of numbers to predict"
        raise UserError(Diagnostic(problem, hint="name it: --label COLUMN"))
    return choice, _read(source, choice, given)


def _times(outline: TableOutline, given: SeriesOptions) -> Iterator[_Choice]:
    """Yield a choice for each column that may hold time stamps."""
    if given.time is not None:
        (column,) = named_columns(outline, [str(given.time)], "time")
        yield _Choice(outline, column, _form_of_time(column, outline) or {})
        return
    for column in outline.columns:
        form = None if column.gaps else _form_of_time(column, outline)
        if form is not None:
            yield _Choice(outline, column, form)


def _form_of_time(column: TableColumn, outline: TableOutline) -> dict[str, object] | None:
    """Return the treatment of a column of time stamps, by its key; None if it has none."""
    key = outline.key(column)
    if column.words or column.kinds:
        form = choose_form(column, outline).form
        if form == "date":
            return {}
        return {key: form} if isinstance(form, Mapping) and "date" in form else None
    form = choose_form(column, outline).form
    if isinstance(form, Mapping) and "date" in form:
        return {key: form}
    if folded(column.name) not in _TIMES or len(column.numbers) < 2:
        return None
    distances = np.diff(column.numbers)
    is_even = distances.min() > 0 and np.ptp(distances) <= 1e-9 * abs(distances).max()
    return {key: "number"} if is_even else None


def _choose_targets(choice: _Choice, label: str | None, given: SeriesOptions, source: str) -> None:
    """Choose the columns to predict: those that are named, else the last one of numbers."""
    numbers = [
        each
        for each in choice.outline.columns
        if each is not choice.time and not (each.words or why_useless(each, choice.outline)[0])
    ]
    if label is not None:
        is_one = label in [each.name for each in choice.outline.columns]
        choice.targets = named_columns(
            choice.outline, [label] if is_one else label.split(","), source
        )
    elif "target" in given.model_fields_set:
        choice.targets = named_columns(choice.outline, [*map(str, given.targets)], source)
    else:
        named = [each for each in numbers if folded(each.name) in _TARGETS]
        choice.targets = (named or numbers)[-1:]


def _names_of_series(choice: _Choice, given: SeriesOptions) -> Iterator[TableColumn | None]:
    """Yield none, then the columns that may name the series of a row."""
    if given.series is not None:
        yield from named_columns(choice.outline, [str(given.series)], "series")
        return
    yield None
    others = [
        each
        for each in choice.outline.columns
        if each is not choice.time and each not in choice.targets and not each.gaps
    ]
    drafts = [choose_form(each, choice.outline) for each in others]
    found = [each for each in drafts if each.form == "category" or each.may_be_category]
    yield from (each.column for each in found[:_MAX_TRIED])


def _read(source: str, choice: _Choice, given: SeriesOptions) -> SeriesSteps:
    """Return the steps of the chosen columns. Raises UserError if they are none."""
    return read_steps(_all_options(source, choice, given, {}))


def _all_options(
    source: str, choice: _Choice, given: SeriesOptions, more: Mapping[str, object]
) -> SeriesOptions:
    options = {**file_options(source, choice.outline), **choice.options(), **more}
    options |= given.model_dump(exclude_unset=True, exclude={"path"}, mode="json")
    return SeriesOptions.model_validate_json(json.dumps(options))


def _is_complete(steps: SeriesSteps) -> bool:
    """Return whether most steps of a long series are there."""
    lengths = np.diff(steps.bounds())
    span = steps.positions[steps.bounds()[1:] - 1] - steps.positions[steps.bounds()[:-1]] + 1
    return bool(lengths.max() >= _MIN_STEPS and lengths.sum() >= _MIN_PRESENT * span.sum())


def _is_sorted(steps: SeriesSteps) -> bool:
    """Return whether the rows had to be sorted."""
    return any("not in order" in note for note in steps.notes)


def _has_class(choice: _Choice) -> bool:
    """Return whether the last column holds words that are rather the label of a table."""
    last = choice.outline.columns[-1]
    is_free = last not in (choice.time, choice.series, *choice.targets)
    return is_free and bool(last.words) and choose_form(last, choice.outline).form == "category"


def _survey(
    source: str,
    choice: _Choice,
    steps: SeriesSteps,
    decided: Sequence[str],
    given: SeriesOptions,
) -> DataSurvey:
    """Return the survey of a series whose columns are chosen."""
    _choose_others(choice, given)
    longest = int(np.diff(steps.bounds()).max())
    sizes = _sizes(steps.clock, longest)
    needed = sizes.window + sizes.horizon
    more: dict[str, object] = {"window": sizes.window, "horizon": sizes.horizon}
    if sizes.season and sizes.season <= (given.window or sizes.window):
        more["season"] = sizes.season
    more |= {"calendar": list(sizes.calendar)} if sizes.calendar else {}
    more |= {"look_back": True} if 0.1 * longest < 2 * needed else {}
    options = _all_options(source, choice, given, more)
    try:
        windows = _windows(options)
    except UserError:
        if "gaps" in given.model_fields_set:
            raise
        options = _all_options(source, choice, given, {**more, "gaps": "previous"})
        windows = _windows(options)
    notes = [each.notes for each in windows.values()]
    train = windows[TRAIN].series
    assert train is not None
    encoding = train.learn()
    fields = train.fields(encoding, {}, source)
    written = options.model_dump(exclude_unset=True, mode="json")
    return DataSurvey(
        SERIES,
        written,
        SurveyedPart(len(windows[TRAIN])),
        SurveyedPart(len(windows[VALIDATION]), VALIDATION),
        fields["data"].spec.shape,
        label_shape=fields["label"].spec.shape,
        naive_shape=fields["naive"].spec.shape,
        future_shape=fields["future"].spec.shape if "future" in fields else (),
        comments=_comments(steps.clock, sizes),
        facts=tuple(_facts(choice, steps)),
        warnings=tuple(dict.fromkeys(chain(choice.outline.notes, *notes))),
        left_out=tuple(choice.left_out),
        doubts=(*decided, *_doubts(choice, steps, options)),
    )


def _windows(options: SeriesOptions) -> dict[str, Dataset]:
    return {part: series_dataset(SERIES, options, part, {}) for part in (TRAIN, VALIDATION)}


def _choose_others(choice: _Choice, given: SeriesOptions) -> None:
    """Choose further columns to read: numbers and categories, known ones if the targets end
    earlier. Those that are given stay what they are.
    """
    outline = choice.outline
    named = named_columns(outline, [*map(str, (*given.past, *given.known))], "past, known")
    taken = [choice.time, choice.series, *choice.targets, *named]
    ended = [each.numbers for each in choice.targets if np.isnan(each.numbers[-1])]
    for column in outline.columns:
        if column in taken:
            continue
        draft = choose_form(column, outline)
        is_read = draft.form == "category" or not column.words
        if draft.is_ignored or not is_read:
            why = draft.comment if draft.is_ignored else "neither numbers nor few words"
            choice.left_out.append(f"{column}: {why}; `past: [{column.label}]` reads it")
            continue
        is_known = bool(ended) and not column.words and not np.isnan(column.numbers[-1])
        (choice.known if is_known else choice.past).append(column)


def _sizes(clock: Clock, steps: int) -> _Sizes:
    """Return windows that suit the distance of steps and their number."""
    season, window, horizon, calendar = _usual_sizes(clock)
    most = max(steps // 5, 2)
    if season is not None and 2 * season > most:
        season = None
    window = max(min(window, most * 2 // 3), season or 1)
    horizon = max(1, min(horizon, most - window, window))
    return _Sizes(window, horizon, season, calendar)


def _usual_sizes(clock: Clock) -> tuple[int | None, int, int, tuple[str, ...]]:
    """Return season, window, horizon and calendar of many steps of a clock."""
    if clock.unit == "months" and _YEAR % clock.step == 0:
        year = int(_YEAR // clock.step)
        return (year if year > 1 else None), max(3 * year, 8), max(year, 4), ("year",)
    if clock.unit != "dates":
        return None, 32, 8, ()
    if clock.step < _DAY and _DAY % clock.step == 0:
        day = int(_DAY // clock.step)
        if day > _MAX_SEASON:
            return None, 120, 30, ("day",)
        return day, min(7 * day, 2 * _MAX_SEASON), day, ("day", "week")
    if clock.step == _DAY:
        return _WEEK, 4 * _WEEK, _WEEK, ("week", "year")
    return None, 26, 8, ("year",)


def _comments(clock: Clock, sizes: _Sizes) -> dict[str, str]:
    reaches = f"of {clock}" if clock.unit != "rows" else ""
    return {
        "target": "the column to predict; `mxrun init --label COLUMN` names another",
        "past": "read up to the forecast; `known: [...]` if their future values are known",
        "window": f"steps {reaches} that the network reads".replace("  ", " "),
        "horizon": "steps that it predicts at once",
        "season": "steps after which values come again: the forecast to beat",
        "calendar": "sine and cosine of the place in these periods",
        "look_back": "windows of evaluation may begin in the part before",
    }


def _facts(choice: _Choice, steps: SeriesSteps) -> Iterator[str]:
    outline, clock = choice.outline, steps.clock
    header = "with a header" if outline.has_header else "without a header"
    yield f"{outline.rows:,} rows of {len(outline.columns)} columns, {header}"
    if choice.time is None:
        yield "a series: each row is the next step"
    else:
        first, last = (
            clock.text(int(each)) for each in (steps.positions.min(), steps.positions.max())
        )
        yield f"a series: a step of {clock} in {choice.time}, from {first} to {last}"
    if choice.series is not None:
        lengths = np.diff(steps.bounds())
        named = [f"{name} {count:,}" for name, count in zip(steps.names, lengths, strict=True)]
        yield f"{len(steps.names)} series, named in {choice.series}: {listed(named, 5)}"
    yield f"to predict: {listed([*map(str, choice.targets)])}"


def _doubts(choice: _Choice, steps: SeriesSteps, options: SeriesOptions) -> Iterator[str]:
    """Yield what may be doubted, with the key that changes it."""
    if choice.time is not None:
        why = f"{choice.time} is in order, each step {steps.clock} after the one before"
        yield f"the table is read as a series, as {why}; `--as table` reads its rows as records"
    if options.gaps == "previous":
        yield (
            "steps without a row or a number have the one before (gaps: previous); `gaps: skip` "
            "leaves out their windows, which are nearly all"
        )
    if len(choice.targets) == 1 and (choice.past or choice.known):
        yield (
            f"{choice.targets[0]} is predicted; `--label COLUMN`, or several: a,b, names another"
        )
    if choice.past:
        named = listed([str(each.label) for each in choice.past])
        yield (
            f"{listed([*map(str, choice.past)])}: read up to the forecast; `known=[{named}]` "
            "behind the file says that future values are known"
        )
    if choice.known:
        yield (
            f"{listed([*map(str, choice.known)])}: known of the future, as rows after the last "
            "target have it; `past` in place of `known` reads it up to the forecast"
        )
