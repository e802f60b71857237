"""Cost of memory budgets: training steps and resident bytes by budget, alternating.

    python tests/bench/bench_budget.py resnet50_imagenet --batch 16 --budgets 75% 50% --torch python

Every round runs the plain plan and each budget in a process of its own, and PyTorch if its Python
is given (ResNet-50 only). Prints medians over the rounds: the fastest step, its ratio to the plain
plan's of the same round, the prediction, and the peak resident bytes of the process. Not a test.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

PLAIN = "plain"
TORCH = "PyTorch"
_PEER = Path(__file__).with_name("resnet50_torch.py")


def run(command: list[str]) -> dict[str, Any]:
    """Run a process and return its JSON output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(options: argparse.Namespace, budget: str) -> dict[str, float]:
    """Run one process; return the seconds of its fastest step, peak resident bytes, and predicted
    cost.
    """
    common = [str(options.batch), str(options.steps), str(options.threads)]
    if budget == TORCH:
        return run([options.torch, str(_PEER), *common])
    words = ["--batch", common[0], "--steps", common[1], "--threads", common[2], "--warmup", "1"]
    limit = [] if budget == PLAIN else [f"memory.budget={budget}"]
    bench = [sys.executable, "-m", "mxrun", "bench", options.config, *limit, *words, "--json"]
    found = run(bench)
    inspect = ["inspect-memory", options.config, *limit, "--batch", common[0], "--json"]
    plan = run([sys.executable, "-m", "mxrun", *inspect])
    again = plan["recompute"].get("train", {})
    return {
        "seconds": found["mxrun"]["step_ms"]["min"] / 1e3,
        "resident": found["mxrun"]["rss_peak_bytes"],
        "planned": plan["planned_bytes"],
        "predicted": again.get("extra", 0.0),
    }


def main() -> None:
    """Measure all variants in alternation and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--budgets", nargs="*", default=["75%", "60%", "50%", "40%"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--torch", help="the Python that has PyTorch")
    options = parser.parse_args()
    ways = [PLAIN, *options.budgets, *([TORCH] if options.torch else [])]
    rounds = [{way: measured(options, way) for way in ways} for _ in range(options.rounds)]
    print(f"{options.config}, batch {options.batch}, {options.threads} threads")
    print("             step ms    of plain   predicted   planned MiB   resident MiB")
    for way in ways:
        seconds = statistics.median(each[way]["seconds"] for each in rounds)
        ratio = statistics.median(each[way]["seconds"] / each[PLAIN]["seconds"] for each in rounds)
        resident = max(each[way]["resident"] for each in rounds) / 2**20
        first = rounds[0][way]
        told = f"{1 + first['predicted']:9.3f}" if "predicted" in first else " " * 9
        planned = f"{first['planned'] / 2**20:11.0f}" if "planned" in first else " " * 11
        print(
            f"{way:10} {seconds * 1e3:9.0f} {ratio:11.3f}   {told}   {planned}   {resident:12.0f}"
        )


if __name__ == "__main__":
    main()
