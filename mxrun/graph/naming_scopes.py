"""Names of unnamed nodes (MXNet's NameManager and Prefix)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TypeVar

Manager = TypeVar("Manager", bound="NameManager")


class NameManager:
    """Generator of MXNet's names for unnamed nodes: `convolution0`, `convolution1`, ...

    As a context manager it is in use within its block, where names count from its own counters, so
    that they do not depend on what was composed before.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._tokens: list[Token[NameManager]] = []

    def get(self, name: str | None, operator: str) -> str:
        """Return `name` if it is given, else the next name for an operator."""
        if name is not None:
            return name
        hint = operator.lower()
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        return f"{hint}{count}"

    def __enter__(self: Manager) -> Manager:
        self._tokens.append(_MANAGER.set(self))
        return self

    def __exit__(self, *exception: object) -> None:
        _MANAGER.reset(self._tokens.pop())


class Prefix(NameManager):
    """Name manager that puts a prefix before every operator's name, given ones included."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, operator: str) -> str:
        """Return the prefix and the name."""
        return self._prefix + super().get(name, operator)


_MANAGER: ContextVar[NameManager] = ContextVar("names", default=NameManager())  # noqa: B039


def node_name(name: str | None, operator: str) -> str:
    """Return the name of a new node by the name manager in use."""
    return _MANAGER.get().get(name, operator)


@contextmanager
def fresh_names() -> Iterator[None]:
    """Context manager within which automatic names count from 0, so that they are stable."""
    with NameManager():
        yield
