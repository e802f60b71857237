"""Transforms of a user's own in processes, which share no interpreter lock."""

from __future__ import annotations

import os
import socket
import subprocess
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.locks import new_lock
from mxrun.io.loading.messages import (
    Message,
    SharedArrays,
    error_from_json,
    new_memory_file,
    receive,
    send,
)
from mxrun.io.loading.python_transforms import PROCESS, TRIES, Result, Steps
from mxrun.io.transforms.base import Record
from mxrun.io.transforms.draws import Draws
from mxrun.io.transforms.pipeline import TransformStep

# Seconds that a new process may take until it is ready, and an ended one until it is gone.
_START_S, _END_S = 120.0, 1.0
# Libraries of matrix products and images read their numbers of threads from these.
_ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)


class _ProcessFailed(Exception):
    """A process has ended, or has taken too long, while it transformed a record."""


class ProcessTransforms:
    """Transforms applied in processes, one for each thread that calls `run`, started on demand.

    A process that ends or takes too long for a record is replaced, and the record is tried again.
    After `TRIES` failures it has an error, and the others go on. The processes end with this one,
    also when it is killed, and with `close`.

    kind: `process`; empty before the first records. replaced: number of processes replaced.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        """`command`: starts a process that serves a connection and a memory file.

        Their descriptors and that of its lifeline are its last three arguments; see
        `transform_server`. timeout: seconds that
        a process may take for one record.
        """
        self._command, self._timeout = tuple(command), timeout
        self._lock = new_lock()
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self._closed = False
        self.kind = ""
        self.replaced = 0
        self._finish = weakref.finalize(self, _end_all, self._all)

    @property
    def processes(self) -> list[int]:
        """Identifiers of the processes."""
        with self._lock:
            return [each.identifier for each in self._all]

    def run(
        self, steps: Steps, field: str, records: Sequence[Record], draws: Sequence[Draws]
    ) -> list[Result]:
        """Return the transformed records, or their errors."""
        del field
        self.kind = PROCESS
        found: list[Result] = []
        failures = 0
        process = self._take()
        try:
            while len(found) < len(records):
                done = len(found)
                try:
                    for result in process.run(steps, records[done:], draws[done:]):
                        found.append(result)
                except _ProcessFailed as failed:
                    process = self._replace(process)
                    failures = failures + 1 if len(found) == done else 1
                    if failures == TRIES:
                        found.append(_lost(steps, failed))
                        failures = 0
        finally:
            self._give_back(process)
        return found

    def _take(self) -> _Process:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._start()

    def _start(self) -> _Process:
        failures = 0
        while True:
            try:
                process = _Process(self._command, self._timeout)
            except OSError as error:
                raise _not_started(str(error)) from error
            with self._lock:
                self._all.add(process)
                is_closed = self._closed
            try:
                if is_closed:
                    raise UserError("the transforms are closed")
                process.wait_until_ready()
            except _ProcessFailed as failed:
                self._drop(process)
                failures += 1
                if failures == TRIES:
                    raise _not_started(str(failed)) from failed
            except UserError:
                self._drop(process)
                raise
            else:
                return process

    def _replace(self, process: _Process) -> _Process:
        self._drop(process)
        self.replaced += 1
        return self._start()

    def _drop(self, process: _Process) -> None:
        with self._lock:
            self._all.discard(process)
        process.end()

    def _give_back(self, process: _Process) -> None:
        with self._lock:
            if process in self._all and process.is_idle:
                self._idle.append(process)
                return
        self._drop(process)

    def close(self) -> None:
        """End all processes; calls of `run` in other threads then fail."""
        with self._lock:
            self._closed = True
        self._finish()
        self._idle.clear()


def _end_all(processes: set[_Process]) -> None:
    for each in list(processes):
        each.end()
    processes.clear()


class _Process:
    """Process with a connection and a memory, used by one thread at a time.

    is_idle: whether it has answered everything that it was asked.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        self._timeout = timeout
        self._connection, theirs = socket.socketpair()
        memory = new_memory_file()
        self._arrays = SharedArrays(memory)
        self.is_idle = False
        self._ended = new_lock()
        # Nothing is written: our side is closed when this process ends, however that happens.
        lifeline, self._lifeline = os.pipe()
        descriptors = (theirs.fileno(), memory, lifeline)
        try:
            self._process = subprocess.Popen(
                [*command, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                # Standard output is for the results of the command.
                stdout=2,
                pass_fds=descriptors,
                # Ctrl-C is for the run alone.
                start_new_session=True,
                env={**os.environ, **_ONE_THREAD},
            )
        except OSError:
            self._connection.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(lifeline)

    @property
    def identifier(self) -> int:
        """Identifier of the process."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until the transforms are loaded; raises UserError if they cannot be."""
        answer = self._receive(_START_S)
        if "error" in answer:
            raise error_from_json(answer["error"])
        self.is_idle = True

    def run(
        self, steps: Steps, records: Sequence[Record], draws: Sequence[Draws]
    ) -> Iterator[Result]:
        """Send records and yield the results, in their order.

        Raises _ProcessFailed if the process ends, or takes too long for a record.
        """
        self.is_idle = False
        self._arrays.start(0)
        places = [self._arrays.put(record) for record in records]
        message = {
            "steps": [_step(step) for step in steps],
            "records": places,
            "draws": [(draw.seed, draw.epoch, draw.record) for draw in draws],
            "end": self._arrays.end,
        }
        try:
            send(self._connection, message)
        except OSError as error:
            raise _ProcessFailed("it has ended") from error
        for _ in records:
            answer = self._receive(self._timeout)
            if "error" in answer:
                yield error_from_json(answer["error"])
            else:
                yield self._arrays.at(answer).copy()
        self.is_idle = True

    def _receive(self, timeout: float) -> Message:
        try:
            self._connection.settimeout(timeout)
            return receive(self._connection)
        except TimeoutError as error:
            raise _ProcessFailed(f"it took more than {timeout:g} s") from error
        except (EOFError, OSError) as error:
            code = None
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_END_S)
            how = f" with signal {-code}" if code is not None and code < 0 else ""
            raise _ProcessFailed(f"it has ended{how}") from error

    def end(self) -> None:
        """End the process; a second call does nothing."""
        if not self._ended.acquire(blocking=False):
            return
        with suppress(OSError):
            # Wakes a thread that waits for an answer.
            self._connection.shutdown(socket.SHUT_RDWR)
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._connection.close()
        os.close(self._lifeline)


def _not_started(reason: str) -> UserError:
    """Return the error for processes that cannot be started."""
    problem = f"a process for transforms cannot be started: {reason}"
    return UserError(Diagnostic(problem, hint="write data.worker_kind: thread"))


def _lost(steps: Steps, failed: _ProcessFailed) -> UserError:
    """Return the error of a record with which one process after another has failed."""
    names = ", ".join(step.transform.name for step in steps)
    return UserError(f"{names}: {TRIES} processes have failed to transform it: {failed}")


def _step(step: TransformStep) -> Message:
    """Return a step as JSON."""
    return {
        "name": step.transform.name,
        "parameters": step.transform.model_dump(mode="json"),
        "position": step.position,
        "place": None if step.place is None else asdict(step.place),
    }
