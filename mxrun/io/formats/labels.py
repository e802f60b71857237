"""Labels of records as columns: classes by word or number, numbers, vectors, boxes, multi-hot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed, nearest
from mxrun.base.tensor import TensorSpec
from mxrun.io.convert import first_unrepresentable, valid_range
from mxrun.io.dataset.classes import class_key
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.location import RecordLocation

Locate = Callable[[int], RecordLocation]
# Label of one record as files hold it: a text, or numbers.
LabelValue = str | tuple[float, ...]

# Numbers of a box: class and corners.
_BOX = 5
_PADDING = -1
# Numbers before the boxes: their count, and the numbers of each box.
_MIN_HEADER = 2


@dataclass(frozen=True, eq=False)
class LabelNumbers:
    """Numbers of each record's label: `counts` int64 [records], and all `values` in turn."""

    values: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Position in `values` of each record's first number, int64 [records]."""
        starts: NDArray[np.int64] = np.cumsum(self.counts) - self.counts
        return starts


@dataclass(frozen=True)
class LabelForm:
    """Form of labels: the separator of several classes in one, and the names of known classes."""

    separator: str | None = None
    classes: tuple[str, ...] = ()


def label_fields(
    values: Sequence[LabelValue], inputs: Inputs, locate: Locate, form: LabelForm
) -> tuple[dict[str, Field], tuple[str, ...]]:
    """Return the column `label` for the network's input of this name, and the names of the classes.

    There is none without `values`. Texts are classes for an input int32 [], or without such an
    input, and otherwise numbers with blanks or commas between them. If the form has a separator, a
    text is several classes, and the label a number for each class: 1 for those of the record, else
    0. Raises UserError naming the first record with a wrong label.
    """
    spec, classes = inputs.get("label"), form.classes
    if not values:
        return {}, ()
    if form.separator is not None:
        several = [_words(value, form.separator) for value in values]
        return {"label": multi_hot(several, spec, classes, locate)}, classes
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) == len(values) and (spec is None or spec == TensorSpec((), "int32")):
        field, names = word_classes(texts, classes, locate)
        return {"label": field}, names
    numbers = [_numbers(value, record, locate) for record, value in enumerate(values)]
    counts = np.array([len(each) for each in numbers], np.int64)
    labels = LabelNumbers(np.array([each for row in numbers for each in row], np.float64), counts)
    return number_fields(labels, inputs, locate), ()


def word_classes(
    words: Sequence[str], known: Sequence[str], locate: Locate
) -> tuple[Field, tuple[str, ...]]:
    """Return class numbers, int32 [records], and the names of the classes.

    The names are those `known`, or all words, sorted; words that differ in the Unicode encoding of
    accents alone are one class. If no names are known and all words are
    numbers of at most 9 digits, they are the class numbers, and there are no names. Raises
    UserError naming the first record whose class is not known, or is NaN among numbers.
    """
    wrong = None if known else not_finite(words)
    if wrong is not None:
        problem = f"{locate(words.index(wrong))}: the label is not finite"
        raise UserError(Diagnostic(problem, None, "a finite number, as all other labels", wrong))
    spelled = {class_key(word): word for word in reversed(words)}
    names = tuple(known) or tuple(sorted(spelled.values()))
    if not known and all(map(_is_number, names)):
        return Field(np.array(list(map(int, words)), np.int32)), ()
    number_of = {class_key(name): number for number, name in enumerate(names)}
    # If two known names have the same key, an exact match takes precedence.
    number_of |= {name: number for number, name in enumerate(names)}
    numbers = [number_of.get(word, number_of.get(class_key(word), -1)) for word in words]
    if -1 in numbers:
        _refuse_class(words[numbers.index(-1)], names, locate(numbers.index(-1)))
    return Field(np.array(numbers, np.int32)), names


def not_finite(words: Sequence[str]) -> str | None:
    """Return the first word that is NaN or infinite if all others are numbers; else None."""
    try:
        numbers = {word: float(word) for word in dict.fromkeys(words)}
    except ValueError:
        return None
    wrong = [word for word, number in numbers.items() if not math.isfinite(number)]
    return wrong[0] if wrong and len(wrong) < len(numbers) else None


def multi_hot(
    words: Sequence[Sequence[str]], spec: TensorSpec | None, known: Sequence[str], locate: Locate
) -> Field:
    """Return float32 [records, classes]: 1 for each class of a record, else 0.

    words: the classes of each record: names that are `known`, or numbers below the length of the
    network's input of `spec`. Raises UserError naming the first record with another class.
    """
    count = len(known) or (spec.shape[0] if spec is not None and len(spec.shape) == 1 else 0)
    if not count:
        problem = "several classes of each record need a label with a number for each class"
        hint = "declare it in network.inputs as label: [number of classes]"
        raise UserError(
            Diagnostic(problem, None, "float32 [classes]", str(spec or "none"), hint=hint)
        )
    names = tuple(known) or tuple(map(str, range(count)))
    number_of = {name: number for number, name in enumerate(names)}
    found = np.zeros((len(words), count), np.float32)
    for record, each in enumerate(words):
        for word in each:
            if word not in number_of:
                _refuse_class(word, names, locate(record))
            found[record, number_of[word]] = 1
    return Field(found)


def _refuse_class(word: str, names: Sequence[str], where: RecordLocation) -> NoReturn:
    problem = f"{where}: the class is not known"
    raise UserError(Diagnostic(problem, None, listed(names), word, hint=nearest(word, names)))


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 10


