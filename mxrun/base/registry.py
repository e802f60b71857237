"""Registry: a named table that rejects duplicates and suggests names near an unknown one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.foreign_names import hint_for
from mxrun.base.near_names import listed, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """Map from names and aliases to entries of one kind; messages use `kind`."""

    _all: ClassVar[list[Registry[Any]]] = []

    def __init__(self, kind: str) -> None:
        self._all.append(self)
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._aliases: dict[str, str] = {}

    def add(self, name: str, entry: T, *aliases: str) -> None:
        """Register `entry`; raises InternalError if a name or alias is already taken."""
        for key in (name, *aliases):
            if key in self._entries or key in self._aliases:
                raise InternalError(f"{self.kind} {key!r} is registered twice")
        self._entries[name] = entry
        self._aliases.update(dict.fromkeys(aliases, name))

    def put(self, name: str, entry: T) -> None:
        """Register `entry`, replacing an entry of that name."""
        self._entries[name] = entry

    @classmethod
    @contextmanager
    def all_or_nothing(cls) -> Iterator[None]:
        """Context manager that undoes the registrations of every registry if its block raises."""
        before = [(each, dict(each._entries), dict(each._aliases)) for each in cls._all]
        kept = False
        try:
            yield
            kept = True
        finally:
            if not kept:
                for each, entries, aliases in before:
                    each._undo(entries, aliases)

    def _undo(self, entries: dict[str, T], aliases: dict[str, str]) -> None:
        """Go back to what was registered before."""
        self._entries, self._aliases = entries, aliases

    def __contains__(self, name: str) -> bool:
        return name in self._entries or name in self._aliases

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def get(self, name: str) -> T:
        """Look up a name or alias; raises UserError naming the nearest known names."""
        entry = self._entries.get(self._aliases.get(name, name))
        if entry is None:
            raise UserError(self.unknown(name))
        return entry

    def names(self) -> Iterator[str]:
        """Yield every name and alias."""
        yield from self._entries
        yield from self._aliases

    def aliases(self, name: str) -> tuple[str, ...]:
        """Return the aliases of the entry registered as `name`, sorted."""
        return tuple(sorted(alias for alias, entry in self._aliases.items() if entry == name))

    def unknown(self, name: str) -> Diagnostic:
        """Return the diagnostic for a name that is not registered."""
        names = list(self.names())
        hint = hint_for(self.kind, name) or nearest(name, names)
        hint = hint or f"known: {listed(sorted(names))}"
        return Diagnostic(f"unknown {self.kind} {name!r}", hint=hint)
