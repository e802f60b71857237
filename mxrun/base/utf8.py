"""Names of files as text that UTF-8 can hold."""

from __future__ import annotations

import re

_BYTES = re.compile("[\udc80-\udcff]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


def valid_text(text: str) -> str:
    r"""Return a text in which bytes of a file's name that are not UTF-8 are spelled out, `\xe9`.

    Python decodes such a byte as U+DC00 + byte (surrogateescape), which no other program reads.
    """
    if text.isascii():
        return text
    # In a locale without UTF-8 several of them may be one character.
    text = _BYTES.sub(_spelled, text)
    return _SURROGATE.sub(lambda found: ascii(found[0])[1:-1], text)


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