def _words(value: LabelValue, separator: str) -> list[str]:
    """Return the classes of one record."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(separator) if word.strip()]
    return [f"{number:g}" for number in value]


def _numbers(value: LabelValue, record: int, locate: Locate) -> tuple[float, ...]:
    if not isinstance(value, str):
        return value
    try:
        return tuple(map(float, value.replace(",", " ").split()))
    except ValueError:
        problem = f"{locate(record)}: the label is not a number"
        raise UserError(Diagnostic(problem, None, "numbers", value[:80])) from None


def number_fields(labels: LabelNumbers, inputs: Inputs, locate: Locate) -> dict[str, Field]:
    """Return the column `label` for the network's input of this name.

    If there is no such input, the labels' own form is returned, or nothing where records have
    different counts of numbers. Raises UserError naming the first record whose label does not fit.
    """
    if "label" in inputs:
        return {"label": number_field(labels, inputs["label"], locate)}
    if (labels.counts != labels.counts[0]).any() or not labels.counts[0]:
        return {}
    return {"label": number_field(labels, None, locate)}


def number_field(labels: LabelNumbers, spec: TensorSpec | None, locate: Locate) -> Field:
    """Return the labels as a column for the network's input of `spec`.

    int32 [] takes one integer of each record, a class, and float32 [] one number; [n] takes n
    numbers, and float32 [objects, n] boxes (`box_field`). Without `spec`, labels of one integer are
    classes. Raises UserError naming the first record whose label does not fit.
    """
    if spec is not None and len(spec.shape) == 2:
        return box_field(labels, spec, locate)
    width = int(labels.counts[0]) if spec is None else spec.elements
    if spec is not None and len(spec.shape) > 1:
        problem = f"labels of numbers have no shape {list(spec.shape)}"
        raise UserError(Diagnostic(problem, None, "[], [numbers] or [objects, numbers of each]"))
    wrong = np.flatnonzero(labels.counts != width)
    if len(wrong):
        record = int(wrong[0])
        problem = f"{locate(record)}: the label does not fit the network's input"
        got = _count(int(labels.counts[record]))
        raise UserError(Diagnostic(problem, None, f"label {_count(width)}", got))
    shape = (width,) if spec is None and width != 1 else () if spec is None else spec.shape
    dtype = spec.dtype if spec is not None else _natural_dtype(labels.values, width)
    at = first_unrepresentable(labels.values, dtype)
    if at is not None:
        problem = f"{locate(at // width)}: the label cannot be converted to {dtype}"
        raise UserError(Diagnostic(problem, None, valid_range(dtype), f"{labels.values[at]:g}"))
    return Field(labels.values.astype(dtype).reshape(-1, *shape))


def box_field(labels: LabelNumbers, spec: TensorSpec, locate: Locate) -> Field:
    """Return the boxes of each record as float32 [records, objects, numbers].

    A label is MXNet's, as its ImageDetIter reads it: the count of numbers before the boxes, at
    least 2; the count of numbers of each box, at least 5; others; and the boxes: class, left, top,
    right, bottom in 0..1 of the image's sides, and further numbers. Boxes without area are left
    out. Rows after the last box are -1. Raises UserError naming the first record whose label is
    another one, or has more boxes than the network takes.
    """
    objects, width = spec.shape
    found = np.full((len(labels.counts), objects, width), _PADDING, np.float32)
    starts = labels.starts.tolist()
    for record, (start, count) in enumerate(zip(starts, labels.counts.tolist(), strict=True)):
        boxes = _boxes(labels.values[start : start + count], width, record, locate)
        if len(boxes) > objects:
            problem = f"{locate(record)}: the image has more boxes than the network takes"
            hint = f"declare the label as [{len(boxes)}, {width}] or more"
            got = f"{len(boxes)} boxes"
            raise UserError(Diagnostic(problem, None, f"at most {objects}", got, hint=hint))
        found[record, : len(boxes)] = boxes
    return Field(found, boxes=True)


def _boxes(
    numbers: NDArray[np.float64], width: int, record: int, locate: Locate
) -> NDArray[np.float64]:
    """Return the first `width` numbers of each box of a label that has an area."""
    shown = ", ".join(f"{number:g}" for number in numbers[:_BOX])
    if len(numbers) < _MIN_HEADER or not np.isfinite(numbers).all():
        problem = f"{locate(record)}: the label holds no boxes"
        raise UserError(Diagnostic(problem, None, "header width, box width, boxes", shown))
    header, each = numbers[:2].tolist()
    is_whole = header == int(header) and each == int(each)
    if not is_whole or header < _MIN_HEADER or each < _BOX or header > len(numbers):
        problem = f"{locate(record)}: the label does not begin with the two widths of boxes"
        expected = "numbers before the boxes (2 or more), numbers of each box (5 or more)"
        raise UserError(Diagnostic(problem, None, expected, shown))
    if width > each:
        problem = f"{locate(record)}: the boxes have fewer numbers than the network takes"
        raise UserError(Diagnostic(problem, None, f"{width} of each box", f"{each:g}"))
    rest = numbers[int(header) :]
    if len(rest) % int(each):
        problem = f"{locate(record)}: the label ends within a box"
        expected = f"{int(each)} numbers of each box"
        raise UserError(Diagnostic(problem, None, expected, f"{len(rest)} numbers"))
    boxes = rest.reshape(-1, int(each))
    has_area = (boxes[:, 3] > boxes[:, 1]) & (boxes[:, 4] > boxes[:, 2])
    kept: NDArray[np.float64] = boxes[has_area, :width]
    return kept


def _natural_dtype(values: NDArray[np.float64], width: int) -> str:
    are_classes = width == 1 and bool((values == np.floor(values)).all())
    return "int32" if are_classes and first_unrepresentable(values, "int32") is None else "float32"


def _count(numbers: int) -> str:
    return f"of {numbers} number{'s' * (numbers != 1)}"
