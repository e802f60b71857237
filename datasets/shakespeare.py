"""Beginnings of three plays by Shakespeare, 198 kB of text, bundled with mxrun.

`shakespeare.txt` holds the first 66 kB of Coriolanus, Romeo and Juliet, and The Taming of the Shrew
(from Sly's waking on), as A. Karpathy's char-rnn has them in tinyshakespeare/input.txt: speeches
with their speakers, without stage directions. The text is in the public domain.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from mxrun.base.errors import InternalError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.text.dataset import SPLITS, TextOptions, text_dataset
from mxrun.io.vocabulary.vocabulary import Vocabulary

_FILE = "shakespeare.txt"
_SHA256 = "b3a7e367ece16433fdfce334c6ebbd43e5905832513bf20511b784feb36a1db3"


class ShakespeareOptions(TextOptions):
    """Tokens and windows of the bundled plays."""


@register(
    "shakespeare",
    ShakespeareOptions,
    SPLITS,
    learns_vocabulary=True,
    of_files="text",
    licence="public domain (W. Shakespeare)",
)
def read(
    options: ShakespeareOptions, split: str, inputs: Inputs, vocabulary: Vocabulary | None = None
) -> Dataset:
    """198 kB of three plays, bundled, as windows of tokens; data and label int32 [length].

    Of 62 characters. `test` is the end of the text, as much as `held_out` says, `train` what is
    before it, `all` both.
    """
    return text_dataset("shakespeare", (plays(),), options, split, inputs, vocabulary)


def plays() -> Path:
    """Return the path of the bundled text; raises InternalError if it is damaged."""
    path = Path(__file__).with_name(_FILE)
    if hashlib.sha256(path.read_bytes()).hexdigest() != _SHA256:
        raise InternalError(f"the bundled {_FILE} is damaged; install mxrun again")
    return path
