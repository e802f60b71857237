"""Peak figures of the machine for some threads, measured once and cached on disk.

The cache holds plain JSON in the user's cache folder. The key contains everything the figures
depend on: the processor and its features, the cores this process may use, oneDNN, and the number
of threads.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

from mxrun.base import disk_cache
from mxrun.base.machine import Machine
from mxrun.codegen.processor import processor
from mxrun.device.cpu.measurement import cache_sizes, measure
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.pool import available_cores

# Kind of these entries in the disk cache.
_KIND = "machine"


def machine_of(threads: int, remeasure: bool = False) -> Machine:
    """Return the figures for `threads`: the cached ones, or new measurements.

    Only undisturbed measurements are cached. remeasure: ignore the cached figures.
    """
    key = description(threads)
    found = None if remeasure else Machine.from_json(disk_cache.get(_KIND, key))
    if found is None or found.disturbed:
        found = measure(threads)
        if not found.disturbed:
            disk_cache.put(_KIND, key, found.to_json())
    return found


def known_machine(threads: int) -> Machine | None:
    """Return the cached figures for `threads`; None if there are none yet."""
    return Machine.from_json(disk_cache.get(_KIND, description(threads)))


def description(threads: int) -> str:
    """Return a text of everything that times on this machine depend on, for `threads`."""
    generated = processor()
    parts = {
        "processor": processor_model(),
        "architecture": generated.name,
        "features": generated.features,
        "cores": available_cores(),
        "caches": " ".join(map(str, cache_sizes(threads))),
        "library": library.version(),
        "threads of the pool": threads,
    }
    return "\n".join(f"{name}: {value}" for name, value in parts.items())


def processor_model() -> str:
    """Return the processor's name as the system reports it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
