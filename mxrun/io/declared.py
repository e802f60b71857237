"""Registry whose entries are known by name before the modules that define them are imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import TypeVar

from mxrun.base.errors import InternalError
from mxrun.base.registry import Registry

T = TypeVar("T")


class DeclaredRegistry(Registry[T]):
    """Registry with lazy imports: a declared module is imported on the first look-up."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self._modules: dict[str, str] = {}

    def declare(self, name: str, module: str) -> None:
        """Declare that importing `module` registers `name`."""
        self._modules[name] = module

    def add(self, name: str, entry: T, *aliases: str) -> None:
        """Register `entry`; raises InternalError if a name is taken, if only by a declaration."""
        for key in (name, *aliases):
            if key in self._modules and self._modules[key] not in sys.modules:
                raise InternalError(f"{self.kind} {key!r} is registered twice")
        super().add(name, entry, *aliases)

    def _undo(self, entries: dict[str, T], aliases: dict[str, str]) -> None:
        """Keep the declared names, whose modules stay imported and would not register again."""
        kept = {name: each for name, each in self._entries.items() if name in self._modules}
        super()._undo({**entries, **kept}, aliases)

    def get(self, name: str) -> T:
        """Return the entry `name`; raises UserError naming the nearest known names."""
        if name in self._modules and name not in self:
            importlib.import_module(self._modules[name])
        return super().get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._entries, *self._modules}))

    def names(self) -> Iterator[str]:
        """Yield every name, registered or declared."""
        return iter(self)
