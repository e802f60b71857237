"""cupy.cuda.stream: streams, events and captures."""

from __future__ import annotations

import threading
import time
from typing import Any

from cupy.cuda.card import CAPTURE_INVALIDATED, CARD, Capture, CUDARuntimeError, Work, WorkQueue
from cupy.cuda.graph import Graph

# Streams by `ptr`, the number that stands for cudaStream_t.
BY_POINTER: dict[int, Stream] = {}


class Stream:
    """Queue of delayed work."""

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: int | None = None,
    ) -> None:
        CARD.require()
        CARD.require_current()
        assert non_blocking, "other streams wait for the null stream"
        self.ptr = len(BY_POINTER) + 1
        BY_POINTER[self.ptr] = self
        self.queue = WorkQueue()
        self.drain = self.queue.drain
        self.capture: Capture | None = None
        CARD.streams.append(self)

    def submit(self, work: Work) -> None:
        """Delay work, or capture it."""
        CARD.require()
        if self.capture is not None:
            self.capture.work.append(work)
        else:
            self.queue.add(work)

    def synchronize(self) -> None:
        """Do all work."""
        CARD.require()
        CARD.forbid_in_capture()
        CARD.count("synchronize")
        self.drain()
        CARD.require()

    def begin_capture(self, mode: int | None = None) -> None:
        """Capture from now on what this stream would do."""
        CARD.require()
        assert mode == 1, "the mode is not that of a thread"
        thread = threading.get_ident()
        assert thread not in CARD.captures
        self.capture = CARD.captures[thread] = Capture()

    def end_capture(self) -> Graph:
        """Return the graph of what was captured."""
        capture = self.capture
        assert capture is not None
        # As CUDA demands, the thread that began it also ends it.
        assert CARD.captures.pop(threading.get_ident()) is capture
        self.capture = None
        if not capture.is_valid:
            raise CUDARuntimeError(CAPTURE_INVALIDATED)
        CARD.count("capture")
        return Graph(capture.work)

    def wait_event(self, event: Event) -> None:
        """Delay later work until an event of another stream."""
        self.submit(event.reach)


class Event:
    """Moment in a stream's work."""

    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        CARD.require()
        self.nanoseconds = 0
        self._stream: Stream | None = None
        self._work: Work | None = None

    def record(self, stream: Any = None) -> None:
        """Delay the reading of the clock until the stream's earlier work is done."""
        assert stream is not None, "the null stream is not that of the programs"

        def read() -> None:
            self.nanoseconds = time.perf_counter_ns()
            self._work = None

        self._stream, self._work = stream, read
        stream.submit(read)

    def reach(self) -> None:
        """Do the work before the event."""
        if self._work is not None and self._stream is not None:
            self._stream.queue.drain(self._work)

    def synchronize(self) -> None:
        """Wait for the event."""
        CARD.require()
        CARD.forbid_in_capture()
        self.reach()
        CARD.require()


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Return the milliseconds between two events, which must have been reached."""
    assert start_event._work is None
    assert end_event._work is None
    return (end_event.nanoseconds - start_event.nanoseconds) / 1e6
