"""Registries without what tests add to them: later tests of the process list what is registered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mxrun import library
from mxrun.base.registry import Registry


@contextmanager
def separate_registries() -> Iterator[None]:
    """Context manager that removes what its block registers, and forgets the plugins it loads."""
    library.load()
    before = [(each, dict(each._entries), dict(each._aliases)) for each in Registry._all]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "_PLUGINS", {})
        yield
    for each, entries, aliases in before:
        each._undo(entries, aliases)


@contextmanager
def loaded_plugin(file: Path, code: str) -> Iterator[library.Plugin]:
    """Context manager that writes and loads a plugin, and forgets it."""
    file.write_text(code)
    with separate_registries():
        yield library.load_plugin(str(file))
