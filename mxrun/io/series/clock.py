"""Time stamps of series: their constant distance, numbers of steps, and stamps of the future."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mxrun.base.params import Parameters

_DAY = 86_400_000
_UNITS = ((7 * _DAY, "week"), (_DAY, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "s"))
# Shortest distance of dates that may be months, whose lengths differ.
_MIN_MONTH = 28 * _DAY
_YEAR = 365.2425
# 1970 began on a Thursday; weeks begin on Mondays.
_FIRST_WEEKDAY = 3
# Relative error of a number that lies on a grid.
_TOLERANCE = 1e-6

Period = Literal["day", "week", "year"]
Numbers = NDArray[np.float64]


class Clock(Parameters):
    """Grid of time stamps: step `i` is `origin` + `i` * `step`.

    Dates are days since 1970 where they are numbers, as in a table.
    """

    unit: Literal["dates", "months", "numbers", "rows"] = Field(
        description="dates: origin and step in milliseconds since 1970; months: the origin is a "
        "date, the step a number of months; numbers: of the column; rows: there are no time stamps."
    )
    step: float = Field(description="Distance of two steps.")
    origin: float = Field(description="The first time stamp.")
    month_end: bool = Field(default=False, description="Whether dates count from a month's end.")

    @property
    def has_dates(self) -> bool:
        """Whether time stamps are dates."""
        return self.unit in ("dates", "months")

    def __str__(self) -> str:
        """The distance of two steps in words."""
        if self.unit == "rows":
            return "1 row"
        if self.unit == "months":
            many, name = (self.step / 12, "year") if self.step % 12 == 0 else (self.step, "month")
        elif self.unit == "numbers":
            return f"{self.step:g}"
        else:
            many, name = next(
                ((self.step / size, name) for size, name in _UNITS if self.step % size == 0),
                (self.step, "ms"),
            )
        plural = "s" if many != 1 and len(name) > 2 else ""
        return f"{many:g} {name}{plural}"

    def positions(self, stamps: Numbers) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the numbers of steps, and which time stamps lie on the grid."""
        if self.unit == "months":
            months, rest = _months(_milliseconds(stamps), self.month_end)
            first, usual = _months(np.array([self.origin], np.int64), self.month_end)
            found, over = np.divmod(months - first[0], int(self.step))
            return found, (over == 0) & (rest == usual[0])
        if self.unit == "dates":
            found, over = np.divmod(_milliseconds(stamps) - int(self.origin), int(self.step))
            return found, over == 0
        exact = (stamps - self.origin) / self.step
        return np.rint(exact).astype(np.int64), abs(exact - np.rint(exact)) < _TOLERANCE

    def stamps(self, positions: NDArray[np.int64]) -> Numbers:
        """Return the time stamps of steps, dates in days since 1970."""
        if self.unit == "months":
            first, rest = _months(np.array([self.origin], np.int64), self.month_end)
            months = (first[0] + positions * int(self.step)).astype("datetime64[M]")
            begin = _of_months(months + int(self.month_end))
            moments = begin + (-1 if self.month_end else 1) * rest[0]
            return _days(moments)
        if self.unit == "dates":
            return _days(int(self.origin) + positions * int(self.step))
        return self.origin + positions.astype(np.float64) * self.step

    def text(self, position: int) -> str | float | int | None:
        """Return a step's time stamp: a date as ISO 8601, a number, or None without time stamps."""
        if self.unit == "rows":
            return None
        stamp = float(self.stamps(np.array([position]))[0])
        if self.unit == "numbers":
            return int(stamp) if stamp.is_integer() else stamp
        moment = round(stamp * _DAY)
        text = str(np.datetime64(moment, "ms"))
        if not moment % _DAY and (self.unit == "months" or not (self.step % _DAY)):
            return text[:10]
        if not (moment % 60_000 or self.step % 60_000):
            return text[:16]
        return text[:19] if not (moment % 1000 or self.step % 1000) else text


def find_clock(stamps: Numbers, series: NDArray[np.int32], has_dates: bool) -> Clock:
    """Return the grid whose step is the most frequent distance of consecutive steps of a series.

    stamps: ascending within each of the `series`, which stand one after the other.
    """
    is_next = series[1:] == series[:-1]
    if not has_dates:
        distances = np.diff(stamps)[is_next]
        return Clock(unit="numbers", step=_most_frequent(distances, 1.0), origin=stamps.min())
    moments = _milliseconds(stamps)
    step = _most_frequent(np.diff(moments)[is_next], _DAY)
    origin = int(moments.min())
    if step >= _MIN_MONTH:
        for month_end in (False, True):
            months, rest = _months(moments, month_end)
            if len(np.unique(rest)) == 1:
                several = int(_most_frequent(np.diff(months)[is_next], 1))
                return Clock(unit="months", step=several, origin=origin, month_end=month_end)
    return Clock(unit="dates", step=step, origin=origin)


def calendar(stamps: Numbers, period: Period) -> tuple[Numbers, Numbers]:
    """Return sine and cosine of the place of dates, days since 1970, in a day, a week or a year."""
    length = {"day": 1.0, "week": 7.0, "year": _YEAR}[period]
    angles = 2 * np.pi * (((stamps + _FIRST_WEEKDAY) % length) / length)
    return np.sin(angles), np.cos(angles)


def _most_frequent(distances: NDArray[Any], usual: float) -> float:
    """Return the most frequent distance above 0, of equally frequent ones the least."""
    counts = Counter(distances[distances > 0].tolist())
    return min(counts, key=lambda each: (-counts[each], each)) if counts else usual


def _days(moments: NDArray[np.int64]) -> Numbers:
    days: Numbers = moments.astype(np.float64)
    days /= _DAY
    return days


def _milliseconds(stamps: Numbers) -> NDArray[np.int64]:
    return np.rint(stamps * _DAY).astype(np.int64)


def _of_months(months: NDArray[np.datetime64]) -> NDArray[np.int64]:
    """Return the moments at which months begin, in milliseconds."""
    return months.astype("datetime64[ms]").astype(np.int64)


def _months(
    moments: NDArray[np.int64], month_end: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the months of moments, and the milliseconds from a month's begin, or to its end."""
    months = moments.astype("datetime64[ms]").astype("datetime64[M]")
    if month_end:
        return months.astype(np.int64), _of_months(months + 1) - moments
    return months.astype(np.int64), moments - _of_months(months)
