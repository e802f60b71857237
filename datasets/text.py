"""Text files as windows of token ids, to predict from each token the next one."""

from __future__ import annotations

from pydantic import Field as Option

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.paths import PATHS_DOC, Paths, find_files
from mxrun.io.text.dataset import SPLITS, TextOptions, text_dataset
from mxrun.io.vocabulary.vocabulary import Vocabulary


class TextFileOptions(TextOptions):
    """Files, tokens and windows."""

    path: Paths = Option(
        description="The text, UTF-8. " + PATHS_DOC.format(suffix="txt"),
        examples=["book.txt", "books/*.txt"],
    )


@register("text", TextFileOptions, SPLITS, learns_vocabulary=True)
def read(
    options: TextFileOptions, split: str, inputs: Inputs, vocabulary: Vocabulary | None = None
) -> Dataset:
    """Windows of a text; data int32 [length], ids of tokens, and label int32 [length], the ids one
    place later.

    `test` is the end of the text, as much as `held_out` says, `train` what is before it, `all`
    both. The vocabulary is that of `train`'s text.
    """
    return text_dataset("text", find_files(options.path), options, split, inputs, vocabulary)
