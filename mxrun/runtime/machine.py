"""The machine's best figures for a team of threads, measured once and kept.

They lie as plain JSON in the user's cache folder, in a file named by all that they depend on: the
processor and its features, the cores this process may use, oneDNN, and the size of the team.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

from mxrun.backend.onednn import library
from mxrun.backend.team import available_cores
from mxrun.base import disk_cache
from mxrun.base.machine import Machine
from mxrun.runtime.measurement import cache_sizes, measure

# The folder of these figures among what is kept.
_KIND = "machine"


def machine_of(threads: int, remeasure: bool = False) -> Machine:
    """The figures for a team of `threads`: those kept, or measured now.

    What was measured undisturbed is kept; `remeasure` does not look for what was.
    """
    key = description(threads)
    found = None if remeasure else Machine.from_json(disk_cache.get(_KIND, key))
    if found is None or found.disturbed:
        found = measure(threads)
        if not found.disturbed:
            disk_cache.put(_KIND, key, found.to_json())
    return found


def known_machine(threads: int) -> Machine | None:
    """The figures kept for a team of `threads`; None where nothing was measured yet."""
    return Machine.from_json(disk_cache.get(_KIND, description(threads)))


def description(threads: int) -> str:
    """All that times on this machine depend on, in words, for a team of `threads`."""
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


def _processor() -> str:
    """The processor's name as the system has it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
