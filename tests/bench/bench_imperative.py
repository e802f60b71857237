"""Imperative operators and a training step of LeNet beside MXNet's and PyTorch's.

    MXRUN_MXNET_PYTHON=... MXRUN_TORCH_PYTHON=... python tests/bench/bench_imperative.py

Each library runs in a process of its own, and they take turns, so that all see the same load of the
machine. Prints the time of the fastest call of each, and how many times as long the others take.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from side_process import SideProcess

SIDE = Path(__file__).with_name("imperative_side.py")


class Side(SideProcess):
    """Process of one library; `best` holds the seconds of the fastest call of each case."""

    def __init__(self, name: str, interpreter: str) -> None:
        threads = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
        super().__init__(name, [interpreter, str(SIDE), name], threads)
        self.best: dict[str, float] = {}
        self.cases = [case.replace("_", " ") for case in self.answer().split()]

    def run(self, case: str, seconds: float) -> None:
        found = float(self.ask(case, seconds))
        self.best[case] = min(found, self.best.get(case, found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a case, in each round")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    interpreters = {"mxrun": sys.executable}
    for name, variable in (("mxnet", "MXRUN_MXNET_PYTHON"), ("torch", "MXRUN_TORCH_PYTHON")):
        if variable in os.environ:
            interpreters[name] = os.environ[variable]
    sides = [Side(name, interpreter) for name, interpreter in interpreters.items()]
    own, *peers = sides
    titles = "".join(f"{side.name + ' us':>12}" for side in sides)
    print(f"{'':16}{titles}{''.join(f'{peer.name + chr(47) + own.name:>14}' for peer in peers)}")
    for case in (case for case in own.cases if options.only in case):
        for _ in range(options.rounds):
            for side in sides:
                side.run(case, options.seconds)
        times = "".join(f"{side.best[case] * 1e6:12.1f}" for side in sides)
        ratios = "".join(f"{peer.best[case] / own.best[case]:14.2f}" for peer in peers)
        print(f"{case:16}{times}{ratios}", flush=True)
    for side in sides:
        side.close()


if __name__ == "__main__":
    main()
