"""Tiny Shakespeare: 1.1 MB of plays by Shakespeare in one text file.

Source: A. Karpathy, char-rnn, https://github.com/karpathy/char-rnn, data/tinyshakespeare/input.txt;
the text is in the public domain.
"""

from __future__ import annotations

from pydantic import Field as Option

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.files import find_file, user_path
from mxrun.io.paths import PathText
from mxrun.io.text.dataset import SPLITS, TextOptions, text_dataset
from mxrun.io.vocabulary.vocabulary import Vocabulary


class TinyShakespeareOptions(TextOptions):
    """Folder of the file, tokens and windows."""

    path: PathText = Option(
        description="Folder with input.txt. A relative path starts at the config's folder.",
        examples=["tiny_shakespeare"],
    )


@register(
    "tiny_shakespeare", TinyShakespeareOptions, SPLITS, learns_vocabulary=True, of_files="text"
)
def read(
    options: TinyShakespeareOptions,
    split: str,
    inputs: Inputs,
    vocabulary: Vocabulary | None = None,
) -> Dataset:
    """1.1 MB of Shakespeare's plays as windows of tokens; data and label int32 [length].

    Of 65 characters. `test` is the end of the text, as much as `held_out` says, `train` what is
    before it, `all` both.
    """
    file = find_file(user_path(options.path), "input.txt")
    return text_dataset("tiny_shakespeare", (file,), options, split, inputs, vocabulary)
