"""Progress bar of a placement search."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from mxrun.report.figures import bytes_text


class SearchProgress(Protocol):
    """Intermediate result of a placement search."""

    @property
    def arena_bytes(self) -> int:
        """Smallest arena found so far."""

    @property
    def proved_bytes(self) -> int:
        """Proved lower bound on the arena."""


@contextmanager
def search_progress(limit_s: float | None) -> Iterator[Callable[[float, SearchProgress], None]]:
    """Context manager that gives a callback for the elapsed seconds and the best result so far.

    Shows both on a terminal.
    """
    if limit_s is None or not sys.stderr.isatty():
        yield lambda seconds, found: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from mxrun.report.console import stderr

    with Progress(
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=stderr(),
        transient=True,
    ) as progress:
        task = progress.add_task("searching", total=limit_s)

        def advance(seconds: float, found: SearchProgress) -> None:
            gap = found.arena_bytes - found.proved_bytes
            text = f"{bytes_text(found.arena_bytes)}, at most {gap:,} bytes above the optimum"
            progress.update(task, completed=seconds, description=text)

        yield advance
