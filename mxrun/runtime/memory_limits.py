"""Memory limits of the process, and what it uses of them."""

from __future__ import annotations

import mmap
import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def memory_limit() -> int:
    """Return the most bytes this process may use: the least of all limits.

    The limits are physical memory, `memory.max` or `memory.limit_in_bytes` of each control group
    around the process (cgroups(7)), and its RLIMIT_AS (getrlimit(2)).
    """
    return min([_resident_limit(), *_address_limit()])


def remaining_bytes() -> int:
    """Return the bytes this process may still allocate: the least of all limits minus current use.

    Resident pages count against physical memory and control groups, mapped pages against RLIMIT_AS.
    """
    try:
        mapped, resident, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except OSError:
        return memory_limit()
    page = mmap.PAGESIZE
    beside = [limit - mapped * page for limit in _address_limit()]
    return max(0, min([_resident_limit() - resident * page, *beside]))


def _resident_limit() -> int:
    """Return the limit on resident bytes: physical memory and control groups."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        membership = Path("/proc/self/cgroup").read_text()
    except OSError:
        membership = ""
    return min([physical, *control_group_limits(membership, Path("/sys/fs/cgroup"))])


def _address_limit() -> list[int]:
    """Return RLIMIT_AS, or an empty list if it is unlimited."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if limit == resource.RLIM_INFINITY else [limit]


def available_bytes() -> int:
    """Return the bytes this process could allocate now without other processes being swapped out.

    This is Linux's MemAvailable, at most `memory_limit`.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return memory_limit()
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return min([*found, memory_limit()])


def control_group_limits(membership: str, root: Path) -> Iterator[int]:
    """Yield the memory limits, in bytes, of control groups and their parents.

    A line of `membership`, the text of /proc/self/cgroup, is `number:controllers:/path`; version 2
    has number 0 and no controllers. In a container the path may be the host's, of which only the
    root is visible.
    """
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        for folder in (group, *group.parents):
            try:
                limit = (top / folder / name).read_text().strip()
            except OSError:
                continue
            if limit.isdecimal():
                yield int(limit)


def peak_rss_bytes() -> int:
    """Return the peak resident size of this process in bytes.

    It is Linux's VmHWM; getrusage, the fallback, starts at the size of the parent process.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
