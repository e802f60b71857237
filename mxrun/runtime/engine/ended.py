"""Engine of a process that ends: pushes run on the threads that push them."""

from __future__ import annotations

from mxrun.runtime.engine.interface import EngineOperator, OnDone
from mxrun.runtime.engine.propagation import require_usable
from mxrun.runtime.engine.threaded import ThreadedEngine
from mxrun.runtime.engine.workers import Workers


class EndedEngine(ThreadedEngine):
    """Threaded engine that still takes pushes when it is closed and its workers have ended.

    Such pushes come from functions that were registered with `atexit` before the engine's own, and
    from daemon threads.
    """

    def push(self, operator: EngineOperator, on_done: OnDone | None = None) -> None:
        """Push an operator and run what is ready."""
        super().push(operator, on_done)
        self._run_ready()

    def run_or_push(self, operator: EngineOperator) -> bool:
        """Run an operator if its variables are idle, else push it and run what is ready."""
        here = super().run_or_push(operator)
        if not here:
            self._run_ready()
        return here

    def _admit(self, operator: EngineOperator) -> None:
        require_usable(operator)
        if self._deletions:
            self._delete_pending()

    def _summon(self, workers: Workers) -> None:
        if not self._closed:
            super()._summon(workers)

    def _wait_to_close(self, timeout: float | None) -> None:
        # Daemon threads may go on pushing for ever.
        self._wait_until_complete(timeout)

    def _call_back(self) -> None:
        super()._call_back()
        # The end of an asynchronous function may have made others ready.
        self._run_ready()

    def _run_ready(self) -> None:
        """Run ready pushes of all pools on the calling thread, in place of the workers."""
        while self._closed:
            with self._lock:
                ready = [workers for workers in self._workers.values() if workers.ready]
            if not ready:
                break
            self._work(ready[0], f"{ready[0].context} caller")
