"""How soon mxrun answers: `--help`, and the first training step with a cold and a warm cache.

    python tests/bench/bench_start.py

Prints the least of several runs, each a process of its own. Not one of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

_RUNS = 5
_MXRUN = [sys.executable, "-m", "mxrun"]
_TRAIN = [*_MXRUN, "train", "digits_lenet", "train.epochs=1", "--overwrite", "--json"]


def help_seconds() -> float:
    """Whole-process time of `mxrun --help`."""
    started = time.perf_counter()
    subprocess.run([*_MXRUN, "--help"], check=True, capture_output=True)
    return time.perf_counter() - started


def first_step_seconds(folder: str) -> float:
    """From process start to the end of the first step, compiled code being kept in `folder`."""
    environment = {**os.environ, "XDG_CACHE_HOME": os.path.join(folder, "cache")}
    done = subprocess.run(_TRAIN, cwd=folder, env=environment, check=True, capture_output=True)
    return float(json.loads(done.stdout)["first_step_s"])


def main() -> None:
    """Measure and print."""
    print(f"--help                 {min(help_seconds() for _ in range(_RUNS)):.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        print(f"first step, first ever {first_step_seconds(folder):.2f} s")
        warm = min(first_step_seconds(folder) for _ in range(_RUNS))
        print(f"first step, later      {warm:.2f} s")


if __name__ == "__main__":
    main()
