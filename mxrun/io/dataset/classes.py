"""Mapping of class labels between data sets by class name; training's numbering is used for all."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.near_names import listed, nearest

# A class number written as a name. At most 9 digits, so that it fits into int32.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


def class_key(name: str) -> str:
    """Return a name in Unicode normal form C, under which spellings that look alike are equal.

    Some file systems store é as e followed by a combining accent instead of as one character.
    """
    return unicodedata.normalize("NFC", name)


def map_labels(
    labels: NDArray[np.int32],
    names: Sequence[str],
    known: Sequence[str],
    where: tuple[str, SourceLocation | None],
) -> NDArray[np.int32]:
    """Return labels int32 [records], indices into `names`, as indices of the same names in `known`.

    Without `names` a label's name is its number; without `known` every number is known. A class
    without records need not be known. Raises UserError, listing both sets, for a class that is not
    known; `where` names the records.
    """
    numbers, inverse = np.unique(labels, return_inverse=True)
    used = [_name(number, names) for number in numbers.tolist()]
    if known:
        at = {class_key(name): number for number, name in enumerate(known)}
        # If two known names have the same key, an exact match takes precedence.
        at |= {name: number for number, name in enumerate(known)}
    else:
        at = {name: int(name) for name in used if _NUMBER.fullmatch(name)}
    places = [at.get(name, at.get(class_key(name), -1)) for name in used]
    unknown = [name for name, number in zip(used, places, strict=True) if number < 0]
    if unknown:
        source, place = where
        if known:
            problem = f"{source} has classes that training does not know: {listed(unknown)}"
            expected = f"classes of training: {listed(known)}"
            hint = nearest(unknown[0], known) or "the classes are those of data.train, by name"
        else:
            problem = f"{source} has labels that are words, but those of training are numbers"
            expected = "labels that are numbers"
            hint = "use words as labels in both data sections, or numbers in both"
        raise UserError(Diagnostic(problem, place, expected, listed(used), hint=hint))
    return np.array(places, np.int32)[inverse].reshape(labels.shape)


def missing_classes(
    labels: NDArray[np.int32], rows: slice | NDArray[np.int64], names: Sequence[str]
) -> list[str]:
    """Return the classes that occur in `labels` but not in `rows` of them.

    Returns an empty list if more than half of the labels are distinct: such numbers are not
    classes.
    """
    kinds = np.unique(labels)
    if 2 * len(kinds) > len(labels):
        return []
    return [_name(number, names) for number in np.setdiff1d(kinds, labels[rows]).tolist()]


def missing_classes_in_range(
    labels: NDArray[np.int32], rows: slice | NDArray[np.int64], names: Sequence[str]
) -> list[str]:
    """Return the result of `lacking` if the records are sorted by class, else an empty list.

    Only then is a contiguous range an unrepresentative sample of the classes.
    """
    kinds = len(np.unique(labels))
    is_grouped = np.count_nonzero(np.diff(labels)) == kinds - 1
    return missing_classes(labels, rows, names) if is_grouped else []


def class_count_texts(
    labels: NDArray[np.int32], rows: slice | NDArray[np.int64], names: Sequence[str]
) -> tuple[str, str]:
    """Return two texts for messages: the records of each class, in all records and in `rows`."""
    texts = []
    for some in (labels, labels[rows]):
        found, times = np.unique(some, return_counts=True)
        pairs = zip(found.tolist(), times.tolist(), strict=True)
        texts.append(listed([f"{_name(number, names)} {count}" for number, count in pairs]))
    return f"records of each class, as in the complete split: {texts[0]}", texts[1]


def _name(number: int, names: Sequence[str]) -> str:
    return names[number] if names else str(number)
