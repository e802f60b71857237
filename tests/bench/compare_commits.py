"""Compare a base commit with the working tree: plans, results and speed.

    python tests/bench/compare_commits.py origin/main
    python tests/bench/compare_commits.py HEAD~20 --only resnet --rounds 15
    python tests/bench/compare_commits.py origin/main --skip-times

Both are installed into environments of their own, on this Python. For each config, in training and
inference, with the default implementations on a fixed team, the following must be the same:

- planned bytes, the lower bound, offset and lifetime of every block;
- the schedule: the operators in their order;
- the name of each operator's implementation;
- after 20 training steps the SHA-256 of every tensor of the checkpoint, and the outputs of the
  trained network for its records.

Everything is read from the JSON output and the files of commands, so modules may be renamed and
moved in between. Names that a change gives to tensors, operators or implementations are in
`RENAMES`.

Then `mxrun bench` runs alternately in both, at least seven times. A row is slower if the median of
the ratios is above 1.03 and the quartiles of the two do not overlap. Exits with 1 if anything
differs or is slower. Not a test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# Pairs (pattern, replacement) that make a name of the base that of the working tree.
RENAMES: tuple[tuple[str, str], ...] = ()

_STEPS = 20
_CLASSES = 10
_SLOWER = 1.03
_MIN_ROUNDS = 7
# Approximate duration of a timing run, without start-up.
_TURN_S = 2.0
_PHASES = ("train", "infer")
_OF_A_BLOCK = ("tensor", "class", "offset", "bytes", "first", "last")

Facts = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A bundled config and the batch size at which it is compared."""

    config: str
    batch: int

    @property
    def overrides(self) -> tuple[str, ...]:
        """Settings for 20 steps on synthetic records."""
        made = f"dataset: synthetic, classes: {_CLASSES}"
        return (
            f"data.batch_size={self.batch}",
            f"data.train={{{made}, split: train, shuffle: true, records: {_STEPS * self.batch}}}",
            f"data.eval={{{made}, split: test, records: {2 * self.batch}}}",
            "train.epochs=1",
        )


CASES = (
    Case("digits_lenet", 64),
    Case("digits_regularized", 64),
    Case("autoencoder_digits", 64),
    Case("mlp_regression", 64),
    Case("mlp_mnist", 64),
    Case("lenet_mnist", 64),
    Case("resnet20_cifar10", 32),
    Case("mobilenetv2_imagenet", 4),
    Case("resnet50_imagenet", 4),
    Case("inceptionv3_imagenet", 2),
)


@dataclass(frozen=True)
class Installation:
    """mxrun in an environment of its own, with its own cache; `name` is `base` or `work`."""

    name: str
    folder: Path
    threads: int

    def run(self, *arguments: str) -> str:
        """Run `mxrun` in the installation's folder and return its standard output.

        Raises SystemExit with the command and its output if it fails.
        """
        command = [str(self.folder / "bin" / "python"), "-m", "mxrun", *arguments]
        cache = str(self.folder / "cache")
        own = {"XDG_CACHE_HOME": cache, "PYTHONDONTWRITEBYTECODE": ""}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            text = done.stderr[-4000:]
            raise SystemExit(
                f"{self.name}: {' '.join(command)} ended with {done.returncode}\n{text}"
            )
        return done.stdout

    def report(self, *arguments: str) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.run(*arguments, "--json"))


def sources_of(commit: str, folder: Path) -> Path:
    """Write the files of a commit into a folder."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode().strip())
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder)
    return folder


def sources_of_working_tree(folder: Path) -> Path:
    """Copy the files that git tracks or does not ignore, in their current state."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listing = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def installed(name: str, sources: Path, folder: Path, threads: int) -> Installation:
    """Make an environment and install the sources in it."""
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", str(sources)]
    subprocess.run(command, check=True)
    return Installation(name, folder, threads)


def plan_facts(mxrun: Installation, case: Case, phase: str) -> Facts:
    """Bytes, offsets, lifetimes, schedule and implementations of one phase."""
    shared = (case.config, *case.overrides[:1], "--phase", phase, "--threads", str(mxrun.threads))
    memory = mxrun.report("inspect-memory", *shared)
    timed = mxrun.report("bench", *shared, "--steps", "1", "--warmup", "0")
    facts: Facts = {
        f"{phase}: {key}": memory[key]
        for key in ("planned_bytes", "lower_bound_bytes", "naive_bytes", "order")
    }
    for name, schedule in memory["timeline"].items():
        facts[f"{phase}: schedule of {name}"] = schedule["operators"]
        facts[f"{phase}: live bytes of {name}"] = schedule["bytes"]
    blocks = {**memory["blocks"], "pinned": memory["pinned"]}
    for name, placed in blocks.items():
        facts[f"{phase}: blocks of {name}"] = [
            [block.get(key) for key in _OF_A_BLOCK] for block in placed
        ]
    facts[f"{phase}: implementations"] = [
        [step["name"], step["op"], step["implementation"]] for step in timed["operators"]
    ]
    return facts


def result_facts(mxrun: Installation, case: Case) -> Facts:
    """SHA-256 of each tensor after 20 steps, the metrics, and the outputs of inference."""
    team = f"threads={mxrun.threads}"
    mxrun.run("train", case.config, *case.overrides, team, "--overwrite", "--json")
    run = mxrun.folder / "runs" / case.config
    facts: Facts = {"metrics": (run / "metrics.jsonl").read_text()}
    (saved,) = run.glob("checkpoint-*")
    for file in sorted(saved.glob("*.safetensors")):
        facts.update(tensor_hashes(file))
    to = mxrun.folder / "outputs.npy"
    mxrun.run("infer", str(run), "--split", "eval", "--output", "npy", "--to", str(to))
    facts["inference: outputs"] = hashlib.sha256(to.read_bytes()).hexdigest()
    return facts


