"""Training steps on two ranks of one thread, beside one of two threads and PyTorch's DDP.

    python tests/bench/bench_ranks.py [--torch PYTHON] [--rounds N] [NETWORK...]

Processes of all sides alternate: one rank on two threads; two ranks on a thread each, with two and
with four batch parts; two processes of DistributedDataParallel over gloo on a thread each. All
train on the same batch size. Prints the fastest and the median step of each in ms, and the ratio of
DDP to it, of the fastest steps and the median of those of the rounds' medians: above 1, mxrun is
faster. Needs mpirun beside Python.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from side_process import SideProcess

from mxrun.base.launcher import mpirun
from mxrun.config.bundled import find_config
from mxrun.graph.phases import TRAIN
from mxrun.inspection.benchmark_loop import Steps
from mxrun.inspection.equivalence import ReferenceOutputs
from mxrun.inspection.parts_benchmark import PartsSteps
from mxrun.peers.process import HelperProcess, worker_command
from mxrun.peers.wire import prefixed
from mxrun.preparation.micro_batches import planned
from mxrun.preparation.planning import load
from mxrun.run.together import group_for, launched_group
from mxrun.runtime.ranks import OneRank

# Batch size, steps of a round, and PyTorch's mode.
NETWORKS = {
    "digits_lenet": (64, 100, "eager channels-last"),
    "resnet20_cifar10": (32, 5, "eager channels-last"),
    "gpt_tiny": (16, 10, "eager"),
}
PEER = "DDP, 2 processes"
_LEAD_STEPS, _PAUSE_S = 2, 0.3

# Takes that many steps and returns the ms of each.
Side = Callable[[int], Sequence[float]]


def serve(network: str, words: Sequence[str]) -> None:
    """Answer each line of standard input, a number of steps, with the ms of each as JSON."""
    built = load(find_config(network), words)
    ranks = group_for(built.options, launched_group()) or OneRank()
    built = built.on_ranks(ranks.size)
    run = planned(built, True)
    steps: Steps | PartsSteps
    if run.built.parts > 1:
        steps = PartsSteps(built, run.built, run.plan, ranks)
    else:
        steps = Steps(run.built, run.plan, TRAIN)
    while line := ranks.gather_texts("" if ranks.rank else sys.stdin.readline())[0]:
        steps.seconds(_LEAD_STEPS)
        seconds = steps.seconds(int(line))
        if ranks.rank == 0:
            print(json.dumps((seconds * 1e3).tolist()), flush=True)


def own_side(
    open_sides: ExitStack, network: str, batch: int, ranks: int, threads: int, parts: int
) -> Side:
    """Start ranks of mxrun and return what takes their steps."""
    words = [f"data.batch_size={batch}", f"threads={threads}", f"batch_parts={parts}"]
    command = [sys.executable, __file__, "--serve", network, *words]
    if ranks > 1:
        command = [mpirun(), "-n", str(ranks), *command, "kvstore=dist_sync"]
    process = SideProcess(f"{ranks} ranks", command, {})
    open_sides.callback(process.close)
    return lambda count: json.loads(process.ask(count))


def peer_side(
    open_sides: ExitStack, network: str, batch: int, mode: str, python: str, processes: int
) -> Side:
    """Start processes of PyTorch's DDP on the same network and return what takes their steps."""
    built = load(find_config(network), (f"data.batch_size={batch // processes}", "threads=1"))
    run = planned(built, True)
    reference = ReferenceOutputs.of(run.built, Steps(run.built, run.plan, TRAIN))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = worker_command(python, Path(__file__).with_name("ddp_worker.py"))
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    workers = [
        HelperProcess(PEER, command, {**address, "RANK": str(rank), "WORLD_SIZE": str(processes)})
        for rank in range(processes)
    ]
    for worker in workers:
        open_sides.enter_context(worker)
    pool = open_sides.enter_context(ThreadPoolExecutor(processes))
    fields = {**vars(reference.timed), "mode": mode}
    arrays = {
        **prefixed("variables", reference.variables),
        **prefixed("batches", reference.batches),
    }
    list(pool.map(lambda worker: worker.request("open", fields, arrays), workers))

    def measure(count: int) -> Sequence[float]:
        request = {"steps": count, "lead": _LEAD_STEPS}
        first, *_ = pool.map(lambda worker: worker.request("measure", request, {}), workers)
        times: Sequence[float] = first.fields["milliseconds"]
        return times

    return measure


def compare(open_sides: ExitStack, network: str, python: str, rounds: int) -> None:
    """Print a line for each side."""
    batch, count, mode = NETWORKS[network]
    sides = {
        "1 rank, 2 threads": own_side(open_sides, network, batch, 1, 2, 1),
        "2 ranks, 2 batch parts": own_side(open_sides, network, batch, 2, 1, 2),
        "2 ranks, 4 batch parts": own_side(open_sides, network, batch, 2, 1, 4),
        PEER: peer_side(open_sides, network, batch, mode, python, 2),
    }
    names, times = [*sides], {name: list[Sequence[float]]() for name in sides}
    for side in sides.values():
        side(count)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(_PAUSE_S)
            times[name].append(sides[name](count))
    medians = {name: [statistics.median(each) for each in found] for name, found in times.items()}
    fastest = {name: min(map(min, found)) for name, found in times.items()}
    print(f"{network}, batch {batch}{'fastest':>22}{'median':>10}{'DDP / it':>10}{'fastest':>10}")
    for name in names:
        pairs = zip(medians[PEER], medians[name], strict=True)
        ratio = statistics.median(peer / own for peer, own in pairs)
        middle, least = statistics.median(medians[name]), fastest[name]
        best = fastest[PEER] / least
        print(f"  {name:30}{least:10.3f}{middle:10.3f}{ratio:10.2f}{best:10.2f}", flush=True)


def main() -> None:
    """Compare the networks, or serve as one of the sides."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("networks", nargs="*", default=[*NETWORKS])
    parser.add_argument("--torch", default=os.environ.get("MXRUN_TORCH_PYTHON", sys.executable))
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    for network in options.networks:
        with ExitStack() as open_sides:
            compare(open_sides, network, options.torch, options.rounds)


if __name__ == "__main__":
    main()
