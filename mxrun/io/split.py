"""Which part of a data set is read: a split's name, a range or a share of it, or the rest of that.

`split: test`, `split: {of: test, range: [0, 9000]}`, `split: {share: 0.8, seed: 1, stratify: true}`
and, of what such a part leaves, `split: rest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, SourceLocation, UserError, nearest
from mxrun.base.keywords import REST
from mxrun.runtime import random

# Places in the user's file by dotted path inside the data set's section: `path`, `split.range`.
Places = Mapping[str, SourceLocation]

ALL = "all"
SHARE_HINT = "write split: {of: NAME, share: 0.8, stratify: true}, and split: rest for the others"

_FORM = "a split's name, {of: NAME, range: [first, end]}, {of: NAME, share: 0.8} or rest"
_KEYS = ("of", "range", "share", "seed", "stratify")
# By section, the splits it means where it names none, the first that there is.
_USUAL = {
    "train": ("train", "training", ALL),
    "eval": ("val", "valid", "validation", "dev", "eval", "test", "testing", ALL),
}


class UnknownSplit(UserError):
    """A data set has no split of that name, as its files show."""


@dataclass(frozen=True)
class Split:
    """The records [start, stop) of the split `of`, or a `share` of it; `rest`: all others of it.

    No `stop` means up to its end; an empty `of` the split that the section usually means. The share
    is a function of `seed` and the number of records; with `stratify` each class gives that share,
    rounded to one of the two nearest whole numbers.
    """

    of: str
    start: int = 0
    stop: int | None = None
    share: float | None = None
    seed: int = 0
    stratify: bool = False
    rest: bool = False

    def __str__(self) -> str:
        if self.is_whole:
            return self.of
        part = f"{self.start}:{self.stop}"
        if self.share is not None:
            part = f"{self.share:g}, seed {self.seed}{', stratified' * self.stratify}"
        return f"{self.of}[{'rest of ' * self.rest}{part}]"

    @property
    def is_whole(self) -> bool:
        """Whether it leaves no records of the split out."""
        return self.share is None and self.stop is None

    def rows(self, length: int, labels: NDArray[Any] | None) -> slice | NDArray[np.int64]:
        """The numbers of its records, ascending, of `length` whose classes are `labels`."""
        if self.is_whole or (self.share is None and not self.rest):
            return slice(self.start, self.stop)
        chosen = np.zeros(length, np.bool_)
        if self.share is None:
            chosen[self.start : self.stop] = True
        else:
            chosen[self._drawn(length, labels)] = True
        return np.flatnonzero(chosen != self.rest)

    def _drawn(self, length: int, labels: NDArray[Any] | None) -> NDArray[np.int64]:
        """The records of the share, in no order."""
        assert self.share is not None
        order = random.permutation(self.seed, "split", length)
        if not self.stratify or labels is None:
            return order[: _count(self.share, length)]
        _, classes = np.unique(labels, return_inverse=True)
        by_class = order[np.argsort(classes[order], kind="stable")]
        counts = np.bincount(classes)
        starts = np.cumsum(counts) - counts
        taken = np.array([_count(self.share, count) for count in counts.tolist()])
        return by_class[np.arange(length) - np.repeat(starts, counts) < np.repeat(taken, counts)]

    def check(
        self, length: int, labels: NDArray[Any] | None, places: Places
    ) -> tuple[Diagnostic, ...]:
        """Why there are no such records among `length`, whose classes are `labels`."""
        if self.stop is not None and self.stop > length:
            problem = f"the range goes beyond the split {self.of!r}, which holds {length} records"
            got = f"[{self.start}, {self.stop}]"
            expected = f"[first, end] with 0 <= first < end <= {length}"
            return (Diagnostic(problem, place_of(places, "split.range"), expected, got),)
        if self.stratify and labels is None:
            problem = "split: stratify takes a share of each class, and these records have none"
            expected = "labels that are classes"
            return (Diagnostic(problem, place_of(places, "split.stratify"), expected),)
        rows = self.rows(length, labels)
        if isinstance(rows, slice) or len(rows):
            return ()
        problem = f"the split {self} leaves no records of {length}"
        return (Diagnostic(problem, place_of(places, "split"), hint="give more records"),)


def check_shares(
    train: Split, evaluation: Split, length: int, labels: NDArray[Any] | None, places: Places
) -> tuple[Diagnostic, ...]:
    """Whether two shares of the same `length` records leave evaluation others than training has.

    Ranges may overlap: they say which records they hold. places: those of evaluation's section.
    """
    if train.share is None or evaluation.share is None or train.rest or evaluation.rest:
        return ()
    numbers = np.arange(length)
    rows = numbers[evaluation.rows(length, labels)]
    common = len(np.intersect1d(numbers[train.rows(length, labels)], rows))
    if not common:
        return ()
    problem = f"the share {evaluation} has records that data.train's share {train} has as well"
    expected = "records that are not trained on"
    got = f"{common} of {len(rows)} records that are"
    hint = "write split: rest, which is all that data.train's share leaves"
    return (Diagnostic(problem, place_of(places, "split.share"), expected, got, hint),)


def _count(share: float, of: int) -> int:
    """That share of so many records, rounded; both it and the rest hold one where that can be."""
    return min(max(int(share * of + 0.5), 1), max(of - 1, 1))


def usual_split(role: str, known: Sequence[str]) -> str | None:
    """The split of `known` that a section, `train` or `eval`, means where it names none."""
    return next((name for name in _USUAL[role] if name in known), None)


def place_of(places: Places, path: str) -> SourceLocation | None:
    """The place of `path` or of the nearest key around it; the data set's own at last."""
    while path not in places and "." in path:
        path = path.rpartition(".")[0]
    return places.get(path, places.get("dataset"))


