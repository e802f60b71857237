"""Whole training steps of mxrun and its peers, alternating in one run: ratios, not times, count.

    python tests/bench/bench_step.py --network mlp --rounds 10 --busy-thread

Every contestant lives in a process of its own and takes its turn in each round, in rotating order,
so that a slow minute of the machine hits all alike. A step copies a fresh host batch in and runs
forward, loss, backward, SGD with momentum and the accuracy metric. Not one of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.peers.peer import SGD, MXNet, Peer, PyTorch, StepTiming
from mxrun.peers.process import HelperProcess

_HERE = Path(__file__).resolve().parent
_BATCH = 64
_CLASSES = 10
# Threads that spin after their work, as libgomp's and MXNet's do, have gone to sleep by then.
_PAUSE_SECONDS = 0.3
# Data shape of one batch and steps per turn, a quiet one and one beside a busy thread.
_NETWORKS = {"mlp": ((_BATCH, 784), 200, 20), "lenet": ((_BATCH, 1, 28, 28), 20, 8)}
_MXRUN = "mxrun"

Contestant = Callable[[int], list[float]]


def peer_timing(network: str, busy_thread: bool, channels_last: bool, compiled: bool) -> StepTiming:
    """What the peers are asked to time: MXNet's JSON of the network on eight random batches."""
    shape, _, _ = _NETWORKS[network]
    random = np.random.default_rng(0)
    symbol = _HERE.parent / "peers" / "symbols" / f"{network}.json"
    return StepTiming(
        symbol=symbol.read_text(),
        batches={
            "data": random.standard_normal((8, *shape), dtype=np.float32),
            "softmax_label": random.integers(0, _CLASSES, (8, _BATCH)).astype(np.float32),
        },
        label="softmax_label",
        sgd=SGD(lr=0.01, momentum=0.9, rescale_grad=1 / _BATCH),
        busy_thread=busy_thread,
        channels_last=channels_last,
        compile=compiled,
    )


def peers(
    stack: ExitStack, network: str, threads: int, busy_thread: bool, compiled: bool
) -> dict[str, Contestant]:
    """The peers that are installed here, each in the layouts that make sense."""
    contestants: dict[str, Contestant] = {}

    def enter(name: str, peer: Peer, channels_last: bool, compiled: bool) -> None:
        timing = peer_timing(network, busy_thread, channels_last, compiled)
        contestants[name] = lambda steps: peer.time_step(timing, steps)

    kinds: tuple[type[Peer], ...] = (PyTorch, MXNet)
    layouts = [False, True] if network == "lenet" else [False]
    for kind in kinds:
        if reason := kind.unavailable():
            print(f"without {kind.__name__}: {reason}", file=sys.stderr)
            continue
        peer = stack.enter_context(kind(threads))
        if kind is MXNet:
            enter("MXNet", peer, False, False)
            continue
        for channels_last in layouts:
            suffix = " channels-last" if channels_last else ""
            enter(f"PyTorch eager{suffix}", peer, channels_last, False)
            if compiled:
                enter(f"PyTorch compile{suffix}", peer, channels_last, True)
    return contestants


def mxrun_contestant(stack: ExitStack, network: str, threads: int, busy_thread: bool) -> Contestant:
    """mxrun training the network's config on MNIST in a process of its own."""
    data = os.environ["MXRUN_TEST_DATA"]
    fields = {
        "config": str(_HERE.parents[1] / "configs" / f"{network}_mnist.yaml"),
        "overrides": [
            f"data.train.path={data}",
            f"data.eval.path={data}",
            f"threads={threads}",
            "train.metrics=[accuracy]",
        ],
        "warm_up": 20,
        "busy_thread": busy_thread,
    }
    teams = {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, str(_HERE / "mxrun_worker.py")]
    worker = stack.enter_context(HelperProcess(_MXRUN, command, teams))

    def time_steps(steps: int) -> list[float]:
        reply = worker.request("time_step", {**fields, "steps": steps}, {})
        times: list[float] = reply.fields["milliseconds"]
        return times

    return time_steps


def alternate(
    contestants: dict[str, Contestant], rounds: int, steps: int
) -> dict[str, list[list[float]]]:
    """Times per contestant and round; who starts rotates."""
    times: dict[str, list[list[float]]] = {name: [] for name in contestants}
    names = list(contestants)
    for index in range(rounds):
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            time.sleep(_PAUSE_SECONDS)
            times[name].append(contestants[name](steps))
    return times


def summary(times: dict[str, list[list[float]]]) -> dict[str, dict[str, float]]:
    """Per contestant the fastest and the median step, and both as peer ÷ mxrun.

    The ratio of medians is the median over the rounds of each round's ratio of medians.
    """
    rows: dict[str, dict[str, float]] = {}
    for name, rounds in times.items():
        steps = [step for turn in rounds for step in turn]
        rows[name] = {"min_ms": min(steps), "median_ms": statistics.median(steps)}
        if _MXRUN in times:
            ours = times[_MXRUN]
            rows[name]["min_ratio"] = min(steps) / min(step for turn in ours for step in turn)
            rows[name]["median_ratio"] = statistics.median(
                statistics.median(theirs) / statistics.median(own)
                for theirs, own in zip(rounds, ours, strict=True)
            )
    return rows


def measure(network: str, options: argparse.Namespace, busy_thread: bool) -> dict[str, Any]:
    """One network, quiet or beside a busy thread in every contestant's process."""
    with ExitStack() as stack:
        contestants = peers(stack, network, options.threads, busy_thread, options.compile)
        if not options.peers_only:
            contestants[_MXRUN] = mxrun_contestant(stack, network, options.threads, busy_thread)
        _, quiet_steps, busy_steps = _NETWORKS[network]
        times = alternate(contestants, options.rounds, busy_steps if busy_thread else quiet_steps)
    return {
        "network": network,
        "busy_thread": busy_thread,
        "threads": options.threads,
        "load_average": os.getloadavg()[0],
        "contestants": summary(times),
    }


def show(result: dict[str, Any]) -> None:
    """One line per contestant."""
    beside = "beside a busy thread" if result["busy_thread"] else "quiet"
    print(f"{result['network']}, {beside}, load {result['load_average']:.1f}")
    for name, row in sorted(result["contestants"].items(), key=lambda item: item[1]["min_ms"]):
        figures = "  ".join(f"{key} {value:9.3f}" for key, value in row.items())
        print(f"  {name:30} {figures}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", action="append", choices=list(_NETWORKS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy-thread", action="store_true", help="also beside a busy thread")
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    parser.add_argument("--peers-only", action="store_true", help="leave mxrun out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    results = []
    for network in options.network or _NETWORKS:
        for busy_thread in (False, True) if options.busy_thread else (False,):
            results.append(measure(network, options, busy_thread))
            if not options.json:
                show(results[-1])
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
