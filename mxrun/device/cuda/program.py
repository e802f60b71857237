"""Programs on a card: launched one by one once, then captured as graphs, which are replayed.

A graph holds consecutive launches of kernels. What needs the host, such as a Python body, runs
between two graphs.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from mxrun.base import flags
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.base.machine import Machine
from mxrun.device.cuda.cudnn.launch import PlanLaunch
from mxrun.device.cuda.host_bodies import HostBodies, HostCall
from mxrun.device.cuda.launches import Constants, PlanCall, kernel_call
from mxrun.device.cuda.memory import address_of
from mxrun.device.cuda.modules import Modules
from mxrun.device.cuda.queue import Queue
from mxrun.device.cuda.timing import TimedCalls
from mxrun.device.interface import Program, ProgramStep, TimedProgram
from mxrun.operator.launch import Launch, LoopLaunch, PythonLaunch, Repeat

# Receives a note for the user.
Note = Callable[[str], None]


class CudaCall(Protocol):
    """Part of a program that starts work on the queue's stream, and may wait for it."""

    def start(self, queue: Queue) -> None:
        """Start the work."""


@dataclass(frozen=True)
class LimitedLoop:
    """Loop of which at most so many iterations run as a number on the card says.

    limit: its address. iterations: by rank, the number of iterations that are preferred, the calls
    of each, in the order in which they run.
    """

    limit: int
    iterations: tuple[tuple[int, tuple[CudaCall, ...]], ...]

    def start(self, queue: Queue) -> None:
        """Read the number, and start the calls."""
        number = np.zeros(1, np.int64)
        queue.read(self.limit, number)
        for rank, calls in self.iterations:
            if rank < number[0]:
                for call in calls:
                    call.start(queue)


class Binding:
    """Calls of launches, with the constants and the pinned memory that they use."""

    def __init__(self, queue: Queue, modules: Modules) -> None:
        self._queue, self._modules = queue, modules
        self._constants, self._bodies = Constants(queue), HostBodies(queue)

    def calls(self, launch: Launch, iterations: tuple[int, ...] = ()) -> Iterator[CudaCall]:
        """Yield the calls of a launch in the given iterations of the enclosing loops.

        Raises InternalError for a launch that cards cannot run.
        """
        if isinstance(launch, LoopLaunch):
            yield kernel_call(launch, iterations, self._modules, self._constants)
        elif isinstance(launch, PlanLaunch):
            yield PlanCall.of(launch, iterations, self._queue.index)
        elif isinstance(launch, PythonLaunch):
            yield self._bodies.add(launch, iterations)
        elif isinstance(launch, Repeat):
            yield from self._repeated(launch, iterations)
        else:
            raise InternalError(f"a card cannot run {type(launch).__name__}")

    def _repeated(self, repeat: Repeat, iterations: tuple[int, ...]) -> Iterator[CudaCall]:
        unrolled = [
            (
                repeat.rank(number),
                tuple(
                    call
                    for each in repeat.program
                    for call in self.calls(each, (*iterations, number))
                ),
            )
            for number in range(repeat.count)
        ]
        if repeat.limit is not None:
            yield LimitedLoop(address_of(repeat.limit, iterations), tuple(unrolled))
            return
        for _, calls in unrolled:
            yield from calls

    def finish(self) -> None:
        """Prepare the Python bodies, once all launches are bound."""
        self._bodies.place()


class GraphSegment:
    """Consecutive launches of kernels, from the second run on one graph."""

    def __init__(self, queue: Queue, calls: Sequence[CudaCall], note: Note) -> None:
        self._queue, self._calls, self._note = queue, tuple(calls), note
        self._graph: Any = None
        self._is_eager = False

    def run(self) -> None:
        """Launch the graph, captured if it is not; one by one if it cannot be captured."""
        queue = self._queue
        if self._graph is None and not self._is_eager:
            self._capture()
        with queue.named("a program"):
            if self._graph is None:
                for call in self._calls:
                    call.start(queue)
            else:
                self._graph.launch(queue.stream)

    def _capture(self) -> None:
        cupy = self._queue.cupy
        errors: tuple[type[Exception], ...] = (*cupy.errors, InternalError)
        mode = cupy.runtime.streamCaptureModeThreadLocal
        # Memory that the collector frees meanwhile would end the capture.
        was_collecting = gc.isenabled()
        gc.disable()
        try:
            queue = self._queue.capturing
            if any(isinstance(call, PlanCall) for call in self._calls):
                # Its handle allocates memory.
                _ = queue.cudnn
            with queue.lock:
                queue.stream.begin_capture(mode)
                try:
                    for call in self._calls:
                        call.start(queue)
                finally:
                    graph = queue.stream.end_capture()
            self._graph = graph
        except errors as error:
            self._is_eager = True
            # Of a launch that failed, the end of the capture only says that one did.
            cause = error.__context__ or error
            self._note(f"{len(self._calls)} launches cannot be captured as a graph: {cause}")
        finally:
            if was_collecting:
                gc.enable()


class CudaProgram(Program):
    """Calls in order; the steps hold their memory.

    note: receives what makes runs slower.
    """

    def __init__(
        self,
        queue: Queue,
        modules: Modules,
        steps: Sequence[ProgramStep],
        note: Note,
    ) -> None:
        queue.use()
        self._queue, self._steps = queue, tuple(steps)
        self._binding = Binding(queue, modules)
        bound = [
            (step.name, call)
            for step in steps
            for launch in step.launches
            for call in self._binding.calls(launch)
        ]
        self._binding.finish()
        self.names = tuple(name for name, _ in bound)
        self._calls = tuple(call for _, call in bound)
        self._segments: tuple[GraphSegment | CudaCall, ...] = tuple(
            part
            for is_captured, group in groupby(self._calls, _is_captured)
            for part in ([GraphSegment(queue, tuple(group), note)] if is_captured else group)
        )
        # The first run, and every run in debug mode, waits for each launch, whose errors it names.
        self._is_watched = True

    def run(self) -> None:
        """Run every call once, or start them in order."""
        if self._is_watched:
            self.run_watched(_ignore)
            self._is_watched = flags.debug()
            return
        queue = self._queue
        queue.use()
        for part in self._segments:
            if isinstance(part, GraphSegment):
                part.run()
            else:
                part.start(queue)

    def run_watched(self, after: Callable[[int], None]) -> None:
        """Run the calls one by one, and wait for each; `after` receives its number."""
        queue = self._queue
        queue.use()
        for index, call in enumerate(self._calls):
            with queue.named(self.names[index], is_exact=True):
                call.start(queue)
            queue.wait(self.names[index], is_exact=True)
            after(index)

    def timed(self) -> TimedProgram:
        """Return the same calls with an event after each."""
        return TimedCalls(self, self._queue, [call.start for call in self._calls])

    def overheads(self, peaks: Machine) -> Mapping[str, float]:
        """Return the least seconds of each step's launches."""
        return {name: count * peaks.loop_s for name, count in Counter(self.names).items()}


def _is_captured(call: CudaCall) -> bool:
    return not isinstance(call, (HostCall, LimitedLoop))


def _ignore(index: int) -> None:
    return
