"""Splits: a named split, a range or a share of it, or the rest of that.

Forms: `split: test`, `split: {of: test, range: [0, 9000]}`, `split: {share: 0.8, seed: 1, stratify:
true}` and, for the records that such a part leaves, `split: rest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.keywords import REST
from mxrun.base.near_names import nearest
from mxrun.base.validation import Path
from mxrun.runtime import random

# Source locations by dotted path within the data set's section: `path`, `split.range`.
Places = Mapping[str, SourceLocation]

ALL = "all"
SHARE_HINT = "write split: {of: NAME, share: 0.8, stratify: true}, and split: rest for the others"

_FORM = "a split's name, {of: NAME, range: [first, end]}, {of: NAME, share: 0.8} or rest"
_KEYS = ("of", "range", "share", "seed", "stratify")
# Default splits of each section; the first that exists is used.
_DEFAULT_SPLITS = {
    "train": ("train", "training", ALL),
    "eval": ("val", "valid", "validation", "dev", "eval", "test", "testing", ALL),
}


class UnknownSplit(UserError):
    """Error for a split that the files of the data set do not have."""


@dataclass(frozen=True)
class Split:
    """Records [start, stop) of the split `of`, or a `share` of it; with `rest` the complement.

    `stop` None means the end; an empty `of` means the section's default split. A share is a random
    selection, a function of `seed` and the number of records. With `stratify` the share is taken of
    each class, rounded to an integer.

    Of all these, it contains the part `part_index` of `num_parts`, as MXNet's iterators: each part
    is a range, all are disjoint, and together complete. Their sizes differ by at most 1.
    """

    of: str
    start: int = 0
    stop: int | None = None
    share: float | None = None
    seed: int = 0
    stratify: bool = False
    rest: bool = False
    part_index: int = 0
    num_parts: int = 1

    def __str__(self) -> str:
        texts = []
        if self.share is not None:
            texts = [f"{self.share:g}, seed {self.seed}{', stratified' * self.stratify}"]
        elif self.stop is not None:
            texts = [f"{self.start}:{self.stop}"]
        if self.rest:
            texts = [f"rest of {text}" for text in texts]
        if self.num_parts > 1:
            texts.append(f"part {self.part_index} of {self.num_parts}")
        return f"{self.of}[{', '.join(texts)}]" if texts else self.of

    @property
    def undivided(self) -> Split:
        """The split whose part it is."""
        return replace(self, part_index=0, num_parts=1)

    @property
    def is_complete(self) -> bool:
        """True if it contains all records of the split `of`."""
        return self.share is None and self.stop is None and self.num_parts == 1

    def rows(self, length: int, labels: NDArray[Any] | None) -> slice | NDArray[np.int64]:
        """Return the numbers of its records, ascending, among `length` records with classes
        `labels`.
        """
        rows = self._undivided_rows(length, labels)
        if self.num_parts == 1:
            return rows
        if not isinstance(rows, slice):
            return rows[self._range(0, len(rows))]
        start, stop, _ = rows.indices(length)
        return self._range(start, stop)

    def _range(self, start: int, stop: int) -> slice:
        """Return this part of a range."""
        count = stop - start
        first = count * self.part_index // self.num_parts
        end = count * (self.part_index + 1) // self.num_parts
        return slice(start + first, start + end)

    def _undivided_rows(
        self, length: int, labels: NDArray[Any] | None
    ) -> slice | NDArray[np.int64]:
        """Return the records of all parts."""
        if self.share is None and not self.rest:
            return slice(self.start, self.stop)
        if self.share is None and self.stop is not None and (not self.start or self.stop == length):
            # Also one range, so that the records are a view of those that training reads.
            return slice(self.stop, length) if not self.start else slice(0, self.start)
        selected = np.zeros(length, np.bool_)
        if self.share is None:
            selected[self.start : self.stop] = True
        else:
            selected[self._share_rows(length, labels)] = True
        return np.flatnonzero(selected != self.rest)

    def _share_rows(self, length: int, labels: NDArray[Any] | None) -> NDArray[np.int64]:
        """Return the records of the share, unsorted."""
        assert self.share is not None
        order = random.permutation(self.seed, "split", length)
        if not self.stratify or labels is None:
            return order[: _count(self.share, length)]
        _, classes = np.unique(labels, return_inverse=True)
        by_class = order[np.argsort(classes[order], kind="stable")]
        counts = np.bincount(classes)
        starts = np.cumsum(counts) - counts
        share_counts = np.array([_count(self.share, count) for count in counts.tolist()])
        return by_class[
            np.arange(length) - np.repeat(starts, counts) < np.repeat(share_counts, counts)
        ]

    def check(
        self, length: int, labels: NDArray[Any] | None, places: Places
    ) -> tuple[Diagnostic, ...]:
        """Return the reasons why it selects no valid records of `length`, whose classes are
        `labels`.
        """
        if self.stop is not None and self.stop > length:
            problem = f"the range exceeds the split {self.of!r}, which has {length} records"
            got = f"[{self.start}, {self.stop}]"
            expected = f"[first, end] with 0 <= first < end <= {length}"
            return (Diagnostic(problem, place_of(places, "split.range"), expected, got),)
        if self.stratify and labels is None:
            problem = (
                "split: stratify takes a share of each class, but these records have no classes"
            )
            expected = "labels that are classes"
            return (Diagnostic(problem, place_of(places, "split.stratify"), expected),)
        if len(np.arange(length)[self.rows(length, labels)]):
            return ()
        problem = f"the split {self} leaves no records of {length}"
        return (Diagnostic(problem, place_of(places, "split"), hint="give more records"),)


def check_shares(
    train: Split, evaluation: Split, length: int, labels: NDArray[Any] | None, places: Places
) -> tuple[Diagnostic, ...]:
    """Return a diagnostic if the shares of training and evaluation have common records.

    Both are shares of the same `length` records. Ranges may overlap: they state their records
    explicitly. All parts of the shares are compared. places: source locations of evaluation's
    section.
    """
    train, evaluation = train.undivided, evaluation.undivided
    if train.share is None or evaluation.share is None or train.rest or evaluation.rest:
        return ()
    numbers = np.arange(length)
    rows = numbers[evaluation.rows(length, labels)]
    common = len(np.intersect1d(numbers[train.rows(length, labels)], rows))
    if not common:
        return ()
    problem = f"the share {evaluation} has records in common with data.train's share {train}"
    expected = "records that are not trained on"
    got = f"{common} of {len(rows)} records are trained on"
    hint = "write split: rest, for all records that are not in data.train's share"
    return (Diagnostic(problem, place_of(places, "split.share"), expected, got, hint=hint),)


def _count(share: float, of: int) -> int:
    """Return the rounded share of `of` records; if possible, at least 1 and at most `of` - 1."""
    return min(max(int(share * of + 0.5), 1), max(of - 1, 1))


def default_split(role: str, known: Sequence[str]) -> str | None:
    """Return the default split of a section, `train` or `eval`, among `known`; None if there is
    none.
    """
    return next((name for name in _DEFAULT_SPLITS[role] if name in known), None)


def place_of(places: Places, path: str) -> SourceLocation | None:
    """Return the place of `path`, of its nearest enclosing key, or of the key `dataset`."""
    while path not in places and "." in path:
        path = path.rpartition(".")[0]
    return places.get(path, places.get("dataset"))


@dataclass(frozen=True)
class OptionPlaces:
    """Places of a data set's options where only `places` are known."""

    places: Places

    def place(self, path: Path) -> SourceLocation | None:
        """Return the place of an option."""
        return place_of(self.places, ".".join(map(str, path)))

    def key_place(self, path: Path) -> SourceLocation | None:
        """Return the place of an option."""
        return self.place(path)

    def elsewhere(self, key: str) -> str:
        """Return nothing: these options are of no config that could have the key elsewhere."""
        del key
        return ""


