"""cupy.cuda.graph: captured work, with the arguments that it had then."""

from __future__ import annotations

from typing import Any

from cupy.cuda.card import CARD, Work


class Graph:
    """Work to start again and again."""

    def __init__(self, work: list[Work]) -> None:
        self._work = tuple(work)

    def launch(self, stream: Any = None) -> None:
        """Start all work, in order."""
        assert stream is not None
        CARD.count("graph launch")
        for work in self._work:
            stream.submit(work)
