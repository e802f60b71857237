"""Traces as JSON files for Perfetto (ui.perfetto.dev) and chrome://tracing.

JSON object of the Trace Event Format: complete events (`ph: X`) with times in microseconds from the
first event, and metadata (`ph: M`) that names process and tracks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mxrun.base.files import atomic_file
from mxrun.runtime.profiler import Event

_PROCESS = 1


def write_trace(path: Path, events: Iterable[Event]) -> None:
    """Write a trace, replacing the file atomically; links are followed.

    Raises UserError if it cannot be written; the old file is then unchanged.
    """
    content = json.dumps(trace(events), separators=(",", ":"), allow_nan=False)
    with atomic_file(path) as file:
        file.write(content.encode("ascii"))


def trace(events: Iterable[Event]) -> dict[str, Any]:
    """Return the content of the file. Tracks are in order of first appearance."""
    events = list(events)
    origin = min((event.start_ns for event in events), default=0)
    tracks: dict[str, int] = {}
    complete = [
        {
            "name": event.name,
            "cat": event.category,
            "ph": "X",
            "ts": (event.start_ns - origin) / 1e3,
            "dur": event.duration_ns / 1e3,
            "pid": _PROCESS,
            "tid": tracks.setdefault(event.track, len(tracks) + 1),
            "args": dict(event.arguments),
        }
        for event in events
    ]
    names = [_metadata("process_name", 0, {"name": "mxrun"})]
    for track, number in tracks.items():
        names.append(_metadata("thread_name", number, {"name": track}))
        names.append(_metadata("thread_sort_index", number, {"sort_index": number}))
    return {"traceEvents": [*names, *complete], "displayTimeUnit": "ms"}


def _metadata(name: str, track: int, arguments: dict[str, str | int]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": _PROCESS, "tid": track, "args": arguments}
