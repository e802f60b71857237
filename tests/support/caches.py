"""Cache folders for tests: the user's compiled code, and fixed machine figures."""

from __future__ import annotations

from pathlib import Path

from mxrun.base import disk_cache, flags
from mxrun.base.machine import Bandwidth, Machine
from mxrun.device.cpu.machine import description

# Numbers of threads whose figures are known; tests use no larger ones.
_THREADS = range(1, 5)


def link_cached(folder: Path, *kinds: str) -> None:
    """Make `folder` a cache folder (as XDG_CACHE_HOME names it) that shares the given kinds.

    New entries of a shared kind are written to the current cache folder.
    """
    (folder / "mxrun").mkdir(parents=True)
    current = flags.cache_folder()
    if current is None:
        return
    for kind in kinds:
        (current / kind).mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "mxrun" / kind).symlink_to(current / kind)


def machine(threads: int) -> Machine:
    """Return a fictitious machine with round figures, similar to a few server cores."""
    bandwidths = (
        Bandwidth(threads << 14, 2e11 * threads, 1e11 * threads, 1.5e11 * threads),
        Bandwidth(1 << 21, 1e11 * threads, 5e10 * threads, 8e10 * threads),
        Bandwidth(1 << 28, 2e10, 1.5e10, 2e10),
    )
    return Machine(
        threads=threads,
        flops_per_s={"float32": 1e11 * threads, "bfloat16": 2e11 * threads},
        bandwidths=bandwidths,
        loop_s=1e-7,
        primitive_s=5e-7,
        tasks_s=0.0 if threads == 1 else 2e-6,
        cache_bytes=(threads << 15, 1 << 21, 1 << 25),
    )


def cache_machine() -> None:
    """Write machine figures to the cache, as if they had been measured."""
    for threads in _THREADS:
        disk_cache.put("machine", description(threads), machine(threads).to_json())
