"""Costs of pushing and running no-ops on the engine, beside MXNet's engine.

MXNet's engine has no interface in Python; its column is `x += 1` on an array of one number, which
contains the cost of an operator's call. Give its interpreter as MXRUN_MXNET_PYTHON. The two
processes take turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from mxrun.runtime.engine.interface import EngineOperator, RunContext
from mxrun.runtime.engine.threaded import ThreadedEngine

_ROUNDS, _CHAIN, _WAITS, _VARIABLES = 30, 1_000, 100, 100_000
_MXNET = f"""
import sys, time
import mxnet as mx
x = mx.nd.zeros((1,))
def chained():
    global x
    for _ in range({_CHAIN}):
        x += 1
    mx.nd.waitall()
def latency():
    global x
    for _ in range({_WAITS}):
        x += 1
        x.wait_to_read()
measures = {{"chain": (chained, {_CHAIN}), "latency": (latency, {_WAITS})}}
for run, _ in measures.values():
    run()
print("ready", flush=True)
for line in sys.stdin:
    run, count = measures[line.strip()]
    start = time.perf_counter()
    run()
    print((time.perf_counter() - start) / count, flush=True)
"""


def _nothing(context: RunContext) -> None:
    pass


class _Mxnet:
    """Helper process that measures MXNet, or nothing if there is no interpreter with it."""

    def __init__(self) -> None:
        python = os.environ.get("MXRUN_MXNET_PYTHON")
        self._process: subprocess.Popen[str] | None = None
        if python is not None:
            self._process = subprocess.Popen(
                [python, "-c", _MXNET], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self._read()

    def seconds(self, measure: str) -> float | None:
        """Return the seconds of one operation."""
        if self._process is None or not measure:
            return None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{measure}\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()

    def _read(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def _runs(engine: ThreadedEngine) -> Mapping[str, tuple[Callable[[], None], int, str]]:
    """Return the measured runs: call, operations in it, MXNet's counterpart."""
    variable = engine.new_variable()
    cached = engine.new_operator(_nothing, updates=[variable])

    def chain(push: Callable[[EngineOperator], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(_CHAIN):
                push(cached)
            engine.wait_for_all()

        return run

    def anonymous() -> None:
        for _ in range(_CHAIN):
            engine.push_sync(_nothing, updates=[variable])
        engine.wait_for_all()

    def latency(push: Callable[[EngineOperator], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(_WAITS):
                push(cached)
                engine.wait_for_variable(variable)

        return run

    return {
        "chain, cached": (chain(engine.push), _CHAIN, "chain"),
        "chain, anonymous": (anonymous, _CHAIN, "chain"),
        "chain, run_or_push": (chain(engine.run_or_push), _CHAIN, "chain"),
        "push and wait": (latency(engine.push), _WAITS, "latency"),
        "run_or_push and wait": (latency(engine.run_or_push), _WAITS, "latency"),
    }


def _measured(run: Callable[[], None], count: int) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) / count


def main() -> None:
    mxnet = _Mxnet()
    engine = ThreadedEngine()
    start = time.perf_counter()
    variables = [engine.new_variable() for _ in range(_VARIABLES)]
    print(f"{len(variables):,} variables: {time.perf_counter() - start:.3f} s")
    print(f"{'microseconds an operation':36}{'median':>9}{'best':>9}{'MXNet':>9}{'best':>9}")
    for workers in (1, 16):
        engine = ThreadedEngine(workers)
        for name, (run, count, counterpart) in _runs(engine).items():
            run()
            own, peer = [], []
            for _ in range(_ROUNDS):
                own.append(_measured(run, count))
                found = mxnet.seconds(counterpart)
                if found is not None:
                    peer.append(found)
            figures = [statistics.median(own), min(own)]
            figures += [statistics.median(peer), min(peer)] if peer else []
            title = f"{name}, {workers} worker{'s' * (workers > 1)}"
            print(f"{title:36}" + "".join(f"{figure * 1e6:9.2f}" for figure in figures))
        engine.close()
    mxnet.close()


if __name__ == "__main__":
    sys.exit(main())
