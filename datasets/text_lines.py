"""Texts with labels in files: one a line, in a table's column, or in lines of JSON."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field as Option
from pydantic import StringConstraints

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.encodings import ENCODING_DOC, Encoding
from mxrun.io.paths import PATHS_DOC, Paths, find_files
from mxrun.io.text.labelled import LabelledTextOptions, labelled_dataset
from mxrun.io.text.lines import LineForm, read_texts

_Column = Annotated[int, Option(ge=0)] | Annotated[str, StringConstraints(min_length=1)]


class TextLinesOptions(LabelledTextOptions):
    """Files, their columns, tokens and labels."""

    path: Paths = Option(
        description="The texts: lines of a label, a tab and a text; a table (.csv, .tsv); "
        "or JSON objects, one a line or in one array (.jsonl, .json). "
        + PATHS_DOC.format(suffix="txt"),
        examples=["messages.txt", "reviews.csv"],
    )
    form: Literal["lines", "csv", "jsonl"] | None = Option(
        default=None,
        description="The form of the files; default: that of their ending, and lines for others.",
        examples=["csv"],
    )
    delimiter: Annotated[str, StringConstraints(min_length=1)] | None = Option(
        default=None,
        description="What stands between label and text of a line, or between the columns of a "
        "table, one character; default: a tab, and in a table what its first row has.",
        examples=[";"],
    )
    encoding: Encoding | None = Option(default=None, description=ENCODING_DOC, examples=["cp1252"])
    text: _Column | None = Option(
        default=None,
        description="The column or key of the text, by name or by number from 0; default: text, "
        "sentence, content, review, message or comment, else the column beside the label.",
        examples=["body"],
    )
    label: _Column | None = Option(
        default="",
        description="The column or key of the label, by name or by number from 0; null: there are "
        "no labels; default: label, class, category, target or sentiment, else the first column.",
        examples=["stars"],
    )

    @property
    def lines(self) -> LineForm:
        """Form of the files."""
        label = None if self.label == "" else self.label
        columns = (self.delimiter or "", self.text, label)
        return LineForm(self.form, *columns, self.label is not None, self.encoding or "")


@register("text_lines", TextLinesOptions, ("all",))
def read(options: TextLinesOptions, split: str, inputs: Inputs) -> Dataset:
    """Texts with labels; data int32 [length], ids of tokens, padded; label a class int32, or
    several.

    A network may read lengths, the number of tokens, and mask, float32 [length], 1 for each token
    and 0 for padding. The vocabulary is that of the training records, with padding as token 0 and
    the unknown one as token 1.
    """
    paths = find_files(options.path)
    found = read_texts(paths, options.lines)
    where = (str(paths[0]), found.locate, split)
    return labelled_dataset("text_lines", found.texts, found.labels, options, inputs, where)
