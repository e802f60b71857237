"""The machine is measured once for each number of threads, with plausible results."""

from __future__ import annotations

import itertools
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import python_output

from mxrun.base.machine import Machine
from mxrun.device.cpu.machine import machine_of
from mxrun.device.cpu.onednn import library

# No machine is as fast: figures that were read, and not measured.
IMPOSSIBLE = 1e18


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Use an empty cache folder, in which the machine is measured for one thread."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        machine_of(1)
        yield folder / "mxrun" / "machine"


@pytest.fixture
def cache_file(cache: Path) -> Iterator[Path]:
    """Return the file of the figures of one thread, and restore it afterwards."""
    (path,) = [path for path in cache.iterdir() if content(path)["figures"]["threads"] == 1]
    before = path.read_bytes()
    yield path
    path.write_bytes(before)


def content(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text())
    assert isinstance(value, dict)
    return value


def make_impossible(path: Path) -> None:
    value = content(path)
    value["figures"]["flops_per_s"]["float32"] = IMPOSSIBLE
    path.write_text(json.dumps(value))


def assert_plausible(machine: Machine, threads: int) -> None:
    assert machine.threads == threads
    assert 1e9 < machine.flops_per_s["float32"] < 1e14
    for row in machine.bandwidths:
        assert 1e9 < row.copy < 1e14
        assert 1e9 < row.read < 1e14
        assert row.update > 1e9
    for smaller, larger in itertools.pairwise(machine.bandwidths):
        assert larger.nbytes == 2 * smaller.nbytes
        assert larger.copy <= smaller.copy
        assert larger.read <= smaller.read
        assert larger.update <= smaller.update
    assert machine.bandwidths[0].nbytes == threads << 14
    assert machine.bandwidths[-1].nbytes >= 1 << 20
    assert 1e-10 < machine.loop_s < 1e-5
    assert machine.loop_s < machine.primitive_s < 1e-4
    assert 0 <= machine.tasks_s < 1e-1


@pytest.mark.full
def test_the_figures_are_plausible(cache_file: Path) -> None:
    machine = machine_of(1)
    assert machine == Machine.from_json(content(cache_file)["figures"])
    assert_plausible(machine, 1)
    assert machine.tasks_s < 1e-6


def test_bfloat16_is_there_where_the_processor_has_it(cache_file: Path) -> None:
    flags = ()
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = next(line for line in lines if line.startswith("flags")).split()
    has = {"avx512_bf16", "amx_bf16"} & set(flags) and library.load() is not None
    machine = machine_of(1)
    assert ("bfloat16" in machine.flops_per_s) == bool(has)
    if has:
        # Without a matrix unit some processors take bfloat16 at half the rate of float32.
        assert machine.flops_per_s["bfloat16"] > machine.flops_per_s["float32"] / 3


def test_the_file_says_what_it_is_of(cache_file: Path) -> None:
    of = dict(line.split(": ", 1) for line in content(cache_file)["of"])
    assert set(of) == {
        *(
            "processor",
            "architecture",
            "features",
            "cores",
            "caches",
            "library",
            "threads of the pool",
        ),
    }
    assert of["library"] == library.version()
    assert of["threads of the pool"] == "1"


def test_what_was_measured_is_read_until_asked_anew(cache_file: Path) -> None:
    make_impossible(cache_file)
    assert machine_of(1).flops_per_s["float32"] == IMPOSSIBLE
    machine = machine_of(1, remeasure=True)
    assert_plausible(machine, 1)
    assert machine_of(1) == machine == Machine.from_json(content(cache_file)["figures"])


@pytest.mark.parametrize("damage", ["torn", "another machine's"])
def test_a_damaged_file_is_measured_anew(cache_file: Path, damage: str) -> None:
    make_impossible(cache_file)
    if damage == "torn":
        cache_file.write_bytes(cache_file.read_bytes()[:-9])
    else:
        cache_file.write_text(json.dumps(content(cache_file) | {"of": ["processor: another"]}))
    machine = machine_of(1)
    assert_plausible(machine, 1)
    assert machine == Machine.from_json(content(cache_file)["figures"])


def test_other_threads_have_figures_of_their_own(cache_file: Path) -> None:
    make_impossible(cache_file)
    before = cache_file.read_bytes()
    machine = machine_of(2)
    assert_plausible(machine, 2)
    assert cache_file.read_bytes() == before
    # Measurements disturbed by other work are not cached.
    others = [path for path in cache_file.parent.iterdir() if path != cache_file]
    figures = [Machine.from_json(content(path)["figures"]) for path in others]
    assert figures == [] if machine.disturbed else [machine]


@pytest.mark.full
def test_a_machine_without_onednn_is_measured_with_our_own_loops(tmp_path: Path) -> None:
    script = (
        "import json; from mxrun.device.cpu.measurement import measure;"
        "print(json.dumps(measure(1).to_json()))"
    )
    missing = os.environ | {"MXRUN_ONEDNN_LIBRARY": str(tmp_path / "missing.so")}
    machine = Machine.from_json(json.loads(python_output("-c", script, env=missing)))
    assert machine is not None
    assert set(machine.flops_per_s) == {"float32"}
    assert 1e8 < machine.flops_per_s["float32"] < 1e14
    assert machine.primitive_s == pytest.approx(machine.loop_s, rel=1)


def test_nothing_is_kept_without_a_folder(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mxrun").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert_plausible(machine_of(1), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mxrun"]
