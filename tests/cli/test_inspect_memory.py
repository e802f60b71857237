"""Output of `inspect-memory`: tables and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import mxrun, on_terminal, python_output, result, succeeded

NET = ("inspect-memory", "digits_lenet", "--threads", "1")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("inspect")
    found = result(*NET, cwd=folder)
    assert list(folder.iterdir()) == []
    return found


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    done = succeeded(mxrun(*NET, cwd=tmp_path_factory.mktemp("inspect")))
    return done.stdout.splitlines()


def test_F1_the_peak_names_every_live_byte(report: dict[str, Any]) -> None:
    peak = report["peak"]
    assert {"phase", "step", "operator", "title", "op", "bytes", "live"} == set(peak)
    assert sum(live["bytes"] for live in peak["live"]) == peak["bytes"]
    assert peak["bytes"] == report["lower_bound_bytes"]
    for live in peak["live"]:
        assert set(live) == {
            *("tensor", "root", "class", "bytes", "offset", "first", "last", "reason", "shared")
        }
        assert live["first"] <= peak["step"] <= live["last"]
        assert 0 <= live["offset"] <= report["planned_bytes"] - live["bytes"]
        assert live["reason"]


def test_F1_every_figure_stands_beside_the_lower_bound(report: dict[str, Any]) -> None:
    """Arena sizes are reported from the lower bound to no sharing, with the gap in bytes and as a
    share.
    """
    sizes = ("lower_bound", "planned", "free_list", "in_place_only", "naive")
    found = [report[f"{size}_bytes"] for size in sizes]
    assert found == sorted(found)
    assert found[1] < found[2] < found[3] < found[4]
    assert report["gap_bytes"] == found[1] - found[0]
    assert report["fragmentation"] == report["gap_bytes"] / found[0]
    for name, figures in report["classes"].items():
        live_bytes = [live["bytes"] for live in report["peak"]["live"] if live["class"] == name]
        assert figures["peak_bytes"] == sum(live_bytes)


def test_F1_every_block_is_there_with_its_reason(report: dict[str, Any]) -> None:
    """Pinned blocks come first, then those of each phase; live bytes add up to the timeline."""
    pinned = sum(block["bytes"] for block in report["pinned"])
    for phase, blocks in report["blocks"].items():
        live_bytes = [pinned] * len(report["timeline"][phase]["operators"])
        for block in blocks:
            assert block["reason"]
            assert block["tensor"] not in block["shared"]
            for step in range(block["first"], block["last"] + 1):
                live_bytes[step] += block["bytes"]
        assert live_bytes == report["timeline"][phase]["bytes"]
    shared = {name for block in report["blocks"]["train"] for name in block["shared"]}
    assert "conv1_output" in shared | {block["tensor"] for block in report["blocks"]["train"]}


def test_F1_the_timeline_is_highest_at_the_peak(report: dict[str, Any]) -> None:
    peak = report["peak"]
    assert set(report["timeline"]) == {"train", "evaluate"}
    for course in report["timeline"].values():
        assert len(course["operators"]) == len(course["bytes"])
        assert max(course["bytes"]) <= peak["bytes"]
    course = report["timeline"][peak["phase"]]
    assert course["bytes"][peak["step"]] == peak["bytes"]
    assert course["operators"][peak["step"]] == peak["operator"]


def test_F1_what_lies_outside_is_measured_and_named(report: dict[str, Any], tmp_path: Path) -> None:
    """Resident memory of a run beside its arena is the measured memory plus its Python objects."""
    outside = report["outside"]
    parts = ("libraries_bytes", "compiled_bytes", "heap_bytes", "stack_bytes", "threads_bytes")
    assert sum(outside[part] for part in parts) == outside["total_bytes"]
    assert sum(outside["libraries"].values()) == outside["libraries_bytes"]
    assert any("python" in name for name in outside["libraries"])
    train = ("train", "digits_lenet", "threads=1", "train.epochs=1", "train.metrics=[accuracy]")
    memory = result(*train, cwd=tmp_path)["memory"]
    # A second measurement: the first one may have compiled code that is now in the cache.
    outside = result(*NET, cwd=tmp_path)["outside"]
    beside = memory["rss_peak_bytes"] - memory["touched_bytes"]
    assert outside["total_bytes"] == pytest.approx(beside, rel=0.25)


@pytest.mark.full
def test_F1_threads_beyond_the_cores_take_no_memory(tmp_path: Path) -> None:
    # Processes of their own: in a fork, pages of libraries become resident again as they are read,
    # about 1 MiB of them while the threads start.
    command = ("-m", "mxrun", "inspect-memory", "mlp_mnist", "--json", "--threads")
    alone, many = (
        json.loads(python_output(*command, threads, cwd=tmp_path))["outside"]
        for threads in ("1", "1024")
    )
    # Each thread touches two pages of its stack, 8 MiB for all of them. Pages that libraries touch
    # meanwhile are included: up to 320 KiB were seen.
    assert 0 <= alone["threads_bytes"] < 1536 * 1024
    assert 0 <= many["threads_bytes"] < 4 * 1024 * 1024


def test_a_network_beyond_all_memory_can_be_inspected(tmp_path: Path) -> None:
    report = result("inspect-memory", "mlp_mnist", "--batch", "200000000", cwd=tmp_path)
    assert report["planned_bytes"] > 1 << 38
    assert 0 < report["outside"]["total_bytes"] < 1 << 30


def test_F7_people_see_the_peak_and_why(shown: list[str], report: dict[str, Any]) -> None:
    """Each live block is shown with its root and reason; pinned blocks are grouped by reason."""
    peak = report["peak"]
    (title,) = [line for line in shown if line.startswith("live at the peak")]
    expected = f"{peak['title']} (step {peak['step']}), {peak['bytes']:,} bytes"
    assert expected in title
    assert peak["title"] == "backward of Pooling 'pool1'"
    always: dict[str, int] = {}
    pinned = {block["tensor"] for block in report["pinned"]}
    for live in peak["live"]:
        if live["tensor"] in pinned:
            always[live["reason"]] = always.get(live["reason"], 0) + live["bytes"]
            continue
        parts = (live["tensor"].split("@")[0], f"{live['bytes']:,}", live["reason"])
        assert any(all(part in line for part in parts) for line in shown)
    assert set(always) == {
        *("parameter", "optimizer state", "written by the loop before each step")
    }
    for reason, nbytes in always.items():
        assert any(reason in line and f"{nbytes:,}" in line and "always" in line for line in shown)


def test_people_see_the_timeline_with_its_peak(shown: list[str], report: dict[str, Any]) -> None:
    marks = [line.strip() for line in shown if "▲" in line]
    assert marks[0] == f"▲ backward of pool1, step {report['peak']['step']}"
    assert len(marks) == 2
    assert any("██" in line for line in shown)


def test_people_see_refused_hints_and_what_lies_outside(shown: list[str]) -> None:
    text = "\n".join(shown)
    assert "softmax_output is a result" in text
    for part in ("libdnnl.so.3", "compiled kernels", "  threads  ", "smaps"):
        assert part in text


@pytest.mark.parametrize("width", [60, 120])
def test_the_timeline_is_as_wide_as_the_terminal(width: int, tmp_path: Path) -> None:
    environment = {"COLUMNS": str(width), "NO_COLOR": "1"}
    command = (*NET, "--phase", "infer", "--batch", "2")
    code, shown = on_terminal(*command, cwd=tmp_path, environment=environment)
    assert code == 0
    curve = [line for line in shown.splitlines() if "█" in line]
    assert curve
    assert max(map(len, curve)) <= width


def test_what_a_console_cannot_show_is_drawn_plainly(tmp_path: Path) -> None:
    done = succeeded(mxrun(*NET, cwd=tmp_path, environment={"PYTHONIOENCODING": "ascii"}))
    assert done.stdout.isascii()
    assert "####" in done.stdout
