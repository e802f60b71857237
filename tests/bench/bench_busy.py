"""Cost of a busy Python thread for mxrun's training steps.

Measures alone, beside a busy process and beside a busy thread, alternating.

    python tests/bench/bench_busy.py lenet_mnist --rounds 10

A segment of the tape runs without the interpreter's lock and acquires it again at its end. A busy
thread releases it after a switch interval, which is short while steps run. By default one
core is left to that thread. The cost of a process that does the same is due to the machine:
caches, memory, and contention for cores. The additional cost of the thread is due to the lock. Not
a test.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from mxrun.config.bundled import find_config
from mxrun.device.cpu.pool import available_cores
from mxrun.graph.phases import TRAIN
from mxrun.inspection.benchmark_loop import Steps
from mxrun.preparation.planning import load, plan_for

_WARM_UP = 10
# Untimed steps at the start of a run.
_LEAD = 2


@contextmanager
def busy_thread() -> Iterator[None]:
    """Context manager with a thread that runs pure Python."""
    running = True

    def spin() -> None:
        count = 0
        while running:
            count += 1

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    try:
        yield
    finally:
        running = False
        thread.join()


@contextmanager
def busy_process() -> Iterator[None]:
    """Context manager with a process that runs pure Python."""
    loop = "print(flush=True)\ncount = 0\nwhile True: count += 1"
    command = [sys.executable, "-S", "-c", loop]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


TURNS = {
    "alone": nullcontext,
    "beside a busy process": busy_process,
    "beside a busy thread": busy_thread,
}


def milliseconds(steps: Steps, rounds: int, count: int) -> dict[str, list[float]]:
    """Return the time of each step by condition, in runs of `count` steps; the order alternates."""
    times: dict[str, list[float]] = {name: [] for name in TURNS}
    order = list(TURNS)
    for _ in range(rounds):
        for name in order:
            with TURNS[name]():
                times[name] += (steps.seconds(_LEAD + count)[_LEAD:] * 1e3).tolist()
        order.reverse()
    return times


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("config", nargs="?", default="lenet_mnist")
    parser.add_argument("--batch", type=int, help="samples in a batch, if not the config's")
    parser.add_argument("--threads", type=int, default=max(1, available_cores() - 1))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10, help="timed in a turn")
    options = parser.parse_args(arguments)
    given = [f"data.batch_size={options.batch}"] if options.batch else []
    built = load(find_config(options.config), given)
    steps = Steps(built, plan_for(built, training=True, threads=options.threads), TRAIN)
    steps.seconds(_WARM_UP)
    times = milliseconds(steps, options.rounds, options.steps)
    alone = statistics.median(times["alone"])
    print(f"{options.config}, threads: {options.threads}: step in ms, median, least; of alone")
    for name, turn in times.items():
        median = statistics.median(turn)
        print(f"  {name:22} {median:9.3f} {min(turn):9.3f} {median / alone:7.2f}")


if __name__ == "__main__":
    main()
