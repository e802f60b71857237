"""Data sets of one long text: its options, and its windows as records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.base.params import Int32, Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.split import ALL
from mxrun.io.text.spans import TextSpan, divided, require_text
from mxrun.io.text.tokens import encoded, learn_vocabulary
from mxrun.io.text.windows import window_fields
from mxrun.io.vocabulary.form import BYTES, KINDS, LISTED, WORDS, TokenForm
from mxrun.io.vocabulary.vocabulary import Vocabulary

TRAIN, TEST = "train", "test"
SPLITS = (TRAIN, TEST, ALL)

UNKNOWN = "<unk>"
_DEFAULT_LENGTH = 64
# Options of a vocabulary that is learned.
_LEARNED = ("lower", "punctuation", "min_count", "vocabulary", "unknown")
_Size = Annotated[Int32, Option(ge=1)]


class TokenOptions(Parameters):
    """How texts become tokens."""

    tokens: Annotated[str, Option(min_length=1)] = Option(
        default="characters",
        description="The tokens: characters, bytes, words, or the path of a tokenizer's file of "
        "the tokenizers library (tokenizer.json), which starts at the config's folder.",
        examples=["words", "tokenizer.json"],
    )
    lower: bool = Option(default=False, description="Whether texts are read in lower case.")
    punctuation: bool = Option(
        default=True,
        description="Whether punctuation marks are words of their own; if not, words are what "
        "stands between blanks.",
    )
    min_count: _Size = Option(
        default=1,
        description="How often a character or word must occur in training's text to be in the "
        "vocabulary.",
        examples=[2],
    )
    vocabulary: _Size | None = Option(
        default=None,
        description="The largest number of tokens of the vocabulary, which are then the most "
        "frequent ones; default: all.",
        examples=[10000],
    )
    unknown: Annotated[str, Option(min_length=1)] | None = Option(
        default=None,
        description="The token that stands for all that the vocabulary does not have; default: "
        "<unk> for words, and none for characters: others are refused.",
        examples=["?"],
    )

    def form_of_tokens(self, extra: tuple[str, ...] = ()) -> TokenForm:
        """Form of the tokens. Raises UserError for options that the tokens do not have.

        extra: tokens of the first ids of a vocabulary that is learned, such as that of padding.
        """
        if self.tokens not in KINDS and not self.tokens.endswith(".json"):
            problem = f"tokens: {self.tokens!r} is neither a kind of tokens nor a tokenizer's file"
            expected = f"{', '.join(KINDS)}, or a file that ends in .json"
            raise UserError(Diagnostic(problem, None, expected))
        written = frozenset(self.model_fields_set)
        if self.tokens in LISTED:
            unknown = self.unknown or (UNKNOWN if self.tokens == WORDS else None)
            if unknown in extra:
                problem = f"unknown: {unknown!r} is already the token of padding"
                expected = f"another token, such as {UNKNOWN}"
                raise UserError(Diagnostic(problem, None, expected))
            about = (self.lower, self.punctuation, self.min_count, self.vocabulary, unknown, extra)
            return TokenForm(self.tokens, *about, written)
        what = "bytes" if self.tokens == BYTES else "a tokenizer's file"
        wrong = [name for name in _LEARNED if name in self.model_fields_set]
        if wrong:
            problem = f"tokens: {what}: the vocabulary is given, and {listed(wrong)} has no meaning"
            raise UserError(Diagnostic(problem, hint=f"leave out {listed(wrong)}"))
        return TokenForm(self.tokens, written=written)


class TextOptions(TokenOptions):
    """How a text becomes records."""

    length: _Size | None = Option(
        default=None,
        description="The number of tokens of a window; default: that of the network's input data.",
        examples=[256],
    )
    stride: _Size | None = Option(
        default=None,
        description="The number of tokens from the beginning of a window to that of the next one; "
        "default: the length, so that windows do not overlap.",
        examples=[64],
    )
    order: Literal["windows", "stream"] = Option(
        default="windows",
        description="windows: records are independent, and may be shuffled. stream: row b of a "
        "batch reads the b-th of equal parts of the text, and each batch goes on where the one "
        "before ended, so that states can be carried from batch to batch.",
    )
    held_out: Annotated[float, Option(ge=0, lt=1)] = Option(
        default=0.1,
        description="The fraction at the end of the text that is the split test; 0 with texts for "
        "evaluation in files of their own, which are read with split: all.",
        examples=[0.05],
    )


def text_dataset(
    name: str,
    paths: Sequence[Path],
    options: TextOptions,
    split: str,
    inputs: Inputs,
    vocabulary: Vocabulary | None,
) -> Dataset:
    """Return the windows of a split of a text.

    vocabulary: that of training; by default it is learned from the split train, or from the entire
    text if `split` is all. Raises UserError for text that cannot be read, or is too short.
    """
    form, length = options.form_of_tokens(), window_length(options.length, inputs)
    stride = options.stride or length
    if options.order == "stream" and stride != length:
        problem = "the windows of a stream follow each other without gaps"
        raise UserError(
            Diagnostic(problem, None, f"stride: {length}", str(stride), hint="leave it out")
        )
    reads_text, at_words = form.tokens != BYTES, form.at_words
    if vocabulary is not None:
        form.check(vocabulary)
        reads_text, at_words = vocabulary.reads_text, vocabulary.at_words
    require_text(paths, reads_text)
    first, last = divided(paths, options.held_out, at_words)
    spans: dict[str, Sequence[TextSpan]] = {TRAIN: first, TEST: last, ALL: _joined(first, last)}
    learned_from = ALL if split == ALL else TRAIN
    for each in (split, learned_from) if vocabulary is None else (split,):
        if not spans[each]:
            raise UserError(_empty_split(each, options.held_out, sum(map(len, spans[ALL]))))
    if vocabulary is None:
        vocabulary = learn_vocabulary(form, spans[learned_from])
    tokens = encoded(spans[split], vocabulary)
    return Dataset(
        name,
        window_fields(tokens, length, stride),
        split=split,
        vocabulary=vocabulary,
        is_stream=options.order == "stream",
    )


def _empty_split(split: str, held_out: float, size: int) -> Diagnostic:
    """Return the diagnostic for a split without text; size: that of the entire text, in bytes."""
    problem = f"the split {split} has no text"
    if not held_out:
        expected, hint = (
            "a fraction above 0",
            "write held_out: 0.1, or split: all for the entire text",
        )
    else:
        change = "smaller" if split == TRAIN else "larger"
        expected = f"a {change} fraction, or a longer text"
        hint = "write split: all for the entire text, and evaluate another one"
    got = f"held_out: {held_out:g} of {size:,} byte{'' if size == 1 else 's'}"
    return Diagnostic(problem, None, expected, got, hint=hint)


def _joined(first: Sequence[TextSpan], last: Sequence[TextSpan]) -> tuple[TextSpan, ...]:
    """Return both parts of a text, without a cut within a file."""
    if first and last and first[-1].path == last[0].path:
        whole = TextSpan(first[-1].path, first[-1].start, last[0].stop)
        return (*first[:-1], whole, *last[1:])
    return (*first, *last)


def window_length(given: int | None, inputs: Inputs) -> int:
    """Return the number of tokens of a record: the one given, or that of the network's input."""
    if given is not None:
        return given
    shape = inputs["data"].shape if "data" in inputs else ()
    return shape[0] if len(shape) == 1 else _DEFAULT_LENGTH
