"""Data sets of texts with labels: their options, and their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Int32
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.dataset.texts import DATA, MASK, PADDING, TextColumn
from mxrun.io.formats.labels import LabelForm, label_fields
from mxrun.io.paths import PathText
from mxrun.io.text.dataset import UNKNOWN, TokenOptions, window_length

_Size = Annotated[Int32, Option(ge=1)]


class LabelledTextOptions(TokenOptions):
    """How texts and labels become records."""

    tokens: Annotated[str, Option(min_length=1)] = Option(
        default="words",
        description="The tokens: words, characters, bytes, or the path of a tokenizer's file of "
        "the tokenizers library (tokenizer.json), which starts at the config's folder.",
        examples=["characters", "tokenizer.json"],
    )
    lower: bool = Option(default=True, description="Whether texts are read in lower case.")
    unknown: Annotated[str, Option(min_length=1)] = Option(
        default=UNKNOWN,
        description="The token that stands for all words or characters that the vocabulary does "
        "not have.",
    )
    length: _Size | None = Option(
        default=None,
        description="The number of tokens of a record: longer texts are cut, shorter ones padded; "
        "default: that of the network's input data.",
        examples=[64],
    )
    kept: Literal["start", "end"] = Option(
        default="start", description="The part of longer texts that is kept."
    )
    padding: Annotated[Int32, Option(ge=0)] = Option(
        default=0,
        description="The id that follows a text's last token; a vocabulary that is learned has "
        "the token <pad> there.",
    )
    buckets: tuple[_Size, ...] = Option(
        default=(),
        description="Lengths, ascending and below the length of a record: a batch then holds texts "
        "of one bucket, the shortest length that holds them, and is no longer than that; default: "
        "all batches have the length of a record.",
        examples=[[16, 32]],
    )
    separator: PathText | None = Option(
        default=None,
        description="Separator of several classes in one label, whose numbers are then 1 for each "
        "class of the text and 0 for the others; default: a label is one class.",
        examples=["|"],
    )
    classes: tuple[PathText, ...] = Option(
        default=(),
        description="Names of the classes in the order of their numbers; default: sorted.",
        examples=[["ham", "spam"]],
    )

    @property
    def padded(self) -> tuple[str, ...]:
        """Names of the fields that have the length of a bucket."""
        return (DATA, MASK)


def labelled_dataset(
    name: str,
    texts: Sequence[str],
    labels: Sequence[str],
    options: LabelledTextOptions,
    inputs: Inputs,
    places: tuple[str, Callable[[int], RecordLocation], str],
) -> Dataset:
    """Return texts with their labels, without labels if there are none, as a data set.

    places: the file of the texts, the place of each one, and the split. Raises UserError naming the
    first record with a wrong label.
    """
    file, locate, split = places
    form = LabelForm(options.separator, options.classes)
    fields, classes = label_fields(list(labels), inputs, locate, form)
    column = text_column(texts, options, inputs, file)
    return Dataset(name, fields, classes, split, texts=column)


def text_column(
    texts: Sequence[str], options: LabelledTextOptions, inputs: Inputs, file: str
) -> TextColumn:
    """Return texts as a column; file: for messages. Raises UserError for wrong options."""
    tokens = options.form_of_tokens((PADDING,))
    length = window_length(options.length, inputs)
    about = (length, options.kept, options.padding, _buckets(options, length), file)
    return TextColumn(texts, tokens, *about)


def _buckets(options: LabelledTextOptions, length: int) -> tuple[int, ...]:
    """Return the lengths of all buckets; raises UserError if they do not ascend to `length`."""
    if not options.buckets:
        return ()
    shorter = [each for each in options.buckets if each != length]
    if shorter != sorted(set(shorter)) or shorter[-1:] > [length]:
        problem = "the lengths of buckets do not ascend to the length of a record"
        got = ", ".join(map(str, options.buckets))
        raise UserError(Diagnostic(problem, None, f"ascending lengths below {length}", got))
    return (*shorter, length)
