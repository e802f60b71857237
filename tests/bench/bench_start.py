"""Start-up times of mxrun: `--help`, `check`, and the first training step, cold and warm.

    python tests/bench/bench_start.py

Prints the minimum of several runs, each in a process of its own, with its limit. The modules are
compiled to bytecode, as by an installation. Not a test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

_RUNS = 10
_MXRUN = [sys.executable, "-m", "mxrun"]
_HELP = [*_MXRUN, "--help"]
_CHECK = [*_MXRUN, "check", "resnet50_imagenet"]
_TRAIN = [*_MXRUN, "train", "digits_lenet", "train.epochs=1", "--overwrite", "--json"]

Environment = Mapping[str, str]


def environment_in(folder: str) -> Environment:
    """Return this process's environment, with bytecode and compiled kernels cached in `folder`."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    caches = {
        name: os.path.join(folder, name) for name in ("XDG_CACHE_HOME", "PYTHONPYCACHEPREFIX")
    }
    return own | caches


def process_seconds(command: list[str], folder: str, environment: Environment) -> float:
    """Return the time of a command from start to exit of its process."""
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def first_step_seconds(folder: str, environment: Environment) -> float:
    """From process start to the end of the first step."""
    done = subprocess.run(_TRAIN, cwd=folder, env=environment, check=True, capture_output=True)
    return float(json.loads(done.stdout)["first_step_s"])


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        environment = environment_in(folder)
        for command in (_HELP, _CHECK):
            process_seconds(command, folder, environment)
        first = first_step_seconds(folder, environment)
        runs = range(_RUNS)
        figures = {
            "--help": (min(process_seconds(_HELP, folder, environment) for _ in runs), 0.2),
            "check resnet50_imagenet": (
                min(process_seconds(_CHECK, folder, environment) for _ in runs),
                0.6,
            ),
            "first step, first ever": (first, 6.0),
            "first step, later": (min(first_step_seconds(folder, environment) for _ in runs), 1.0),
        }
    for name, (seconds, most) in figures.items():
        print(f"{name:<24} {seconds:.2f} s, at most {most:.1f} s")


if __name__ == "__main__":
    main()
