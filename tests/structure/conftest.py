"""Tests of the structure read the syntax trees of all files, which a process retains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from collector import without_collections


# Of the package, before the fixtures of its modules.
@pytest.fixture(autouse=True, scope="package")
def _without_collections() -> Iterator[None]:
    with without_collections():
        yield
