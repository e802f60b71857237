"""Survey of texts for `init`: one long text, or texts with labels, and how they would be read."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import folded
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.encodings import marked_encoding
from mxrun.io.files import unreadable_error, user_path
from mxrun.io.tables.cells import detected_delimiter
from mxrun.io.text.json_values import ENDINGS
from mxrun.io.text.lines import LABEL_NAMES, TEXT_NAMES
from mxrun.survey.columns import ROW_NUMBERS
from mxrun.survey.survey import (
    DataSurvey,
    SurveyedPart,
    check_class_counts,
    class_warnings,
    split_parts,
)

TEXT, TEXT_LINES = "text", "text_lines"
# Tokens of a window of a long text.
WINDOW = 64
# Endings of files that always hold texts, and of those that may hold a table.
_PROSE = (".md", ".text")
_TABLES = (".csv", ".tsv")
_HEAD = 1 << 16
_MAX_LINES = 200
# Letters and blanks are this share of the characters of prose.
_LETTERS = 0.7
_MIN_WORDS = 20
# Words of a short text; a class has less.
_FEW_WORDS = 3
_SEPARATORS = ("\t", ";", ",", "|")
_MAX_LABEL = 40
# The most words of a vocabulary, and lengths of records, in multiples of 8.
_MAX_WORDS, _MAX_LENGTH = 10_000, 256
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_MIN_BYTES = 20_000


def text_dataset_of(path: Path, label: str | None = None, is_text: bool = False) -> str:
    """Return the data set that reads a file of texts, `text` or `text_lines`; else an empty text.

    label: the column that the user names; is_text: whether it holds texts for certain. Otherwise
    the first lines decide. Raises UserError if the file cannot be read.
    """
    suffix = path.suffix.lower()
    if suffix in ENDINGS:
        return TEXT_LINES
    if suffix in _PROSE:
        return TEXT
    if suffix not in (*_TABLES, ".txt") and not is_text:
        return ""
    lines = _first_lines(path)
    if suffix != ".csv" and _are_labelled(lines):
        return TEXT_LINES
    if suffix in _TABLES:
        if lines and _text_columns(lines, label, is_text):
            return TEXT_LINES
        if any(separator in line for line in lines for separator in _SEPARATORS):
            return TEXT_LINES if is_text else ""
    return TEXT if is_text or _is_prose(lines) else ""


def _first_lines(path: Path) -> list[str]:
    """Return the first lines of a file that are not empty; raises UserError if it is unreadable."""
    try:
        with path.open("rb") as stream:
            content = stream.read(_HEAD)
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error
    head = content.decode(marked_encoding(content) or "utf-8", "replace")
    return [line for line in head.splitlines() if line.strip()][:_MAX_LINES]


def _text_columns(lines: Sequence[str], label: str | None, is_text: bool) -> dict[str, int | str]:
    """Return the columns of a table's text and label, options of `text_lines`; empty without them.

    The text has three words or more in most rows; the label is the column that the user names, has
    a usual name, or repeats its values. Beside other columns a text is one of the columns of a
    table, unless `is_text`.
    """
    delimiter = detected_delimiter(lines[0].encode()).decode()
    try:
        rows = list(csv.reader(lines, delimiter=delimiter))
    except csv.Error:
        return {}
    names = [cell.strip() for cell in rows[0]]
    folders = [name.lower() for name in names]
    complete = [cells for cells in rows[1:] if len(cells) == len(names)]
    columns = [[cells[number].strip() for cells in complete] for number in range(len(names))]
    if not complete:
        return {}
    words = [median(len(value.split()) for value in values) for values in columns]
    usual = [folders.index(name) for name in TEXT_NAMES if name in folders]
    text = max(range(len(names)), key=lambda number: (words[number], -number))
    text = next((number for number in usual if words[number] >= _FEW_WORDS), text)
    others = [
        number
        for number in range(len(names))
        if number != text and folded(folders[number]) not in ROW_NUMBERS
    ]
    if label is None:
        classes = [number for number in others if _repeat(columns[number])]
        classes += [folders.index(each) for each in LABEL_NAMES[::-1] if each in folders]
    elif label.strip().lower() in folders:
        classes = [folders.index(label.strip().lower())]
    else:
        numbers = map(str, range(len(names)))
        classes = [number for number, each in enumerate(numbers) if each == label]
    if words[text] < _FEW_WORDS or not classes or (len(others) > 1 and not is_text):
        return {}
    chosen = classes[-1]
    if chosen == text:
        return {}
    if names[chosen] in columns[chosen]:
        return {"text": text, "label": chosen}
    return {"text": names[text], "label": names[chosen]}


def _repeat(labels: Sequence[str]) -> bool:
    """Return whether values are few, like those of classes."""
    return 2 <= len(set(labels)) <= max(2, len(labels) // 2)


def _are_labelled(lines: Sequence[str]) -> bool:
    """Return whether lines are a label, a tab and a text of several words."""
    parts = [line.split("\t") for line in lines]
    if len(lines) < 2 or any(len(part) != 2 for part in parts):
        return False
    labels = [label for label, _ in parts]
    words = median(len(text.split()) for _, text in parts)
    return _repeat(labels) and words >= 2 and all(len(label) <= _MAX_LABEL for label in labels)


def _is_prose(lines: Sequence[str]) -> bool:
    """Return whether lines are sentences, not rows of equally many cells."""
    text = "".join(lines)
    letters = sum(each.isalpha() or each == " " for each in text)
    if not lines or letters < _LETTERS * len(text):
        return False
    if len(lines) == 1:
        return len(lines[0].split()) >= _MIN_WORDS
    for separator in _SEPARATORS:
        counts = {len(line.split(separator)) for line in lines}
        if len(counts) == 1 and counts != {1}:
            return False
    return not _are_blank_columns([line.split() for line in lines])


def _are_blank_columns(lines: Sequence[Sequence[str]]) -> bool:
    """Return whether words are the cells of a table: equally many a line, and others by column.

    Sentences of equally many words have the same words at several places.
    """
    if len({len(words) for words in lines}) > 1 or len(lines[0]) == 1:
        return False
    places = Counter(word for column in zip(*lines, strict=True) for word in set(column))
    common = sum(count > 1 for count in places.values())
    return len(places) < _MIN_WORDS or 2 * common < len(places)


def survey_text(source: str) -> DataSurvey:
    """Look at one long text. Raises UserError if it is no UTF-8, or too short."""
    options: dict[str, object] = {"path": source}
    train = _opened(TEXT, options, "train")
    evaluation, unknown = _held_out(options, train)
    if unknown:
        options["unknown"] = _UNKNOWN
        train = _opened(TEXT, options, "train")
        evaluation = _opened(TEXT, options, "test", train)
    assert train.vocabulary is not None
    size, count = os.path.getsize(user_path(source)), len(train.vocabulary)
    facts = [f"{size:,} bytes of text", f"{count:,} different characters"]
    comments = {}
    if unknown:
        comments["unknown"] = "stands for characters that only the end of the text has"
    warnings = []
    if size < _MIN_BYTES:
        warnings.append("a short text: a network learns little more than its letters")
    parts = (
        SurveyedPart(len(train), "train"),
        SurveyedPart(len(evaluation), "test"),
    )
    return DataSurvey(
        TEXT,
        options,
        *parts,
        (WINDOW,),
        vocabulary=count,
        comments=comments,
        facts=tuple(facts),
        warnings=tuple(warnings),
        doubts=("it is read as one long text; `--as table` reads a table",),
    )


def _held_out(options: dict[str, object], train: Dataset) -> tuple[Dataset, bool]:
    """Return the end of the text, and whether it has characters that training has not."""
    try:
        return _opened(TEXT, options, "test", train), False
    except UserError:
        return train, True


def _opened(
    name: str, options: dict[str, object], split: str, train: Dataset | None = None
) -> Dataset:
    """Return a split of a text, with the vocabulary of `train`."""
    spec = TensorSpec((WINDOW,), "int32")
    known = DATASETS.get(name)
    chosen = known.options.model_validate(options)
    inputs = {"data": spec, "label": TensorSpec((), "int32") if name == TEXT_LINES else spec}
    return known.open(chosen, split, inputs, None if train is None else train.vocabulary)


def survey_text_lines(source: str, label: str | None = None, is_text: bool = False) -> DataSurvey:
    """Look at texts with labels. Raises UserError for files that have none, or one class alone.

    label, is_text: as of `text_dataset_of`.
    """
    options: dict[str, object] = {"path": source}
    path, doubts = user_path(source), ["it is read as texts with a label each"]
    if label is not None:
        options["label"] = int(label) if label.isdecimal() else label
    if path.suffix.lower() in _TABLES and not _are_labelled(lines := _first_lines(path)):
        columns = _text_columns(lines, label, is_text)
        options |= columns
        if columns:
            doubts[0] += ": the text is {text!r}, the label {label!r}".format(**columns)
            doubts.append("`--label COLUMN` names another label")
    complete = _opened(TEXT_LINES, options, "all")
    if complete.class_numbers is None or complete.texts is None:
        raise UserError(
            Diagnostic(f"{source}: the labels are no classes", None, "words or numbers")
        )
    train, evaluation, measured = split_parts(complete, "", source)
    check_class_counts(train.counts, source, "name another column: --label COLUMN")
    assert measured.texts is not None
    vocabulary = measured.texts.learn()
    tokens = [len(vocabulary.encode(text)) for text in measured.texts.texts]
    longest = int(np.percentile(tokens, 95))
    length = min(max(8, -(-longest // 8) * 8), _MAX_LENGTH)
    size = min(len(vocabulary), _MAX_WORDS)
    options["vocabulary"] = size
    comments = {"vocabulary": f"of {len(vocabulary):,}: <pad>, <unk> and the training part's words"}
    facts = (
        f"{len(complete):,} texts of {len(train.counts)} classes",
        f"{min(tokens):,} to {max(tokens):,} words and marks, half of them at most "
        f"{int(median(tokens)):,}",
    )
    return DataSurvey(
        TEXT_LINES,
        options,
        train,
        evaluation,
        (length,),
        vocabulary=size,
        comments=comments,
        facts=facts,
        warnings=class_warnings(train.counts),
        doubts=("; ".join((*doubts, "`--as table` reads a table")),),
    )
