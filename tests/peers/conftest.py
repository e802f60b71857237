"""Peers, started once; tests that need one that is not installed are skipped with a message."""

from collections.abc import Iterator

import pytest
from oracles.peer import MXNet, PyTorch


@pytest.fixture(scope="session")
def mxnet() -> Iterator[MXNet]:
    if reason := MXNet.unavailable():
        pytest.skip(reason)
    with MXNet() as peer:
        yield peer


@pytest.fixture(scope="session")
def pytorch() -> Iterator[PyTorch]:
    if reason := PyTorch.unavailable():
        pytest.skip(reason)
    with PyTorch() as peer:
        yield peer
