"""cupy.cuda.device: the choice of a card, one for each thread."""

from __future__ import annotations

from cupy.cuda.card import CARD


class Device:
    """Card by number."""

    def __init__(self, device: int | None = None) -> None:
        self.id = device

    def use(self) -> None:
        """Make it this thread's."""
        CARD.require()
        assert self.id is not None
        assert 0 <= self.id < CARD.settings.cards
        CARD.used.index = self.id
