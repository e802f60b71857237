"""What a busy Python thread costs mxrun's training steps: quiet and busy turns, alternating.

    python tests/bench/bench_busy.py lenet_mnist --rounds 10

A segment of the tape runs without the interpreter's lock and asks for it back at its end. A thread
that never rests hands it over after a switch interval (5 ms, unless Python was told otherwise), so
that busy less quiet shows how many such waits a step has. By default the team leaves one core to
that thread: what they share is the lock, not the processor. Not one of the tests.
"""

from __future__ import annotations

import argparse
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from mxrun.backend.team import available_cores
from mxrun.config.bundled import find_config
from mxrun.graph.compile import TRAIN
from mxrun.session.build import load, plan_for
from mxrun.session.steps import Steps

_WARM_UP = 10
# Steps of a turn before those that are timed.
_LEAD = 2


@contextmanager
def busy_thread() -> Iterator[None]:
    """A thread of pure Python runs meanwhile."""
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


def milliseconds(steps: Steps, rounds: int, count: int) -> tuple[list[float], list[float]]:
    """Of each step in quiet and in busy turns of `count`; who begins a round alternates."""
    quiet: list[float] = []
    busy: list[float] = []
    turns = [(quiet, nullcontext), (busy, busy_thread)]
    for _ in range(rounds):
        for times, beside in turns:
            with beside():
                times += (steps.seconds(_LEAD + count)[_LEAD:] * 1e3).tolist()
        turns.reverse()
    return quiet, busy


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("config", nargs="?", default="lenet_mnist")
    parser.add_argument("--threads", type=int, default=max(1, available_cores() - 1))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10, help="timed in a turn")
    options = parser.parse_args(arguments)
    built = load(find_config(options.config))
    steps = Steps(built, plan_for(built, training=True, threads=options.threads), TRAIN)
    steps.seconds(_WARM_UP)
    quiet, busy = map(statistics.median, milliseconds(steps, options.rounds, options.steps))
    print(f"{options.config}, threads: {options.threads}, median step")
    print(f"  quiet                 {quiet:9.3f} ms")
    print(f"  beside a busy thread  {busy:9.3f} ms")
    print(f"  busy / quiet          {busy / quiet:9.2f}")


if __name__ == "__main__":
    main()
