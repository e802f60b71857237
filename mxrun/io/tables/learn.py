"""Learning the encoding of a table from its training records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.io.dataset.classes import class_key
from mxrun.io.tables.encoding import (
    AnyColumn,
    EncodedCategory,
    EncodedNumber,
    EncodedText,
    TableEncoding,
    logarithm,
    text_words,
)
from mxrun.io.tables.features import MISSING, FeatureColumn, FeatureTable
from mxrun.io.tables.forms import CategoryForm, DateForm, NumberForm, TextForm

# Numbers summed at a time.
_CHUNK = 1 << 16


def learn_encoding(table: FeatureTable) -> TableEncoding:
    """Return the encoding of a table, learned from its selected records alone.

    Raises UserError for columns from which nothing can be learned.
    """
    columns: list[AnyColumn] = []
    problems: list[Diagnostic] = []
    for column in table.columns:
        try:
            if isinstance(column.form, CategoryForm):
                columns.append(_category(table, column, column.form))
            elif isinstance(column.form, TextForm):
                columns.append(_text(table, column, column.form))
            else:
                assert isinstance(column.form, NumberForm)
                columns.append(_number(table, column, column.form))
        except UserError as error:
            problems += error.diagnostics
    if problems:
        raise UserError(problems)
    return TableEncoding(columns=tuple(columns), cells=table.cells)


def _number(table: FeatureTable, column: FeatureColumn, form: NumberForm) -> EncodedNumber:
    values = table.numbers(column)
    known = values[~np.isnan(values)]
    if not len(known):
        raise _nothing(column)
    mean = _mean(known)
    fill: float | None = None
    if form.missing != "error":
        fill = {"mean": mean, "median": float(np.median(known))}.get(
            str(form.missing), form.missing if not isinstance(form.missing, str) else 0.0
        )
    is_log = form.scale == "log"
    scaled = logarithm(known) if is_log else known
    center, spread = 0.0, 1.0
    if form.scale == "minmax":
        center = float(scaled.min())
        spread = float(scaled.max()) - center
    elif form.scale != "none":
        center = _mean(scaled)
        spread = math.sqrt(_mean((scaled - center) ** 2))
        # Rounding errors of constant values are no deviation.
        spread = spread if spread > 1e-9 * abs(center) else 0.0
    return EncodedNumber(
        name=column.name,
        number=column.number,
        cells=form.cells,
        kind="date" if isinstance(form, DateForm) else "number",
        format=form.format if isinstance(form, DateForm) else None,
        fill=fill,
        indicator=form.indicator,
        log=is_log,
        center=center,
        spread=spread or 1.0,
    )


def _category(table: FeatureTable, column: FeatureColumn, form: CategoryForm) -> EncodedCategory:
    codes = table.codes(column)
    known = codes[codes != MISSING]
    counts = np.bincount(known, minlength=len(column.words)).tolist()
    found = {word: count for word, count in zip(column.words, counts, strict=True) if count}
    if not found:
        raise _nothing(column)
    names = _in_order(column, form, found)
    # Categories that the config lists need no records.
    least = 0 if form.order is not None and form.min_count == 1 else form.min_count
    frequent = tuple(name for name in names if found.get(name, 0) >= least)
    rare = tuple(name for name in names if name not in set(frequent))
    if not frequent:
        problem = f"{column}: no category has {form.min_count} training records"
        got = f"the most frequent has {max(found.values())}"
        raise UserError(Diagnostic(problem, None, "a smaller min_count", got))
    gaps = len(known) < len(codes)
    fill = None
    if form.missing == "most_frequent":
        fill = max(range(len(frequent)), key=lambda at: (found.get(frequent[at], 0), -at))
    encoded = EncodedCategory(
        name=column.name,
        number=column.number,
        cells=form.cells,
        categories=frequent,
        rare=rare,
        other=form.min_count > 1 and form.encoding == "one_hot",
        gap=gaps and form.missing == "category" and form.encoding == "one_hot",
        fill=fill,
        refuses_gaps=form.missing == "error",
        ordinal=form.encoding == "ordinal",
    )
    if not encoded.ordinal:
        return encoded
    places = np.maximum(encoded.positions(column.words) + 1, 0).astype(np.float64)
    numbers = places[known]
    center = _mean(numbers)
    spread = math.sqrt(_mean((numbers - center) ** 2))
    return encoded.model_copy(update={"center": center, "spread": spread or 1.0})


def _text(table: FeatureTable, column: FeatureColumn, form: TextForm) -> EncodedText:
    codes = table.codes(column)
    records: Counter[str] = Counter()
    for code, count in Counter(codes.tolist()).items():
        words = set() if code == MISSING else set(text_words(column.words[code]))
        records.update(dict.fromkeys(words, count))
    frequent = [word for word, count in records.items() if count >= form.min_count]
    chosen = sorted(sorted(frequent, key=lambda word: (-records[word], word))[: form.words])
    if not chosen:
        problem = f"{column}: no word is in {form.min_count} training records"
        hint = "write a smaller min_count, or leave the column out: ignore"
        raise UserError(Diagnostic(problem, None, "words that come again", hint=hint))
    count = 1 + len(codes)
    weights = tuple(math.log(count / (1 + records[word])) + 1 for word in chosen)
    return EncodedText(
        name=column.name,
        number=column.number,
        cells=form.cells,
        words=tuple(chosen),
        weights=weights,
    )


def _in_order(column: FeatureColumn, form: CategoryForm, found: dict[str, int]) -> Sequence[str]:
    """Return the categories in their order: that of the form, else numbers, then words, sorted.

    Raises UserError for categories that the form's order lacks.
    """
    if form.order is None:
        return sorted(found, key=_sort_key)
    spelled = {class_key(word): word for word in found}
    names = [spelled.get(class_key(word), word) for word in form.order]
    lacking = sorted(set(found) - set(names))
    if lacking:
        problem = f"{column}: `order` lacks categories of the training records"
        raise UserError(Diagnostic(problem, None, listed(form.order), listed(lacking)))
    return list(dict.fromkeys(names))


def _sort_key(word: str) -> tuple[bool, float, str]:
    try:
        number = float(word)
    except ValueError:
        return True, 0.0, word
    return (True, 0.0, word) if math.isnan(number) else (False, number, word)


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean, summed so that the result depends on no instruction set."""
    sums = [
        math.fsum(values[start : start + _CHUNK].tolist())
        for start in range(0, len(values), _CHUNK)
    ]
    return math.fsum(sums) / len(values)


def _nothing(column: FeatureColumn) -> UserError:
    key = f"{column.name!r}" if column.name else f'"{column.number}"'
    problem = f"{column} has no value in the training records"
    hint = f"leave it out with columns: {{{key}: ignore}}"
    return UserError(
        Diagnostic(problem, None, "values to learn from", "missing ones alone", hint=hint)
    )
