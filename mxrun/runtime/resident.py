"""What of this process is resident, by what it is: Linux's /proc/self/smaps, summed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ResidentBytes:
    """Resident bytes of a process.

    libraries: by file name, all mapped files: the interpreter's and the libraries' code and data.
    compiled: executable memory that no file backs: kernels that oneDNN and LLVM generated.
    stack: the main thread's; those of others cannot be told from the heap.
    heap: all other memory, the interpreter's objects first.
    """

    libraries: Mapping[str, int]
    compiled: int
    heap: int
    stack: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.libraries.values()) + self.compiled + self.heap + self.stack


def resident_bytes() -> ResidentBytes | None:
    """Measure this process; None on a system without /proc/self/smaps."""
    try:
        text = Path("/proc/self/smaps").read_text()
    except OSError:
        return None
    return sum_up(text)


def sum_up(smaps: str) -> ResidentBytes:
    """The sums of a file as proc(5) describes it: a line per mapping, its figures below."""
    libraries: Counter[str] = Counter()
    others = {"compiled": 0, "heap": 0, "stack": 0}
    kind, file = "heap", ""
    for line in smaps.splitlines():
        # Address, permissions, offset, device, inode and a path, which may be missing.
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):
            path = words[5] if len(words) > 5 else ""
            file = Path(path).name if path.startswith("/") else ""
            anonymous = "compiled" if "x" in words[1] else "heap"
            kind = "stack" if path == "[stack]" else anonymous
        elif words[0] == "Rss:" and file:
            libraries[file] += int(words[1]) * 1024
        elif words[0] == "Rss:":
            others[kind] += int(words[1]) * 1024
    return ResidentBytes(dict(libraries), **others)
