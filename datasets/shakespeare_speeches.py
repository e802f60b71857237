"""Speeches of the three bundled plays, each with its play as the label."""

from __future__ import annotations

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.dataset.registry import register
from mxrun.io.dataset.split import ALL
from mxrun.io.text.labelled import LabelledTextOptions, labelled_dataset

# Byte at which each play ends in the text.
_PLAYS = {"Coriolanus": 66_220, "Romeo and Juliet": 132_287, "The Taming of the Shrew": 198_372}
# Every fifth speech is one of the split test.
_SHARE = 5


class ShakespeareSpeechesOptions(LabelledTextOptions):
    """Tokens and labels of the bundled speeches."""


@register(
    "shakespeare_speeches",
    ShakespeareSpeechesOptions,
    ("train", "test", ALL),
    of_files="text_lines",
    licence="public domain (W. Shakespeare)",
)
def read(options: ShakespeareSpeechesOptions, split: str, inputs: Inputs) -> Dataset:
    """Speeches of three plays, bundled; data int32 [length], ids of tokens, label int32, the play.

    Without the speakers' names. `test` is every fifth speech, `train` the others, `all` both.
    """
    from mxrun.datasets.shakespeare import plays

    path = plays()
    texts, labels, lines = _speeches(path.read_bytes())
    numbers = [
        number
        for number in range(len(texts))
        if split == ALL or (number % _SHARE == _SHARE - 1) == (split == "test")
    ]

    def locate(record: int) -> RecordLocation:
        return RecordLocation(f"{path}:{lines[numbers[record]]}")

    words, names = ([column[number] for number in numbers] for column in (texts, labels))
    where = (str(path), locate, split)
    return labelled_dataset("shakespeare_speeches", words, names, options, inputs, where)


def _speeches(content: bytes) -> tuple[list[str], list[str], list[int]]:
    """Return the speeches, their plays, and the line at which each begins."""
    texts, labels, lines = [], [], []
    start, line = 0, 1
    for play, end in _PLAYS.items():
        for speech in content[start:end].decode("ascii").split("\n\n"):
            speaker, _, text = speech.strip("\n").partition(":\n")
            if speaker and text:
                texts.append(text)
                labels.append(play)
                lines.append(line + 1)
            line += speech.count("\n") + 2
        start, line = end + 1, content[: end + 1].count(b"\n") + 1
    return texts, labels, lines
