"""Which part of a data set is read: `split: test` or `split: {of: test, range: [0, 9000]}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mxrun.base.errors import Diagnostic, Place, nearest

# Places in the user's file by dotted path inside the data set's section: `path`, `split.range`.
Places = Mapping[str, Place]

_FORM = "a split's name or {of: NAME, range: [first, end]}"


@dataclass(frozen=True)
class Split:
    """The records [start, stop) of the split `of`; no `stop` means up to its end."""

    of: str
    start: int = 0
    stop: int | None = None

    def __str__(self) -> str:
        return self.of if self.stop is None else f"{self.of}[{self.start}:{self.stop}]"

    def check(self, length: int, places: Places) -> tuple[Diagnostic, ...]:
        """What is wrong with the range for a split that holds `length` records."""
        if self.stop is None or self.stop <= length:
            return ()
        problem = f"the range goes beyond the split {self.of!r}, which holds {length} records"
        got = f"[{self.start}, {self.stop}]"
        expected = f"[first, end] with 0 <= first < end <= {length}"
        return (Diagnostic(problem, place_of(places, "split.range"), expected, got),)


def place_of(places: Places, path: str) -> Place | None:
    """The place of `path` or of the nearest key around it; the data set's own at last."""
    while path not in places and "." in path:
        path = path.rpartition(".")[0]
    return places.get(path, places.get("dataset"))


def parse_split(
    value: object, known: Sequence[str], places: Places
) -> tuple[Split | None, tuple[Diagnostic, ...]]:
    """Read a `split:` value against the split names `known`: the split, or what is wrong.

    Where there is only one it need not be named.
    """
    if value is None and len(known) == 1:
        return Split(known[0]), ()
    if isinstance(value, str):
        problems = _check_name(value, "split", known, places)
        return (None if problems else Split(value)), problems
    if not isinstance(value, Mapping):
        got = "nothing" if value is None else repr(value)
        hint = f"its splits: {', '.join(known)}"
        place = place_of(places, "split")
        return None, (Diagnostic("the data set's split is not named", place, _FORM, got, hint),)
    problems = tuple(
        Diagnostic(
            f"unknown key {key!r} in a split",
            place_of(places, f"split.{key}"),
            _FORM,
            hint=nearest(str(key), ("of", "range")),
        )
        for key in value
        if key not in ("of", "range")
    )
    name, bounds = value.get("of"), value.get("range")
    problems += _check_name(name, "split.of", known, places) + _check_range(bounds, places)
    if problems or not isinstance(name, str) or not isinstance(bounds, Sequence):
        return None, problems
    return Split(name, bounds[0], bounds[1]), ()


def _check_name(
    name: object, path: str, known: Sequence[str], places: Places
) -> tuple[Diagnostic, ...]:
    if name in known:
        return ()
    expected, place = f"one of {', '.join(known)}", place_of(places, path)
    if name is None:
        return (Diagnostic("the key 'of' is missing", place, expected, "nothing"),)
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
