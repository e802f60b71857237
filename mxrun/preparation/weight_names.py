"""Names of other frameworks' weights: patterns that turn them into the names of this network.

A pattern names tensors or layers there, and a text gives their names here:

    features.{i}.conv: stage{1 + i // 4}/unit{i % 4}/conv
    encoder.*: */dense

`{i}` is a whole number and `*` any text; in the names here `{...}` is arithmetic with the numbers,
and each `*` stands for the next text. A pattern that matches no entire name is compared with the
layer's: the name up to its last `.` or `/`, of which the rest is the tensor's kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from mxrun.base.dataclass import dataclass
from mxrun.config.arithmetic import ExpressionError, evaluate

_PART = re.compile(r"\*|\{([^{}]*)\}")
_NUMBER_NAME = re.compile(r"[A-Za-z_]\w*\Z")
# By the last part of a name there, the last parts of names here: the first that the layer has.
KINDS: Mapping[str, tuple[str, ...]] = {
    "weight": ("weight", "gamma"),
    "bias": ("bias", "beta"),
    "running_mean": ("moving_mean",),
    "running_var": ("moving_var",),
    "kernel": ("weight",),
    "depthwise_kernel": ("weight",),
    "moving_variance": ("moving_var",),
    **{each: (each,) for each in ("gamma", "beta", "moving_mean", "moving_var")},
}


@dataclass(frozen=True)
class NamePattern:
    """Pattern of names there, and the text of the names here."""

    there: str
    here: str
    form: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ExpressionError for a pattern or a text of another form."""
        parts, end = [], 0
        for part in _PART.finditer(self.there):
            name = part[1]
            if name is not None and not _NUMBER_NAME.match(name):
                raise ExpressionError(f"{{{name}}} is no name of a number, such as {{i}}", end)
            parts += [re.escape(self.there[end : part.start()])]
            parts += ["(.*)" if name is None else rf"(?P<{name}>[0-9]{{1,9}})"]
            end = part.end()
        try:
            form = re.compile("".join((*parts, re.escape(self.there[end:]), r"\Z")), re.DOTALL)
        except re.error as error:
            raise ExpressionError(str(error), 0) from error
        object.__setattr__(self, "form", form)
        stars = [self.there.count("*"), self.here.count("*")]
        if stars[1] > stars[0]:
            raise ExpressionError(f"{self.here!r} has more * than {self.there!r}", 0)
        for part in _PART.finditer(self.here):
            if part[1] is not None:
                evaluate(part[1], dict.fromkeys(form.groupindex, 1))

    def name(self, there: str) -> str | None:
        """Return the name here of what has the name `there`, or None if the pattern differs."""
        found = self.form.match(there)
        if found is None:
            return None
        numbers = {name: int(text) for name, text in found.groupdict().items()}
        named = {self.form.groupindex[name] for name in numbers}
        texts = iter(
            text for group, text in enumerate(found.groups(), start=1) if group not in named
        )
        return _PART.sub(
            lambda part: next(texts) if part[1] is None else str(evaluate(part[1], numbers)),
            self.here,
        )


@dataclass(frozen=True)
class TranslatedName:
    """Tensor of this network that a name of a file means.

    layer: here; kind: the last part there, empty if the entire name was translated.
    """

    name: str
    layer: str
    kind: str


def candidates(patterns: tuple[NamePattern, ...], there: str) -> Iterator[TranslatedName]:
    """Yield what the tensor `there` may be here, most probable first."""
    for pattern in patterns:
        if (name := pattern.name(there)) is not None:
            yield TranslatedName(name, name.rpartition("_")[0], "")
    layer, kind = re.split(r"[./](?=[^./]*\Z)", there) if re.search("[./]", there) else ("", "")
    for pattern in patterns if kind in KINDS else ():
        if (name := pattern.name(layer)) is not None:
            yield from (TranslatedName(f"{name}_{end}", name, kind) for end in KINDS[kind])
