"""Save while one file operation fails, each of them in turn, and check the files left.

Run with `failing_files.c` preloaded: `failing_saves.py FOLDER`. Prints, as JSON, the number of file
operations of each action, which of them failed, and how many failures were reported or harmless.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.base.errors import UserError
from mxrun.runtime.engine.threaded import ThreadedEngine
from mxrun.train.background import BackgroundWriter
from mxrun.train.checkpoint import (
    OPTIMIZER_FILE,
    PARAMETERS_FILE,
    Arrays,
    PlanRecord,
    RunState,
    save_checkpoint,
)
from mxrun.train.checkpoint_manager import (
    CheckpointManager,
    Interval,
    Policy,
    newest_checkpoint,
    saved_steps,
)
from mxrun.train.observer import EpochDone
from mxrun.train.progress import Progress
from mxrun.train.run_directory import RunDirectory
from mxrun.train.saver import RunSaver

NO_SPACE, IO_ERROR, SHORT_THEN_FULL, SHORT = range(4)
library = ctypes.CDLL(None)
library.failing_files_disarm.restype = ctypes.c_long


def state(step: int) -> RunState:
    return RunState(
        progress=Progress(step=step, epoch=step + 1),
        due=True,
        seed=0,
        plan=PlanRecord(library="", implementations={}),
        config_sha256="0" * 64,
        inference_sha256="0" * 64,
        data={},
    )


def arrays(seed: int) -> dict[str, Arrays]:
    generator = np.random.default_rng(seed)
    names = ("fc1_weight", "fc1_bias")
    drawn = {name: generator.normal(size=(40, 70)).astype("f4") for name in names}
    return {PARAMETERS_FILE: drawn, OPTIMIZER_FILE: {f"{k}:mom": v for k, v in drawn.items()}}


def epoch(step: int) -> EpochDone:
    return EpochDone(step, step, 0.1, {"loss": 1.0}, {}, 64, 1.0, seconds=1.0)


def begin(root: Path) -> RunDirectory:
    """Create a run with two checkpoints, recorded metrics and files of a killed process."""
    run = RunDirectory.create(root / "run", "name: run\n", False)
    for step in (1, 2):
        run.record(epoch(step))
        save_checkpoint(run.path, state(step), arrays(step))
    (run.path / ".checkpoint-9.partial").mkdir()
    (run.path / ".checkpoint-9.partial" / PARAMETERS_FILE).touch()
    return run


def end_of_epoch(run: RunDirectory) -> None:
    """Record an epoch, save, and remove the oldest of the checkpoints."""
    keeper = CheckpointManager(run.path, Policy(Interval(1, "epochs"), keep=2))
    saver = RunSaver(run, keeper, lambda progress, due: (state(3), arrays(3)), None, print)
    saver.after_epoch(epoch(3), Progress(step=3, epoch=4), improved=False)


def beside_steps(run: RunDirectory) -> None:
    """Do the same, but write the checkpoint on a thread of an engine."""
    keeper = CheckpointManager(run.path, Policy(Interval(1, "epochs"), keep=2))
    engine, groups = ThreadedEngine(), arrays(3)
    writer = BackgroundWriter(engine, [], groups)
    saver = RunSaver(
        run, keeper, lambda progress, due: (state(3), groups), None, print, writer=writer
    )
    with closing(engine), closing(saver):
        saver.after_epoch(epoch(3), Progress(step=3, epoch=4), improved=False)
        saver.wait()


def save_again(run: RunDirectory) -> None:
    """Replace the newest checkpoint by another of the same step."""
    save_checkpoint(run.path, state(2), arrays(3))


def go_on(run: RunDirectory) -> None:
    """Do the work of a resumed run before its first step, and that of another at its end."""
    run.clean_up()
    run.remove_records_from(3)
    run.replace_config("name: run\n")
    run.write_summary({"steps": 3})


def attempts(count: int) -> Iterator[tuple[int, int]]:
    for kind in (NO_SPACE, IO_ERROR, SHORT_THEN_FULL, SHORT):
        for number in range(1, count + 1):
            yield kind, number


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class Failing:
    """One action, run with a failure at every file operation in turn."""

    def __init__(self, root: Path, action: Callable[[RunDirectory], None]) -> None:
        self._root, self._action = root, action
        self.failed: set[str] = set()
        self.reported = self.harmless = 0
        run = self._begin()
        library.failing_files_arm(str(root).encode(), 0, 0)
        action(run)
        self.count = library.failing_files_disarm(ctypes.create_string_buffer(16))
        run.clean_up()
        self._expected = contents(run.path)

    def _begin(self) -> RunDirectory:
        shutil.rmtree(self._root, ignore_errors=True)
        return begin(self._root)

    def run(self) -> dict[str, Any]:
        for kind, number in attempts(self.count):
            self._attempt(kind, number)
        return {
            "operations": self.count,
            "failed": sorted(self.failed),
            "reported": self.reported,
            "harmless": self.harmless,
        }

    def _attempt(self, kind: int, number: int) -> None:
        run = self._begin()
        before = contents(run.path)
        name = ctypes.create_string_buffer(16)
        library.failing_files_arm(str(self._root).encode(), number, kind)
        error = None
        try:
            self._action(run)
        except UserError as caught:
            error = caught
        library.failing_files_disarm(name)
        failed = name.value.decode()
        self.failed.add(failed)
        case = (self._action.__name__, kind, number, failed, str(error))
        if error is None:
            self.harmless += 1
        else:
            self.reported += 1
            (diagnostic,) = error.diagnostics
            assert diagnostic.problem.startswith(f"cannot write {run.path}"), case
            reason = "input/output error" if kind == IO_ERROR else "no space left on device"
            assert diagnostic.problem.endswith(reason), case
        if kind == SHORT and failed == "write":
            assert error is None, case
        self._assert_usable(run, before, case)

    def _assert_usable(self, run: RunDirectory, before: dict[str, bytes], case: object) -> None:
        """Assert that the next start finds a complete checkpoint, old or new, and can repeat the
        action.
        """
        run.clean_up()
        left = contents(run.path)
        found = newest_checkpoint(run.path)
        assert found.checkpoint is not None, case
        assert found.damaged == (), case
        for path, content in left.items():
            lines = path.endswith(".jsonl")
            assert not path.startswith("."), (case, path)
            assert lines or content in (before.get(path), self._expected.get(path)), (case, path)
        run.remove_records_from(found.checkpoint.manifest.progress.epoch)
        recorded = (run.path / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line)["step"] for line in recorded]
        assert steps == list(range(1, saved_steps(run.path)[-1] + 1)), (case, steps)
        if found.checkpoint.manifest.progress.step == 3:
            # The checkpoint has its final name; only the removal of older ones is left.
            run.remove_records_from(3)
        self._action(run)
        run.clean_up()
        assert contents(run.path) == self._expected, case


if __name__ == "__main__":
    place = Path(sys.argv[1])
    actions = (end_of_epoch, beside_steps, save_again, go_on)
    json.dump({action.__name__: Failing(place, action).run() for action in actions}, sys.stdout)
