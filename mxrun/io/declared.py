"""Registry whose entries are known by name before the modules that define them are imported."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TypeVar

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
