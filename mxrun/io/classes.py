"""Classes of records by name: those of training are everybody's, whatever another part holds."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, SourceLocation, UserError, nearest
from mxrun.base.near_names import listed

# A class's number as a name, of at most 9 digits: it is an int32.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


def class_key(name: str) -> str:
    """What two spellings of a name have in common that look alike: é as one character, or as e
    and an accent, which some file systems make of it.
    """
    return unicodedata.normalize("NFC", name)


def renumbered(
    labels: NDArray[np.int32],
    names: Sequence[str],
    known: Sequence[str],
    where: tuple[str, SourceLocation | None],
) -> NDArray[np.int32]:
    """Labels int32 [records] that number `names` as numbers of the same names among `known`.

    Without `names` a label's name is the number itself, and without `known` any number is known. A
    class that no record has need not be known. Raises UserError, which lists both sets, for one
    that is not; `where` names the records.
    """
    numbers, inverse = np.unique(labels, return_inverse=True)
    used = [_name(number, names) for number in numbers.tolist()]
    if known:
        at = {class_key(name): number for number, name in enumerate(known)}
        # Of two known names that look alike each is itself.
        at |= {name: number for number, name in enumerate(known)}
    else:
        at = {name: int(name) for name in used if _NUMBER.fullmatch(name)}
    places = [at.get(name, at.get(class_key(name), -1)) for name in used]
    unknown = [name for name, number in zip(used, places, strict=True) if number < 0]
    if unknown:
        what, place = where
        if known:
            problem = f"{what} has classes that training does not know: {listed(unknown)}"
            expected = f"classes of training: {listed(known)}"
            hint = nearest(unknown[0], known) or "classes are those of the training part, by name"
        else:
            problem = f"{what} has labels that are words, and those of training are numbers"
            expected = "labels that are numbers"
            hint = "give both parts words, or both numbers"
        raise UserError(Diagnostic(problem, place, expected, listed(used), hint))
    return np.array(places, np.int32)[inverse].reshape(labels.shape)


def lacking(
    labels: NDArray[np.int32], rows: slice | NDArray[np.int64], names: Sequence[str]
) -> list[str]:
    """The classes that `labels` have and those of `rows` have not.

    None where the numbers hardly ever repeat, and so are no classes.
    """
    kinds = np.unique(labels)
    if 2 * len(kinds) > len(labels):
        return []
    return [_name(number, names) for number in np.setdiff1d(kinds, labels[rows]).tolist()]


def lacking_range(
    labels: NDArray[np.int32], rows: slice | NDArray[np.int64], names: Sequence[str]
) -> list[str]:
    """As `lacking`, where records lie class by class, so that a range is no fair part of them."""
    kinds = len(np.unique(labels))
    is_grouped = np.count_nonzero(np.diff(labels)) == kinds - 1
    return lacking(labels, rows, names) if is_grouped else []


def counts(
    labels: NDArray[np.int32], rows: slice | NDArray[np.int64], names: Sequence[str]
) -> tuple[str, str]:
    """The records of each class, of all and of `rows`, for a message."""
    texts = []
    for some in (labels, labels[rows]):
        found, times = np.unique(some, return_counts=True)
        pairs = zip(found.tolist(), times.tolist(), strict=True)
        texts.append(listed([f"{_name(number, names)} {count}" for number, count in pairs]))
    return f"records of each class, as in the whole: {texts[0]}", texts[1]


def _name(number: int, names: Sequence[str]) -> str:
    return names[number] if names else str(number)
