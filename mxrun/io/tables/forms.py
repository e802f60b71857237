"""Treatment of a table's columns, as a config says it: `{age: {number: {missing: median}}}`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from mxrun.base.errors import Diagnostic
from mxrun.base.near_names import folded, nearest
from mxrun.base.params import Float32, Parameters
from mxrun.base.validation import custom_error
from mxrun.io.tables.cells import CellForm

_WRITTEN = "number, category, date, text, ignore, auto, or {number: {missing: median}}"
# Signs of patterns, as of fnmatch.
_PATTERN = re.compile(r"[*?\[]")
Word = Annotated[str, StringConstraints(min_length=1)]


class ColumnForm(Parameters):
    """Treatment of a column: automatic, by what it holds."""

    kind: ClassVar[str] = "auto"

    cells: CellForm | None = Field(
        default=None,
        description="Form of this column's numbers and missing values, with the keys of the table, "
        "such as {decimal: '.'}; default: the table's.",
    )


class IgnoreForm(ColumnForm):
    """The column is left out."""

    kind: ClassVar[str] = "ignore"


class NumberForm(ColumnForm):
    """The column is one number, scaled, with missing values filled in."""

    kind: ClassVar[str] = "number"

    missing: Literal["mean", "median", "error"] | Float32 = Field(
        default="mean",
        description="What stands for missing values: the mean or median of the training records, "
        "or a number; error refuses them.",
    )
    indicator: bool = Field(
        default=False, description="Whether a second number says if the value is missing: 1, or 0."
    )
    scale: Literal["standard", "minmax", "log", "none"] = Field(
        default="standard",
        description="standard: to mean 0 and deviation 1; minmax: to 0..1; log: sign(x) "
        "log(1 + |x|), then as standard; all as measured on the training records.",
    )


class DateForm(NumberForm):
    """The column is a date, read as the days since 1970, then as a number."""

    kind: ClassVar[str] = "date"

    format: Word | None = Field(
        default=None,
        description="Form of the dates, as of Python's strptime, such as %d.%m.%Y; default: "
        "ISO 8601, such as 2024-05-31 or 2024-05-31T12:30.",
    )


class CategoryForm(ColumnForm):
    """The column is a category: one number for each category, 1 for the record's, else 0."""

    kind: ClassVar[str] = "category"

    encoding: Literal["one_hot", "ordinal"] = Field(
        default="one_hot",
        description="one_hot: a number for each category; ordinal: one number, 1, 2, ... in "
        "`order`, 0 for missing and unknown ones.",
    )
    order: Annotated[tuple[Word, ...], Field(min_length=1)] | None = Field(
        default=None, description="The categories in order; default: those found, sorted."
    )
    min_count: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="Categories with fewer training records become one, `other`, which then also "
        "stands for unknown ones.",
    )
    missing: Literal["category", "most_frequent", "error"] = Field(
        default="category",
        description="What a missing value is: a category of its own, or the most frequent one; "
        "error refuses it.",
    )


class TextForm(ColumnForm):
    """The column is a text: one number for each of its frequent words, by TF-IDF."""

    kind: ClassVar[str] = "text"

    words: Annotated[int, Field(ge=1)] = Field(
        default=500, description="At most so many words, the most frequent ones."
    )
    min_count: Annotated[int, Field(ge=1)] = Field(
        default=2, description="Words that fewer training records have are left out."
    )


FORMS: dict[str, type[ColumnForm]] = {
    each.kind: each
    for each in (ColumnForm, NumberForm, CategoryForm, DateForm, TextForm, IgnoreForm)
}
# By folded name, what pandas and scikit-learn call treatments and types of columns.
_FOREIGN = {
    **dict.fromkeys(("numeric", "numerical", "float", "float64", "int", "int64"), "number"),
    **dict.fromkeys(("standardscaler", "continuous", "passthrough"), "number"),
    "minmaxscaler": "{number: {scale: minmax}}",
    "simpleimputer": "{number: {missing: median}}",
    **dict.fromkeys(("categorical", "onehotencoder", "onehot", "nominal", "object"), "category"),
    **dict.fromkeys(("ordinal", "ordinalencoder"), "{category: {encoding: ordinal}}"),
    **dict.fromkeys(("datetime", "datetime64", "timestamp"), "date"),
    **dict.fromkeys(("string", "str", "tfidf", "tfidfvectorizer", "countvectorizer"), "text"),
    **dict.fromkeys(("drop", "skip", "exclude", "none"), "ignore"),
}
PLAIN_NUMBER = NumberForm(missing="error", scale="none")
"""Treatment of the columns of a table that is read as it is."""


