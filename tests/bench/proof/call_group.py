"""Group of calls: commands that run one after the other in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# A text, or a function that makes the bytes.
Content = str | Callable[[], bytes]


@dataclass(frozen=True)
class Group:
    """Calls, a line each, and the files that they find in their folder.

    A line has the words of a shell: `NAME=VALUE mxrun's words < FILE`; VALUE and FILE are optional.
    A line that begins with `@` changes a file, by a function of `proof/call_files.py`. `#` begins a
    comment.
    """

    calls: str
    files: Mapping[str, Content] = field(default_factory=dict)
