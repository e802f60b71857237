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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.peers.peer import SGD, MXNet, Peer, PyTorch, StepTiming
from mxrun.peers.process import HelperProcess

_HERE = Path(__file__).resolve().parent
_CLASSES = 10
# Threads that spin after their work, as libgomp's and MXNet's do, have gone to sleep by then.
_PAUSE_SECONDS = 0.3
_MXRUN = "mxrun"

Contestant = Callable[[int], list[float]]


@dataclass(frozen=True)
class Network:
    """A config, the shape of its batches, and how many steps are taken.

    steps, busy_steps: in a turn, quiet and beside a busy thread; warm_up: before the first turn.
    """

    config: str
    batch: tuple[int, ...]
    steps: int
    busy_steps: int
    warm_up: int = 20


_NETWORKS = {
    "mlp": Network("mlp_mnist", (64, 784), 200, 20),
    "lenet": Network("lenet_mnist", (64, 1, 28, 28), 20, 8),
    "resnet20": Network("resnet20_cifar10", (128, 3, 32, 32), 3, 2, warm_up=3),
}


def symbol_json(network: str) -> str:
    """MXNet's JSON of the network, whose label is `softmax_label`."""
    if network != "resnet20":
        return (_HERE.parent / "peers" / "symbols" / f"{network}.json").read_text()
    sys.path.append(str(_HERE.parent / "support"))
    import residual

    return residual.resnet20(label="softmax_label").tojson()


def peer_timing(network: str, busy_thread: bool, channels_last: bool, compiled: bool) -> StepTiming:
    """What the peers are asked to time: MXNet's JSON of the network on eight random batches."""
    shape = _NETWORKS[network].batch
    random = np.random.default_rng(0)
    return StepTiming(
        symbol=symbol_json(network),
        batches={
            "data": random.standard_normal((8, *shape), dtype=np.float32),
            "softmax_label": random.integers(0, _CLASSES, (8, shape[0])).astype(np.float32),
        },
        label="softmax_label",
        sgd=SGD(lr=0.01, momentum=0.9, rescale_grad=1 / shape[0]),
        warm_up=_NETWORKS[network].warm_up,
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
    layouts = [False] if network == "mlp" else [False, True]
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
    """mxrun training the network's config on made-up records in a process of its own."""
    chosen = _NETWORKS[network]
    made_up = f"{{dataset: synthetic, split: train, records: {8 * chosen.batch[0]}, shuffle: true}}"
    fields = {
        "config": str(_HERE.parents[1] / "configs" / f"{chosen.config}.yaml"),
        "overrides": [
            f"data={{batch_size: {chosen.batch[0]}, train: {made_up}}}",
            f"threads={threads}",
            "train.metrics=[accuracy]",
        ],
        "warm_up": chosen.warm_up,
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
        chosen = _NETWORKS[network]
        steps = chosen.busy_steps if busy_thread else chosen.steps
        times = alternate(contestants, options.rounds, steps)
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
