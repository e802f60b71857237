"""What holds for every test: its cache folder, verified graphs, and no limits on time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from caches import cache_machine, link_cached
from hypothesis import HealthCheck, settings

# An example takes as long as the machine's other work makes it.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")


@pytest.fixture(scope="session", autouse=True)
def _verified_graphs() -> Iterator[None]:
    """Every graph that a test's own process compiles is verified after every pass."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXRUN_DEBUG", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _fixed_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every process finds the same figures of the machine, and none measures it by the way.

    Predicted times, and the plans that follow from them, would change when another test measures.
    Compiled code is the user's.
    """
    folder = tmp_path_factory.mktemp("cache")
    link_cached(folder, "native")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        cache_machine()
        yield