def tensor_hashes(file: Path) -> Iterator[tuple[str, str]]:
    """Name and SHA-256 of each tensor of a safetensors file."""
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for name, entry in json.loads(content[8:start]).items():
        first, last = entry["data_offsets"]
        data = content[start + first : start + last]
        yield f"{file.stem}: {name}", hashlib.sha256(data).hexdigest()


def facts_of(mxrun: Installation, case: Case) -> Facts:
    """Return all facts that must be the same."""
    facts = result_facts(mxrun, case)
    for phase in _PHASES:
        facts |= plan_facts(mxrun, case, phase)
    return facts


def renamed(value: Any) -> Any:
    """Translate a fact of the base into the names of the working tree."""
    if isinstance(value, str):
        for pattern, replacement in RENAMES:
            value = re.sub(pattern, replacement, value)
        return value
    if isinstance(value, list):
        return [renamed(each) for each in value]
    if isinstance(value, Mapping):
        return {renamed(key): renamed(each) for key, each in value.items()}
    return value


def differences(base: Facts, work: Facts) -> Iterator[str]:
    """Yield a line for each fact that differs, with the first differing entries."""
    for key in sorted({*base, *work}):
        if key not in base or key not in work:
            yield f"{key}: only in the {'base' if key in base else 'working tree'}"
        elif base[key] != work[key]:
            before, after = first_difference(base[key], work[key])
            yield f"{key}: {before} before, {after} now"


def first_difference(before: Any, after: Any) -> tuple[Any, Any]:
    """Return the first differing elements of two lists of equal length, else both arguments."""
    if isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=False):
            if one != other:
                return one, other
        return f"{len(before)} entries", f"{len(after)} entries"
    return before, after


def step_ms(mxrun: Installation, case: Case, phase: str, steps: int) -> float:
    """Median time of a step of one process."""
    shared = (case.config, *case.overrides[:1], "--phase", phase, "--threads", str(mxrun.threads))
    timed = mxrun.report("bench", *shared, "--steps", str(steps), "--warmup", "3")
    return float(timed["mxrun"]["step_ms"]["median"])


@dataclass(frozen=True)
class Row:
    """Step times of both commits in alternating runs, in ms."""

    base: Sequence[float]
    work: Sequence[float]

    @property
    def ratio(self) -> float:
        """Median of the working tree's time over the base's, pair by pair: above 1 is slower."""
        return statistics.median(now / then for then, now in zip(self.base, self.work, strict=True))

    @property
    def is_slower(self) -> bool:
        """Return whether the ratio is above 1.03 and the quartiles do not overlap."""
        highest = statistics.quantiles(self.base, n=4)[2]
        lowest = statistics.quantiles(self.work, n=4)[0]
        return self.ratio > _SLOWER and lowest > highest

    def __str__(self) -> str:
        base, work = map(statistics.median, (self.base, self.work))
        verdict = "SLOWER" if self.is_slower else ""
        return f"{base:10.3f} {work:10.3f} {self.ratio:7.3f}  {verdict}"


def timed_row(base: Installation, work: Installation, case: Case, phase: str, rounds: int) -> Row:
    """Return the times of alternating processes; the order alternates too."""
    first = step_ms(base, case, phase, 2)
    steps = max(3, min(2000, int(_TURN_S * 1e3 / first)))
    times: dict[str, list[float]] = {"base": [], "work": []}
    order = [base, work]
    for _ in range(rounds):
        for mxrun in order:
            times[mxrun.name].append(step_ms(mxrun, case, phase, steps))
        order.reverse()
    return Row(times["base"], times["work"])


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("--only", default="", help="configs whose name contains this")
    parser.add_argument("--threads", type=int, default=2, help="the compute team")
    parser.add_argument("--rounds", type=int, default=_MIN_ROUNDS, help="turns of each, at least 7")
    parser.add_argument("--skip-times", action="store_true", help="compare results alone")
    options = parser.parse_args()
    if options.rounds < _MIN_ROUNDS:
        parser.error(f"--rounds: at least {_MIN_ROUNDS}")
    return options


def main() -> int:
    """Install, compare, time, print; the exit code."""
    options = arguments()
    cases = [case for case in CASES if options.only in case.config]
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("base", "work"):
            (folder / f"{part}-sources").mkdir()
        before = sources_of(options.base, folder / "base-sources")
        after = sources_of_working_tree(folder / "work-sources")
        base = installed("base", before, folder / "base", options.threads)
        work = installed("work", after, folder / "work", options.threads)
        for case in cases:
            start = time.monotonic()
            facts = facts_of(work, case)
            found = list(differences(renamed(facts_of(base, case)), facts))
            failed |= bool(found)
            seconds = time.monotonic() - start
            outcome = f"{len(found)} differ" if found else "the same"
            print(f"{case.config:24} {len(facts):5} facts {outcome}, {seconds:.0f} s", flush=True)
            for line in found:
                print(f"    {line[:400]}", flush=True)
        for phase in () if options.skip_times else _PHASES:
            print(f"{phase + ', ms a step':24} {'base':>10} {'now':>10} {'ratio':>7}", flush=True)
            for case in cases:
                row = timed_row(base, work, case, phase, options.rounds)
                failed |= row.is_slower
                print(f"{case.config:24} {row}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
