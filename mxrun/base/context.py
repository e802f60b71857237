"""Context: the device, by kind and number, that an array lives on or that an operation uses."""

from __future__ import annotations

import operator
import threading
from typing import TYPE_CHECKING

from mxrun.base.dataclass import dataclass
from mxrun.base.device import CPU
from mxrun.base.errors import Diagnostic, UserError

if TYPE_CHECKING:
    from typing_extensions import Self

_entered = threading.local()


@dataclass(frozen=True, order=True)
class Context:
    """MXNet's Context: `kind` names a kind of device, `index` one of its devices.

    As a context manager, `with cpu(1):`, it is the context of new arrays of this thread.

    A context says where something shall happen; the stream of a device on which it then happens is
    part of the engine's RunContext.
    """

    kind: str = CPU
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    def __enter__(self) -> Self:
        _entered.contexts = [*_contexts(), self]
        return self

    def __exit__(self, *error: object) -> None:
        _entered.contexts = _contexts()[:-1]


def _contexts() -> list[Context]:
    contexts: list[Context] = getattr(_entered, "contexts", [])
    return contexts


def current_context() -> Context:
    """Return the context of new arrays: that of the innermost `with`, else cpu:0."""
    contexts = _contexts()
    return contexts[-1] if contexts else Context()


def cpu(index: int = 0) -> Context:
    """Return the context of the processor; several indices are several pools of threads.

    Raises UserError for a negative one.
    """
    number = operator.index(index)
    if number < 0:
        raise UserError(Diagnostic("cpu", expected="a number from 0", got=str(number)))
    return Context(CPU, number)
