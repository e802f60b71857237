"""Names of devices: `KIND`, or `KIND:INDEX` with the device's number among those of its kind.

A list of them names several devices of one kind, which compute parts of each batch.
"""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, StringConstraints

from mxrun.base.description import Written
from mxrun.base.device import KIND_NAME
from mxrun.base.validation import custom_error

DEFAULT_CONTEXT = "cpu"

_CONTEXT = re.compile(rf"({KIND_NAME})(?::([0-9]{{1,4}}))?", re.ASCII)

AnyContext = Annotated[
    str,
    StringConstraints(pattern=f"^{_CONTEXT.pattern}$"),
    Written("KIND or KIND:INDEX, such as cpu or cpu:1"),
]


Device: TypeAlias = "tuple[str, int]"
"""Kind of a device, and its number among those of its kind."""


def split_context(context: object) -> Device | None:
    """Return the kind and the number of the device that a context names; None for other values."""
    match = _CONTEXT.fullmatch(context) if isinstance(context, str) else None
    return None if match is None else (match[1], int(match[2] or 0))


def split_contexts(contexts: object) -> tuple[Device, ...]:
    """Return the devices that the value of `context` names, one or a list; () if it is invalid."""
    if not isinstance(contexts, (tuple, list)):
        device = split_context(contexts)
        return () if device is None else (device,)
    devices = tuple(map(split_context, contexts))
    found = tuple(device for device in devices if device is not None)
    return found if len(found) == len(devices) else ()


def _require_distinct(contexts: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Raise PydanticCustomError unless a list names different devices of one kind."""
    devices = split_contexts(contexts)
    if not devices:
        raise custom_error("contexts", "at least one device")
    for number, (kind, _) in enumerate(devices):
        if kind != devices[0][0]:
            raise custom_error("contexts", "devices of one kind", item=number)
    for number, device in enumerate(devices):
        if device in devices[:number]:
            raise custom_error("contexts", "different devices, each listed once", item=number)
    return contexts


AnyContexts = Annotated[
    AnyContext | tuple[AnyContext, ...],
    AfterValidator(_require_distinct),
    Written("KIND or KIND:INDEX, such as cpu or cpu:1, or a list of devices of one kind"),
]
