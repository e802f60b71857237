"""Registry: a named table that rejects duplicates and suggests names near an unknown one.

The file `index.json` lists names whose modules are imported on their first look-up. It is generated
(`tests/support/registry_index.py`) from the modules that register them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.foreign_names import hint_for
from mxrun.base.near_names import folded, listed, nearest

T = TypeVar("T")
E = TypeVar("E")
# By attribute, what is known of an entry before its module is imported; as in JSON.
Attributes = Mapping[str, Any]

INDEX = Path(__file__).with_name("index.json")
# Attribute of the index: the module that registers a name.
MODULE = "module"
_ALIASES = "aliases"
# Attribute of an entry: by its form in a config, names of other frameworks, separated by spaces.
FOREIGN = "foreign"


@cache
def index() -> Mapping[str, Mapping[str, Attributes]]:
    """Return the attributes of every name that can be imported, by kind and name."""
    # The program starts without registries.
    import json

    found: Mapping[str, Mapping[str, Attributes]] = json.loads(INDEX.read_bytes())
    return found


class Registry(Generic[T]):
    """Map from names and aliases to entries of one kind; messages use `kind`.

    The index declares further names, whose entries are imported when they are looked up.
    """

    _all: ClassVar[list[Registry[Any]]] = []

    def __init__(self, kind: str) -> None:
        self._all.append(self)
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._attributes: dict[str, Attributes] = {}
        self._declared = index().get(kind, {})
        self._aliases: dict[str, str] = {
            alias: name for name, each in self._declared.items() for alias in each.get(_ALIASES, ())
        }

    def add(self, name: str, entry: T, *aliases: str, **attributes: Any) -> None:
        """Register `entry`; raises InternalError if a name or alias is already taken.

        attributes: what `attribute` returns of it; None and empty ones, but no number, are
        left out.
        """
        for key in (name, *aliases):
            if self.is_taken(key):
                raise InternalError(f"{self.kind} {key!r} is registered twice")
        self._entries[name] = entry
        self._aliases.update(dict.fromkeys(aliases, name))
        self._attributes[name] = {
            key: value for key, value in attributes.items() if value or value == 0
        }

    def is_taken(self, key: str) -> bool:
        """Return whether `key` is a name or an alias, if only of a module to be imported."""
        name = self._aliases.get(key, key)
        declared = self._declared.get(name)
        is_declared = declared is not None and declared[MODULE] not in sys.modules
        return is_declared or name in self._entries

    def register(self, name: str, **attributes: Any) -> Callable[[E], E]:
        """Return a decorator that registers a class or function as `name`; see `add`."""

        def add(entry: Any) -> Any:
            self.add(name, entry, **attributes)
            return entry

        return add

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
        """Go back to what was registered before.

        Declared names are kept: their modules stay imported and would not register them again.
        """
        kept = {name: each for name, each in self._entries.items() if name in self._declared}
        self._entries, self._aliases = {**kept, **entries}, aliases

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._aliases or name in self._declared

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._entries, *self._declared}))

    def get(self, name: str) -> T:
        """Look up a name or alias; raises UserError naming the nearest known names."""
        key = self._aliases.get(name, name)
        if key in self._declared and key not in self._entries:
            importlib.import_module(self._declared[key][MODULE])
        entry = self._entries.get(key)
        if entry is None:
            raise UserError(self.unknown(name))
        return entry

    def names(self) -> Iterator[str]:
        """Yield every name, sorted, and every alias."""
        yield from self
        yield from sorted(self._aliases)

    def aliases(self, name: str) -> tuple[str, ...]:
        """Return the aliases of the entry registered as `name`, sorted."""
        return tuple(sorted(alias for alias, entry in self._aliases.items() if entry == name))

    def attribute(self, key: str) -> dict[str, Any]:
        """Return an attribute of every entry that has it, by name; imports no module."""
        known = {
            **self._declared,
            **{name: self._attributes.get(name, {}) for name in self._entries},
        }
        return {name: known[name][key] for name in sorted(known) if key in known[name]}

    def foreign(self) -> dict[str, str]:
        """Return the forms in a config by the folded name that another framework has for each."""
        forms = self.attribute(FOREIGN).values()
        return {
            word: form for each in forms for form, words in each.items() for word in words.split()
        }

    def foreign_to(self, word: str) -> list[str]:
        """Return the entries that another framework calls by a word, in any case."""
        known = self.attribute(FOREIGN).items()
        return [name for name, forms in known if folded(word) in " ".join(forms.values()).split()]

    def unknown(self, name: str) -> Diagnostic:
        """Return the diagnostic for a name that is not registered."""
        names = list(self.names())
        form = self.foreign().get(folded(name))
        hint = hint_for(self.kind, name) or (f"mxrun calls it {form}" if form else "")
        hint = hint or nearest(name, names) or f"known: {listed(sorted(names))}"
        return Diagnostic(f"unknown {self.kind} {name!r}", hint=hint)
