"""Tests of a card: skipped without one, for the reason that `mxrun info` gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mxrun.base.device import GPU
from mxrun.contract.trial import opened
from mxrun.device.interface import Device
from mxrun.device.registry import device_kind


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("gpu")


@pytest.fixture(scope="session", autouse=True)
def _with_a_card() -> None:
    kind = device_kind(GPU)
    if not kind.count():
        pytest.skip(f"no card can be used: {kind.missing()}")


@pytest.fixture(scope="session", autouse=True)
def _with_graphs(_verified_graphs: None) -> Iterator[None]:
    """Capture programs, as users do: in debug mode they run launch by launch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXRUN_DEBUG", "0")
        yield


@pytest.fixture
def card() -> Device:
    """Return the first card."""
    return opened(1, GPU, 0)