class ColumnChoice(Parameters):
    """Treatment of a column as written: a name, or {name: parameters}."""

    written: ClassVar[str] = _WRITTEN

    auto: ColumnForm | None = Field(default=None, description="By what the column holds.")
    number: NumberForm | None = Field(default=None, description="One number, scaled.")
    category: CategoryForm | None = Field(default=None, description="A number for each category.")
    date: DateForm | None = Field(default=None, description="The days since 1970, as a number.")
    text: TextForm | None = Field(default=None, description="A number for each frequent word.")
    ignore: IgnoreForm | None = Field(default=None, description="Left out.")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """Return the mapping of a bare name."""
        if isinstance(given, str):
            if given not in FORMS:
                ours = _FOREIGN.get(folded(given), "")
                hint = f"mxrun calls it {ours}" if ours else nearest(given, FORMS)
                raise custom_error("column_form", _WRITTEN, hint)
            return {given: {}}
        if not isinstance(given, Mapping) or sum(each is not None for each in given.values()) != 1:
            raise custom_error("column_form", _WRITTEN)
        return _with_tuples(given)

    @property
    def form(self) -> ColumnForm:
        """The treatment."""
        forms = (self.auto, self.number, self.category, self.date, self.text, self.ignore)
        return next(form for form in forms if form is not None)

    @classmethod
    def of(cls, form: ColumnForm) -> ColumnChoice:
        """Return a treatment as it is written."""
        return cls.model_validate({form.kind: form})


def _with_tuples(value: Any) -> Any:
    """Return parameters with tuples for lists, which JSON has for them."""
    if isinstance(value, Mapping):
        return {key: _with_tuples(each) for key, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _automatic(given: Any) -> Any:
    """Return the treatment of no column for `auto`: all are then treated by what they hold."""
    if isinstance(given, str) and given != ColumnForm.kind:
        raise custom_error("columns", "auto, or the treatment of columns: {age: number}")
    return {} if given == ColumnForm.kind else given


_KINDS = list(FORMS)
_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"enum": _KINDS},
        {
            "type": "object",
            "propertyNames": {"enum": _KINDS},
            "minProperties": 1,
            "maxProperties": 1,
        },
    ]
}
_Choice = Annotated[ColumnChoice, WithJsonSchema(_SCHEMA)]
Columns = Annotated[Mapping[Word, _Choice], BeforeValidator(_automatic)]
"""Type of a data set's option: treatment of columns by name, number or pattern, or auto."""


def or_auto(schema: dict[str, Any]) -> None:
    """Let a JSON schema also accept auto."""
    schema["anyOf"] = [*schema.get("anyOf", []), {"const": ColumnForm.kind}]


def select_forms(
    columns: Mapping[str, ColumnForm], names: Sequence[str], numbers: Sequence[int], where: str
) -> tuple[list[ColumnForm], list[Diagnostic]]:
    """Return the treatment of each column, and the problems of keys that name none.

    columns: by name, number or pattern; a name goes before a pattern, a later pattern before an
    earlier one. names: of the columns, or empty texts; where: the file, for messages.
    """
    used: set[str] = set()
    forms = []
    every = set(names)
    patterns = [key for key in columns if _PATTERN.search(key)]
    for name, number in zip(names, numbers, strict=True):
        key = name if name in columns else str(number)
        exact = [key] if key in columns and (key == name or key not in every) else []
        alike = [key for key in patterns if fnmatchcase(name, key) or (key == "*" and not name)]
        used.update(exact, alike)
        chosen = exact or alike
        forms.append(columns[chosen[-1]] if chosen else ColumnForm())
    known = [name or str(number) for name, number in zip(names, numbers, strict=True)]
    problems = [
        Diagnostic(
            f"{where}: no data column is named {key!r}",
            None,
            f"one of {', '.join(known)}",
            key,
            hint=nearest(key, known) or "the label is no data column",
        )
        for key in columns
        if key not in used
    ]
    return forms, problems
