"""Compare a base commit with the working tree: plans, results, output of commands and speed.

    python tests/bench/compare_commits.py origin/main
    python tests/bench/compare_commits.py HEAD~20 --part networks --only resnet --rounds 15
    python tests/bench/compare_commits.py origin/main --skip-times

Both are installed into environments of their own, on this Python. The following must be the same:

- networks: planned bytes, the lower bound, offset and lifetime of every block; the operators in
  their order; the name of each operator's implementation; the SHA-256 of every tensor after some
  steps of training, the metrics, and the outputs of the trained network;
- batches: the SHA-256 of 20 batches of every data format and every transform, with and without
  loader processes;
- faces: the arrays of programs in Python;
- calls: what commands print, as text and as JSON, and their exit codes, for good and bad calls.

Modules may be renamed and moved in between: everything is read from the output and the files of
commands, or computed by programs that use public names alone. Names that a change gives to tensors,
operators or implementations are in `proof/differences.py`.

Then `mxrun bench` runs alternately in both, at least seven times. A row is slower if the median of
the ratios is above 1.03 and the quartiles of the two do not overlap. Exits with 1 if anything
differs or is slower. Not a test; `plant_faults.py` shows that it finds faults.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from proof import batches, calls, faces, networks
from proof.differences import differences, renamed
from proof.installation import (
    Facts,
    Installation,
    installed,
    sources_of,
    sources_of_working_tree,
)
from proof.part import Part
from proof.times import MIN_ROUNDS, timed_row

PARTS: Mapping[str, Part] = {
    "networks": networks.PART,
    "batches": batches.PART,
    "faces": faces.PART,
    "calls": calls.PART,
}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="all by default")
    parser.add_argument("--only", default="", help="groups whose name matches this pattern")
    parser.add_argument("--threads", type=int, default=2, help="how many may compute")
    parser.add_argument("--rounds", type=int, default=MIN_ROUNDS, help="turns of each, at least 7")
    parser.add_argument("--skip-times", action="store_true", help="compare results alone")
    options = parser.parse_args()
    if options.rounds < MIN_ROUNDS:
        parser.error(f"--rounds: at least {MIN_ROUNDS}")
    return options


def compare(part: Part, names: Sequence[str], pair: Sequence[Installation]) -> bool:
    """Print what differs in each of a part's groups; return whether anything does."""
    failed = False
    with ThreadPoolExecutor(len(pair)) as pool:
        for name in names:
            start = time.monotonic()
            base, work = pool.map(lambda mxrun, name=name: part.facts(mxrun, name), pair)
            found = list(differences(renamed(base), work))
            failed |= bool(found)
            _report(name, work, found, time.monotonic() - start)
    return failed


def _report(name: str, facts: Facts, found: Sequence[str], seconds: float) -> None:
    outcome = f"{len(found)} differ" if found else "the same"
    print(f"{name:40} {len(facts):5} facts {outcome}, {seconds:.0f} s", flush=True)
    for line in found:
        print(f"    {line[:400]}", flush=True)


def compare_times(only: str, base: Installation, work: Installation, rounds: int) -> bool:
    """Print the step times of both; return whether the working tree is slower."""
    failed = False
    for phase in networks.PHASES:
        print(f"{phase + ', ms a step':40} {'base':>10} {'now':>10} {'ratio':>7}", flush=True)
        for case in (case for case in networks.TIMED if re.search(only, case.name)):
            row = timed_row(base, work, case, phase, rounds)
            failed |= row.is_slower
            print(f"{case.name:40} {row}", flush=True)
    return failed


def main() -> int:
    """Install, compare, time, print; the exit code."""
    options = arguments()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("base", "work"):
            (folder / f"{part}-sources").mkdir()
        before = sources_of(options.base, folder / "base-sources")
        after = sources_of_working_tree(folder / "work-sources")
        with ThreadPoolExecutor(2) as pool:
            base, work = pool.map(
                lambda name, sources: installed(name, sources, folder / name, options.threads),
                ("base", "work"),
                (before, after),
            )
        for each in options.part or PARTS:
            part = PARTS[each]
            names = [name for name in part.names if re.search(options.only, name)]
            failed |= compare(part, names, (base, work))
        if not options.skip_times and "networks" in (options.part or PARTS):
            failed |= compare_times(options.only, base, work, options.rounds)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