def parse_split(
    value: object, known: Sequence[str], usual: str, places: Places
) -> tuple[Split | None, tuple[Diagnostic, ...]]:
    """Read a `split:` value against the split names `known`: the split, or what is wrong.

    known: none where a look at the files will say. usual: the split where none is named.
    """
    if value is None:
        return Split(usual), ()
    if value == REST and REST not in known:
        return Split("", rest=True), ()
    if isinstance(value, str):
        problems = _check_name(value, "split", known, places)
        return (None if problems else Split(value)), problems
    if not isinstance(value, Mapping):
        hint = f"its splits: {', '.join(known)}" if known else ""
        place = place_of(places, "split")
        problem = "the data set's split is not named"
        return None, (Diagnostic(problem, place, _FORM, repr(value), hint),)
    problems = tuple(
        Diagnostic(
            f"unknown key {key!r} in a split",
            place_of(places, f"split.{key}"),
            _FORM,
            hint=nearest(str(key), _KEYS),
        )
        for key in value
        if key not in _KEYS
    )
    return _parsed(value, known, usual, places, problems)


def _parsed(
    value: Mapping[str, Any],
    known: Sequence[str],
    usual: str,
    places: Places,
    problems: tuple[Diagnostic, ...],
) -> tuple[Split | None, tuple[Diagnostic, ...]]:
    """A split written as a mapping; `problems` are those found so far."""
    name, share = value.get("of", usual), value.get("share")
    bounds: Any = value.get("range")
    if "of" in value:
        problems += _check_name(name, "split.of", known, places)
    if share is None:
        problems += _check_range(bounds, places)
        problems += tuple(
            Diagnostic(
                f"split: {key} goes with a share",
                place_of(places, f"split.{key}"),
                "{share: 0.8, seed: 1, stratify: true}",
            )
            for key in ("seed", "stratify")
            if key in value
        )
    elif bounds is not None:
        problem = "a split is a range of records or a share of them, not both"
        problems += (Diagnostic(problem, place_of(places, "split.share"), _FORM),)
    if problems:
        return None, problems
    if share is not None:
        drawn = value.get("seed", 0), value.get("stratify", False)
        return Split(name, share=share, seed=drawn[0], stratify=drawn[1]), ()
    return Split(name, bounds[0], bounds[1]), ()


def _check_name(
    name: object, path: str, known: Sequence[str], places: Places
) -> tuple[Diagnostic, ...]:
    if name in known or (not known and isinstance(name, str)):
        return ()
    expected, place = f"one of {', '.join(known)}", place_of(places, path)
    hint = nearest(str(name), known)
    return (Diagnostic(f"unknown split {name!r}", place, expected, repr(name), hint),)


def _check_range(bounds: object, places: Places) -> tuple[Diagnostic, ...]:
    numbers = list(bounds) if isinstance(bounds, (list, tuple)) else []
    if len(numbers) == 2 and all(type(number) is int for number in numbers):
        if 0 <= numbers[0] < numbers[1]:
            return ()
        problem = "the range holds no records"
    else:
        problem = "a range is two whole numbers"
    got = "nothing" if bounds is None else repr(numbers or bounds)
    expected = "[first, end] with 0 <= first < end; `end` is not part of it"
    return (Diagnostic(problem, place_of(places, "split.range"), expected, got),)
