"""Tests of the structure read the syntax trees of all files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from syntax import without_collections


@pytest.fixture(autouse=True)
def _without_collections() -> Iterator[None]:
    with without_collections():
        yield
