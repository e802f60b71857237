"""The machine's best figures for a team of threads, measured once and kept.

They lie as plain JSON in the user's cache folder, in a file named by all that they depend on: the
processor and its features, the cores this process may use, oneDNN, and the size of the team.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from contextlib import suppress
from pathlib import Path

from mxrun.backend.onednn import library
from mxrun.backend.team import available_cores
from mxrun.base import flags
from mxrun.base.machine import Machine
from mxrun.runtime.measurement import cache_sizes, measure


def machine_of(threads: int, remeasure: bool = False) -> Machine:
    """The figures for a team of `threads`: those kept, or measured now.

    What was measured undisturbed is kept; `remeasure` does not look for what was.
    """
    key = _key(threads)
    found = None if remeasure else _find(key)
    if found is None or found.disturbed:
        found = measure(threads)
        if not found.disturbed:
            _store(key, found)
    return found


def _key(threads: int) -> str:
    """All that the figures depend on, in words."""
    import llvmlite.binding as llvm

    features = " ".join(name for name, on in sorted(llvm.get_host_cpu_features().items()) if on)
    parts = {
        "processor": _processor(),
        "architecture": llvm.get_host_cpu_name(),
        "features": features,
        "cores": available_cores(),
        "caches": " ".join(map(str, cache_sizes(threads))),
        "library": library.version(),
        "threads": threads,
    }
    return "\n".join(f"{name}: {value}" for name, value in parts.items())


def _file(key: str) -> Path | None:
    folder = flags.cache_folder()
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    return None if folder is None else folder / "machine" / f"{name}.json"


def _find(key: str) -> Machine | None:
    """The figures kept under a key; None where there are none, or none that can be read."""
    path = _file(key)
    if path is None:
        return None
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("of") != key.splitlines():
        return None
    return Machine.from_json(content.get("figures"))


def _store(key: str, machine: Machine) -> None:
    """Keep figures; a folder that cannot be written costs only the next measurement."""
    path = _file(key)
    if path is None:
        return
    text = json.dumps({"of": key.splitlines(), "figures": machine.to_json()}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
    except OSError:
        return
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError:
        with suppress(OSError):
            Path(name).unlink()


def _processor() -> str:
    """The processor's name as the system has it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
