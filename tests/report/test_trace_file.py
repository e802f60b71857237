"""Trace files for Perfetto and chrome://tracing, written atomically."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mxrun.base.errors import UserError
from mxrun.base.files import check_writable
from mxrun.report.trace import write_trace
from mxrun.runtime.profiler import Event

EVENTS = [
    Event("conv1", "forward", "operators", 5_000_001_000, 2_500, {"op": "Convolution", "flops": 7}),
    Event("step", "step", "steps", 5_000_000_000, 10_000, {"step": 0}),
    Event("fc1", "forward", "operators", 5_000_004_000, 1, {}),
]


def written(path: Path) -> list[dict[str, Any]]:
    value = json.loads(path.read_text())
    assert set(value) == {"traceEvents", "displayTimeUnit"}
    assert value["displayTimeUnit"] in ("ms", "ns")
    events = value["traceEvents"]
    assert isinstance(events, list)
    return events


def test_events_have_the_formats_fields(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json", EVENTS)
    events = written(tmp_path / "t.json")
    complete = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in complete] == ["conv1", "step", "fc1"]
    for event in complete:
        assert set(event) == {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}
    assert complete[0]["args"] == {"op": "Convolution", "flops": 7}
    # Microseconds since the first event began.
    assert [event["ts"] for event in complete] == [1.0, 0.0, 4.0]
    assert [event["dur"] for event in complete] == [2.5, 10.0, 0.001]


def test_process_and_tracks_are_named(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json", EVENTS)
    events = written(tmp_path / "t.json")
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(names.values()) == ["operators", "steps"]
    assert [names[e["tid"]] for e in events if e["ph"] == "X"] == [
        "operators",
        "steps",
        "operators",
    ]
    (process,) = [e for e in events if e["name"] == "process_name"]
    assert process["args"] == {"name": "mxrun"}
    assert {e["pid"] for e in events} == {process["pid"]}
    assert {e["ph"] for e in events} == {"M", "X"}


def test_a_trace_without_events_opens(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json", [])
    assert all(event["ph"] == "M" for event in written(tmp_path / "t.json"))


def test_a_link_is_followed_and_an_old_trace_replaced(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    write_trace(tmp_path / "link.json", EVENTS)
    assert (tmp_path / "link.json").is_symlink()
    assert written(tmp_path / "real.json")
    assert sorted(os.listdir(tmp_path)) == ["link.json", "real.json"]


def test_what_cannot_be_written_is_said_beforehand(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, why in (
        ("folder", "it is a folder"),
        ("missing/t.json", "there is no folder"),
    ):
        with pytest.raises(UserError, match=why):
            check_writable(tmp_path / name)
        with pytest.raises(UserError, match=f"cannot write {tmp_path / name}"):
            write_trace(tmp_path / name, EVENTS)
    check_writable(tmp_path / "t.json")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_full_disk_leaves_the_old_trace(tmp_path: Path) -> None:
    """No file of this process may grow beyond 4 KiB, as on a full disk."""
    path = tmp_path / "t.json"
    path.write_text("old")
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from mxrun.base.errors import UserError\n"
        "from mxrun.runtime.profiler import Event\n"
        "from mxrun.report.trace import write_trace\n"
        "try:\n"
        "    write_trace(Path(sys.argv[1]), 1000 * [Event('conv1', 'forward', 'x', 1, 1, {})])\n"
        "except UserError as error:\n"
        "    sys.exit(str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert done.returncode == 1
    assert f"{path}" in done.stderr
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["t.json"]