def parse_split(
    value: object, known: Sequence[str], usual: str, places: Places
) -> tuple[Split | None, tuple[Diagnostic, ...]]:
    """Parse a `split:` value; returns the split, or None and the diagnostics.

    known: the valid split names; empty if only the files determine them. usual: the split used if
    none is named.
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
        problem = "the split has no name"
        return None, (Diagnostic(problem, place, _FORM, repr(value), hint=hint),)
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
    """Parse a split written as a mapping; `problems` are those found so far."""
    name, share = value.get("of", usual), value.get("share")
    bounds: Any = value.get("range")
    if not value:
        problems += (Diagnostic("the split is empty", place_of(places, "split"), _FORM, "{}"),)
    if "of" in value:
        problems += _check_name(name, "split.of", known, places)
    if "range" in value and share is None:
        problems += _check_range(bounds, places)
    if share is None:
        problems += tuple(
            Diagnostic(
                f"split: {key} is valid only with share",
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
        seed, stratify = value.get("seed", 0), value.get("stratify", False)
        return Split(name, share=share, seed=seed, stratify=stratify), ()
    return Split(name, *(bounds or ())), ()


def _check_name(
    name: object, path: str, known: Sequence[str], places: Places
) -> tuple[Diagnostic, ...]:
    if name in known or (not known and isinstance(name, str)):
        return ()
    expected, place = f"one of {', '.join(known)}", place_of(places, path)
    hint = nearest(str(name), known)
    return (Diagnostic(f"unknown split {name!r}", place, expected, repr(name), hint=hint),)


def _check_range(bounds: object, places: Places) -> tuple[Diagnostic, ...]:
    numbers = list(bounds) if isinstance(bounds, (list, tuple)) else []
    if len(numbers) == 2 and all(type(number) is int for number in numbers):
        if 0 <= numbers[0] < numbers[1]:
            return ()
        problem = "the range holds no records"
    else:
        problem = "a range is two integers"
    got = repr(numbers or bounds)
    expected = "[first, end] with 0 <= first < end; `end` is exclusive"
    return (Diagnostic(problem, place_of(places, "split.range"), expected, got),)
