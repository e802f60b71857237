"""Hooks of all tests and their shared fixtures: selection by tier, cache folder, registry."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import tiers
from caches import cache_machine, link_cached
from collector import without_collections
from hypothesis import HealthCheck, settings
from registries import separate_registries
from xdist.workermanage import WorkerController

from mxrun import library
from mxrun.device.cpu.pool import available_cores
from mxrun.operator import register

# Every process that a test starts would compile all sources again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Set by users, terminals and CI services for all programs; they change what is printed and where
# runs are written.
_OF_USERS = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "MXRUN_RUNS")

# Processes of a run of all tests. Some tests use two cores, and all use much memory.
_PROCESSES = 2

# Folders whose tests run complete commands, or the same work in this process.
_OF_COMMANDS = (
    "cli",
    "commands",
    "frontend",
    "preparation",
    "run",
    "inference",
    "generation",
    "inspection",
)

# An example takes as long as the machine's other work makes it.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--full", action="store_true", help="run every test but the soak tests")
    group.addoption("--soak", action="store_true", help="run the soak tests alone")


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in tiers.MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    if config.option.full and config.option.soak:
        raise pytest.UsageError("--full and --soak are two runs: soak tests run alone")
    # A shell starts background jobs with SIGINT ignored, and the commands that tests interrupt
    # would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str:
    return f"tests: {_tier(config).value}"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes: two for entire folders, none for single files."""
    alone = _tier(config) in (tiers.Tier.SOAK, tiers.Tier.GPU) or not all(
        Path(name).is_dir() for name in config.args
    )
    return 0 if alone else min(_PROCESSES, available_cores())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests, which are many objects that stay."""
    with without_collections():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of the tier, among those selected by -k and -m."""
    named = _named(config)
    # Loaded even if no collected test needs it: the set of operators must not depend on that.
    library.load()
    cases = [_case(item, named) for item in items]
    taken = {case.node for case in tiers.choose(cases, _tier(config))}
    left_out = [item for item in items if item.nodeid not in taken]
    items[:] = [item for item in items if item.nodeid in taken]
    if not left_out:
        return
    config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = len(left_out)


def pytest_testnodedown(node: WorkerController, error: object) -> None:
    """Report the tests left out, once: all processes leave out the same."""
    reporter = node.config.pluginmanager.get_plugin("terminalreporter")
    count = getattr(node, "workeroutput", {}).get("left_out", 0)
    if reporter is not None and count:
        reporter.stats.setdefault("deselected", [node] * count)


def _tier(config: pytest.Config) -> tiers.Tier:
    if config.option.markexpr == "gpu":
        return tiers.Tier.GPU
    if config.option.soak:
        return tiers.Tier.SOAK
    return tiers.Tier.FULL if config.option.full else tiers.Tier.PLAIN


def _named(config: pytest.Config) -> dict[Path, set[str]]:
    """Return the tests named on the command line within files, as given: `Class::test[case]`."""
    found = defaultdict(set)
    for argument in config.args:
        file, separator, name = argument.partition("::")
        if separator:
            found[(config.invocation_params.dir / file).resolve()].add(name)
    return found


def _case(item: pytest.Item, named: dict[Path, set[str]]) -> tiers.Case:
    name = item.nodeid.partition("::")[2]
    function = name.partition("[")[0]
    requested = named.get(item.path.resolve(), set()) if named else set()
    marks = {mark.name for mark in item.iter_markers() if mark.name in tiers.MARKERS}
    if item.path.parent.name in _OF_COMMANDS:
        marks.add("commands")
    return tiers.Case(
        node=item.nodeid,
        function=item.nodeid.partition("[")[0],
        operators=frozenset(_operators(item)),
        marks=frozenset(marks),
        named=not requested.isdisjoint({name, function, function.partition("::")[0]}),
    )


def _operators(item: pytest.Item) -> Iterator[str]:
    """The operators among a test's parameters: by name, or of a row of a table."""
    parameters = getattr(item, "callspec", None)
    for value in parameters.params.values() if parameters else ():
        name = getattr(value, "operator", value)
        if isinstance(name, str) and name in register.OPERATORS:
            yield name


@pytest.fixture(scope="session", autouse=True)
def _usual_environment() -> Iterator[None]:
    """Test without the variables that users set. Pytest itself obeys them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _OF_USERS:
            patch.delenv(name, raising=False)
        patch.setenv("TERM", "xterm")
        yield


@pytest.fixture(scope="session", autouse=True)
def _verified_graphs() -> Iterator[None]:
    """Every graph that a test's own process compiles is verified after every pass."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXRUN_DEBUG", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _fixed_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give every process the same machine figures, so that none measures them.

    Predicted times, and the plans that follow from them, would otherwise change when another test
    measures the machine. The cache of compiled code is the user's.
    """
    folder = tmp_path_factory.mktemp("cache")
    link_cached(folder, "native")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        cache_machine()
        yield


@pytest.fixture
def separate_registry() -> Iterator[None]:
    """Remove what a test registers, and forget the plugins that it loads."""
    with separate_registries():
        yield


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, the current one during the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
