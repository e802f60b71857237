"""The progress of a search for a smaller arena, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from mxrun.report.figures import bytes_text


class SearchProgress(Protocol):
    """What a search has come to."""

    @property
    def arena_bytes(self) -> int:
        """The best arena so far."""

    @property
    def proved_bytes(self) -> int:
        """What no arena can be smaller than, as far as is known."""


@contextmanager
def searching(limit_s: float | None) -> Iterator[Callable[[float, SearchProgress], None]]:
    """A function that is told the seconds so far and the best found; a terminal shows both."""
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
            most = found.arena_bytes - found.proved_bytes
            text = f"{bytes_text(found.arena_bytes)}, at most {most:,} bytes too large"
            progress.update(task, completed=seconds, description=text)

        yield advance
