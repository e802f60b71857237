"""Memory, threads and open files of a process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Resources of a process at one moment; memory in bytes."""

    resident: int
    threads: int
    files: int


def usage(process: int) -> Usage:
    """Return the resources of a process by its number."""
    folder = Path(f"/proc/{process}")
    lines = (folder / "status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return Usage(
        resident=int(status["VmRSS"].split()[0]) << 10,
        threads=int(status["Threads"]),
        files=len(list((folder / "fd").iterdir())),
    )
