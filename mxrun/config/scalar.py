"""Resolution of plain scalars by YAML 1.2's core schema (section 10.3.2 of the specification)."""

from __future__ import annotations

import re

from mxrun.config.marked import Scalar

_NAMED: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_PREFIXED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
MAX_NUMBER_LENGTH = 100


def resolve(text: str) -> Scalar:
    """Return the value of an unquoted scalar; everything outside the core schema is text.

    Raises ValueError if a number has more than 100 characters, or an integer of any base more than
    100 decimal digits, in which it is saved.
    """
    if text in _NAMED:
        return _NAMED[text]
    if _INFINITY.fullmatch(text):
        return float("-inf") if text[0] == "-" else float("inf")
    decimal, prefixed = _DECIMAL.fullmatch(text), _PREFIXED.fullmatch(text)
    if not (decimal or prefixed or _FLOAT.fullmatch(text)):
        return text
    if len(text) > MAX_NUMBER_LENGTH:
        raise ValueError(f"a number of {len(text)} characters")
    if decimal:
        return int(text)
    if not prefixed:
        return float(text)
    value = int(text, 0)
    if value >= 10**MAX_NUMBER_LENGTH:
        raise ValueError(f"a number of {len(str(value))} digits")
    return value
