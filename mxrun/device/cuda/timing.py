"""Times of a program's calls on a card, from events between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from mxrun.device.cuda.queue import Queue
from mxrun.device.interface import Program, TimedProgram


class TimedCalls(TimedProgram):
    """Calls that are started one by one, with an event after each.

    An event's time is that of the card, so that a call's time has no launch in it while the card is
    busy. Python bodies count with their copies.
    """

    def __init__(
        self, program: Program, queue: Queue, starts: Sequence[Callable[[Queue], None]]
    ) -> None:
        super().__init__(program)
        self._queue, self._starts, self._names = queue, tuple(starts), program.names
        queue.use()
        self._events = [queue.cupy.stream.Event() for _ in range(len(starts) + 1)]

    def run(self) -> None:
        """Run every call once and record its times."""
        queue, events = self._queue, self._events
        queue.use()
        first = time.monotonic_ns()
        events[0].record(queue.stream)
        for name, start, event in zip(self._names, self._starts, events[1:], strict=True):
            with queue.named(name):
                start(queue)
                event.record(queue.stream)
        queue.wait("a program")
        elapsed = queue.cupy.stream.get_elapsed_time
        for index, event in enumerate(events[1:]):
            # Milliseconds.
            self.end[index] = first + int(elapsed(events[0], event) * 1e6)
            self.begin[index] = first if index == 0 else self.end[index - 1]
