"""Fixtures of the tests of complete runs."""

from __future__ import annotations

import pytest
from interrupted_runs import Started, left


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the SHA-256 of the files of a run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    code, _, errors = Started(folder).end()
    assert code == 0, errors
    return left(folder)
