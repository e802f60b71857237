"""Runs of a small network whose file operations are recorded, and the check of their files after a
loss of power.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from commands import digests
from power_loss import Call, Crash, Tree, crashes, final_tree, record, tree_of, write_tree
from preloaded import SUPPORT, compile_library
from training import run_training

from mxrun.base.errors import UserError
from mxrun.run.saved_runs import read_run
from mxrun.train.checkpoint import MANIFEST_FILE, load_checkpoint
from mxrun.train.checkpoint_manager import newest_checkpoint, saved_steps
from mxrun.train.progress import Progress

EPOCH, STEPS = 6, 18
CONFIG = f"""\
name: saved
threads: 1
network:
  inputs: {{data: [1, 8, 8], label: []}}
  layers:
    - FullyConnected: {{name: fc1, num_hidden: 6}}
    - Activation: {{act_type: relu}}
    - Dropout: {{p: 0.3}}
    - FullyConnected: {{name: fc2, num_hidden: 10}}
    - SoftmaxOutput: {{name: softmax, label: label}}
data:
  batch_size: 8
  train: {{dataset: digits, split: {{of: train, range: [0, {8 * EPOCH}]}}, shuffle: true}}
  eval: {{dataset: digits, split: {{of: test, range: [0, 32]}}}}
train:
  epochs: {STEPS // EPOCH}
  optimizer: {{adam: {{lr: 0.01}}}}
  average: 0.9
  log_every: 2
  checkpoint: {{every: 4 steps, keep: 2, best: accuracy}}
"""
RUN = Path("runs/saved")


@dataclass(frozen=True)
class Recorded:
    """Calls of a process that trained in a folder, the files before, and those after.

    arguments: those of the process after its config.
    """

    before: Tree
    calls: Sequence[Call]
    after: Tree
    arguments: Sequence[str]

    @property
    def overwrites(self) -> bool:
        return "--overwrite" in self.arguments

    def crashes(self, samples: int) -> list[Crash]:
        """Return states of the disk after a loss of power, see `crashes`."""
        return list(crashes(self.before, self.calls, samples))


class Recorder:
    """Recorder of processes that train in one folder."""

    def __init__(self, library: Path, folder: Path) -> None:
        self._library, self._folder = library, folder / "root"
        self._folder.mkdir()
        (self._folder / "net.yaml").write_text(CONFIG)
        self._count = 0

    def train(self, *arguments: str, stop: int = 0) -> Recorded:
        """Record a process; with `stop`, one that is asked to stop after so many steps."""
        before = tree_of(self._folder)
        self._count += 1
        script = (SUPPORT / "recorded_run.py", str(stop), "train", "net.yaml", *arguments)
        trace = self._folder.parent / f"trace-{self._count}"
        code = 75 if stop else 0
        calls = record(self._library, self._folder, *script, code=code, trace=trace)
        after = tree_of(self._folder)
        # No call was missed.
        assert final_tree(before, calls) == after
        return Recorded(before, calls, after, arguments)


def fresh(recorder: Recorder) -> Recorded:
    """Train from the first step to the last."""
    return recorder.train()


def keeping_one(recorder: Recorder) -> Recorded:
    """Train with the newest and the best checkpoint alone."""
    return recorder.train("train.checkpoint.keep=1")


def resumed(recorder: Recorder) -> Recorded:
    """Go on after a stop in an evaluation, whose step is then saved again."""
    recorder.train(stop=EPOCH)
    return recorder.train("--resume")


def overwriting(recorder: Recorder) -> Recorded:
    """Train in place of a run of another config."""
    recorder.train("train.optimizer.adam.lr=0.02")
    return recorder.train("--overwrite")


Scenario = Callable[[Recorder], Recorded]


class Scenarios:
    """Scenarios recorded in folders inside a folder, each when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._library = folder, compile_library(folder, "recorded_files")
        self._done: dict[str, Recorded] = {}

    def recorded(self, scenario: Scenario) -> Recorded:
        """Return a scenario's last process."""
        name = scenario.__name__
        if name not in self._done:
            (self._folder / name).mkdir()
            self._done[name] = scenario(Recorder(self._library, self._folder / name))
        return self._done[name]


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Context manager that yields an empty folder, in memory if there is such a file system.

    Files are synced thousands of times.
    """
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@dataclass(frozen=True)
class _Loaded:
    """What the loader finds: progress of the newest checkpoint, if any, and the steps of all."""

    progress: Progress | None
    steps: Sequence[int]
    problem: str = ""


class Disk:
    """Folder that holds the files left by one loss of power after the other.

    Files are written, and loaded, if those that the result depends on differ from earlier ones.
    """

    def __init__(self, recorded: Recorded, folder: Path) -> None:
        self._recorded, self._folder = recorded, folder
        self._written: Tree = {}
        self._run = folder / RUN
        self._loaded: dict[frozenset[tuple[str, bytes | None]], _Loaded] = {}
        self._listed: dict[tuple[Any, ...], str] = {}

    def problem(self, crash: Crash) -> str:
        """Return what is wrong with the files after a loss of power; empty if nothing is."""
        loaded = self._load(crash.tree)
        progress = loaded.progress
        # The checkpoints of the run that is overwritten may be removed in part.
        is_old = self._is_overwritten_run(crash.tree)
        if loaded.problem or progress is None:
            problem = loaded.problem or "there is no checkpoint"
            return problem if crash.step or (loaded.problem and not is_old) else ""
        if progress.step < crash.step:
            return f"step {crash.step} was saved, and {progress.step} is found"
        if progress.best is not None and progress.best.step not in loaded.steps and not is_old:
            return f"the best checkpoint, {progress.best.step}, is gone"
        expected = self._recorded.before if is_old else self._recorded.after
        return self._problem_of_records(crash.tree, expected, progress) or (
            "" if is_old else self._problem_of_listing(crash.tree)
        )

    def _is_overwritten_run(self, tree: Tree) -> bool:
        """Return whether every checkpoint is of the run that is overwritten."""
        before = self._recorded.before
        saved = (path for path in tree if path.endswith(f"/{MANIFEST_FILE}"))
        return self._recorded.overwrites and all(tree[path] == before.get(path) for path in saved)

    def _write(self, tree: Tree) -> None:
        write_tree(self._folder, tree, self._written)
        self._written = tree

    def _load(self, tree: Tree) -> _Loaded:
        prefix = str(RUN / "checkpoint-")
        saved = frozenset(item for item in tree.items() if item[0].startswith(prefix))
        if saved not in self._loaded:
            self._write(tree)
            self._loaded[saved] = self._load_written()
        return self._loaded[saved]

    def _load_written(self) -> _Loaded:
        steps = saved_steps(self._run)
        try:
            found = newest_checkpoint(self._run).checkpoint
            for step in steps:
                load_checkpoint(self._run / f"checkpoint-{step}")
        except UserError as error:
            return _Loaded(None, steps, str(error))
        return _Loaded(None if found is None else found.manifest.progress, steps)

    def _problem_of_records(self, tree: Tree, expected: Tree, progress: Progress) -> str:
        """Return what is wrong with what was recorded before a checkpoint."""
        for name in ("metrics.jsonl", "timing.jsonl"):
            lines = _content(expected, name).splitlines(keepends=True)
            needed = b"".join(line for line in lines if _is_before(json.loads(line), progress))
            if not _content(tree, name).startswith(needed):
                return f"{name} lacks records before step {progress.step}"
        is_same = _content(tree, "config.yaml") == _content(expected, "config.yaml")
        return "" if is_same or expected is self._recorded.before else "config.yaml is another"

    def _problem_of_listing(self, tree: Tree) -> str:
        """Return what the list of runs finds wrong."""
        files = [tree.get(str(RUN / name)) for name in ("metrics.jsonl", "summary.json")]
        key = (*files, *sorted(path for path in tree if path.endswith("manifest.json")))
        if key not in self._listed:
            self._write(tree)
            run = read_run(self._run)
            state = "finished" if (self._run / "summary.json").exists() else "stopped"
            found = f"the run is {run.state}: {run.problem}"
            self._listed[key] = "" if run.state == state else found
        return self._listed[key]

    def go_on(self, crash: Crash) -> None:
        """Train to the end from a state of the disk; assert that the result is the same."""
        self._write(crash.tree)
        overwrites = self._recorded.overwrites and not crash.step
        overrides = [each for each in self._recorded.arguments if not each.startswith("--")]
        run_training(*overrides, overwrite=overwrites, resume=not overwrites)
        left = digests(self._run)
        self._written = tree_of(self._folder)
        self._write(self._recorded.after)
        assert left == digests(self._run), crash.call


def _content(tree: Tree, name: str) -> bytes:
    return tree.get(str(RUN / name)) or b""


def _is_before(record: dict[str, Any], progress: Progress) -> bool:
    """Return whether a record is of a finished epoch, or of a step that was taken."""
    if "eval" in record or "seconds" in record:
        return bool(record["epoch"] < progress.epoch)
    return bool(record["step"] <= progress.step)
