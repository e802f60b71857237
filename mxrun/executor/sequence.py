"""Program in pieces that can be run one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mxrun.base.machine import Machine
from mxrun.device.interface import Program, ProgramCost


class ProgramSequence(Program):
    """Programs that together make one; `pieces` run in their order."""

    def __init__(self, pieces: Sequence[Program]) -> None:
        self.pieces = tuple(pieces)
        self.names = tuple(name for piece in pieces for name in piece.names)

    def run(self) -> None:
        """Run all pieces."""
        for piece in self.pieces:
            piece.run()

    def run_watched(self, after: Callable[[int], None]) -> None:
        """Run the calls of all pieces one by one; `after` receives each one's number."""
        first = 0
        for piece in self.pieces:

            def follow(index: int, first: int = first) -> None:
                after(first + index)

            piece.run_watched(follow)
            first += len(piece.names)

    def cost(self) -> ProgramCost:
        """Measure the overhead of all pieces."""
        costs = [piece.cost() for piece in self.pieces]
        return ProgramCost(
            sum(each.calls for each in costs),
            sum(each.seconds for each in costs),
        )

    def temporary_bytes(self) -> int:
        """Run once and return the most bytes of temporaries at a time."""
        return max(piece.temporary_bytes() for piece in self.pieces)

    def overheads(self, peaks: Machine) -> Mapping[str, float]:
        """Return the seconds that the calls of each step take at least."""
        found: dict[str, float] = {}
        for piece in self.pieces:
            for name, seconds in piece.overheads(peaks).items():
                found[name] = found.get(name, 0.0) + seconds
        return found
