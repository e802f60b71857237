"""Names of devices: `KIND`, or `KIND:INDEX` with the device's number among those of its kind."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import StringConstraints

from mxrun.base.description import Written
from mxrun.base.device import KIND_NAME

DEFAULT_CONTEXT = "cpu"

_CONTEXT = re.compile(rf"({KIND_NAME})(?::([0-9]{{1,4}}))?", re.ASCII)

AnyContext = Annotated[
    str,
    StringConstraints(pattern=f"^{_CONTEXT.pattern}$"),
    Written("KIND or KIND:INDEX, such as cpu or gpu:1"),
]


def split_context(context: object) -> tuple[str, int] | None:
    """Return the kind and the number of the device that a context names; None for other values."""
    match = _CONTEXT.fullmatch(context) if isinstance(context, str) else None
    return None if match is None else (match[1], int(match[2] or 0))
