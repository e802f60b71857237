"""Names that are declared before the modules that register them are imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from registry_index import COMMAND, registry_index

from mxrun.base import registry as registry_module
from mxrun.base.errors import InternalError, UserError
from mxrun.base.registry import INDEX, Registry

MODULE = """\
from mxrun.base.registry import Registry
[registry] = Registry._all
registry.add("one", 1, suffixes=[".1"])
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[int]]:
    """Return a registry whose name `one` a module declares that is not imported yet."""
    monkeypatch.setattr(Registry, "_all", [])
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "declared_one.py").write_text(MODULE)
    found = {"one": {"module": "declared_one", "suffixes": [".1"]}}
    monkeypatch.setattr(registry_module, "index", lambda: {"declared": found})
    made = Registry[int]("declared")
    yield made
    sys.modules.pop("declared_one", None)


def test_a_failure_undoes_its_names_but_not_those_of_the_modules_it_imported(
    registry: Registry[int],
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
    registry: Registry[int],
) -> None:
    with pytest.raises(InternalError, match="declared 'one' is registered twice"):
        registry.add("one", 2)
    assert registry.get("one") == 1
    with pytest.raises(InternalError, match="declared 'one' is registered twice"):
        registry.add("one", 2)


def test_attributes_are_known_before_the_module_is_imported(registry: Registry[int]) -> None:
    assert registry.attribute("suffixes") == {"one": [".1"]}
    assert "one" in registry
    assert "declared_one" not in sys.modules
    registry.add("two", 2, suffixes=[".2"], foreign={"two: {x: 1}": "zwei deux"}, licence="")
    registry.add("three", 3, order=0, suffixes=())
    registry.get("one")
    assert registry.attribute("suffixes") == {"one": [".1"], "two": [".2"]}
    assert registry.attribute("licence") == {}
    assert registry.attribute("order") == {"three": 0}
    with pytest.raises(UserError) as caught:
        registry.get("Zwei")
    assert caught.value.diagnostics[0].hint == "mxrun calls it two: {x: 1}"


def test_the_index_is_current() -> None:
    assert INDEX.read_text() == registry_index(), f"what is registered has changed: run {COMMAND}"
