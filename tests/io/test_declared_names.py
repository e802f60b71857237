"""Names that are declared before the modules that register them are imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mxrun.base.errors import InternalError, UserError
from mxrun.base.registry import Registry
from mxrun.io.declared import DeclaredRegistry

MODULE = """\
from mxrun.base.registry import Registry
[registry] = Registry._all
registry.add("one", 1)
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeclaredRegistry[int]]:
    """Return a registry whose name `one` a module declares that is not imported yet."""
    monkeypatch.setattr(Registry, "_all", [])
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "declared_one.py").write_text(MODULE)
    made = DeclaredRegistry[int]("declared")
    made.declare("one", "declared_one")
    yield made
    sys.modules.pop("declared_one", None)


def test_a_failure_undoes_its_names_but_not_those_of_the_modules_it_imported(
    registry: DeclaredRegistry[int],
) -> None:
    @Registry.all_or_nothing()
    def fail() -> None:
        registry.add("two", 2)
        assert registry.get("one") == 1
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fail()
    assert list(registry) == ["one"]
    assert registry.get("one") == 1
    with pytest.raises(UserError, match="unknown declared 'two'"):
        registry.get("two")


def test_a_declared_name_is_taken_before_its_module_is_imported(
    registry: DeclaredRegistry[int],
) -> None:
    with pytest.raises(InternalError, match="declared 'one' is registered twice"):
        registry.add("one", 2)
    assert registry.get("one") == 1
    with pytest.raises(InternalError, match="declared 'one' is registered twice"):
        registry.add("one", 2)
