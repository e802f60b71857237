"""Choice of one kind with its parameters: `{kind: {parameter: value}}`, or just `kind`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import SourceLocation
from mxrun.base.validation import custom_error
from mxrun.config.marked import SourceNode

_FORM = "{kind: {parameter: value}}"
_EXAMPLES = "{f1: {average: macro}}, {sgd: {lr: 0.1}}"


@dataclass(frozen=True)
class Choice:
    """Name of a kind and its parameters as written; whether the kind exists is checked later.

    `place` is the location of the kind's name. Parameters still to be given are omitted.
    """

    kind: str
    parameters: Mapping[str, SourceNode]
    place: SourceLocation = field(compare=False)

    written: ClassVar[str] = _FORM


def read_choice(given: object) -> object:
    """Convert a marked value to a Choice; raises PydanticCustomError if it has another form."""
    if given is None:
        raise custom_error("choice", _FORM)
    if not isinstance(given, SourceNode):
        return given
    if isinstance(given.value, str):
        return Choice(given.value, {}, given.place)
    if isinstance(given.value, Mapping) and len(given.value) == 1:
        ((kind, body),) = given.value.items()
        if body.value is None:
            return Choice(kind, {}, body.start)
        if isinstance(body.value, Mapping):
            filled = {key: part for key, part in body.value.items() if not part.is_placeholder}
            return Choice(kind, filled, body.start)
    raise custom_error("choice", _FORM, _hint(given.value))


def _hint(value: object) -> str:
    if not isinstance(value, Mapping) or not value:
        return ""
    if len(value) == 1:
        (kind,) = value
        return f"name the parameter: {{{kind}: {{NAME: VALUE}}}}, as in {_EXAMPLES}"
    return (
        f"write one kind in each, with its parameters as its value, as in {_EXAMPLES}; an override "
        "of a key within adds to the config: replace the whole, as in "
        "train.optimizer={adam: {lr: 1e-3}}"
    )
