"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _verified_graphs() -> Iterator[None]:
    """Every graph that a test's own process compiles is verified after every pass."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXRUN_DEBUG", "1")
        yield
