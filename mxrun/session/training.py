"""`train`: a plan, its data and the loop, down to the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from mxrun.base.errors import UserError
from mxrun.build import Built, check_labels
from mxrun.io.dataset import open_datasets
from mxrun.runtime.storage import peak_resident_bytes
from mxrun.session.build import check_fits, load, plan_for
from mxrun.session.profile import RunProfile
from mxrun.session.resume import Resumed, resume
from mxrun.session.run import Run
from mxrun.train.interruption import Interruption
from mxrun.train.keeper import CheckpointKeeper, newest_checkpoint
from mxrun.train.loop import Diverged, percentiles
from mxrun.train.observer import Observer, RunStarted
from mxrun.train.replay import CheckedLoop, Located, NoSaver, Silent
from mxrun.train.run_directory import RunDirectory
from mxrun.train.saver import RunSaver

Existing = Literal["refuse", "overwrite", "resume"]


@dataclass(frozen=True)
class TrainRequest:
    """How to run: what to do with a run of that name that is there, and whether it may differ.

    profile: whether every call is timed. `started_at` is the process's start on the monotonic
    clock.
    """

    existing: Existing = "refuse"
    allow_changes: bool = False
    profile: bool = False
    started_at: float = 0.0


@dataclass(frozen=True)
class TrainSummary:
    """What a training run came to; times are of the steps taken by this process."""

    steps: int
    eval: Mapping[str, float | Sequence[Sequence[float | None]] | None]
    step_ms: Mapping[str, float]
    first_step_s: float
    memory: Mapping[str, int]
    run_dir: str
    epochs: int
    stopped_early: bool
    resumed_from: int | None
    best: Mapping[str, Any] | None
    started_from: Mapping[str, Any] | None
    data_wait_share: float

    def to_json(self) -> dict[str, Any]:
        """The summary for machines."""
        return asdict(self)


@dataclass(frozen=True)
class Trained:
    """A finished run, and the profile that was asked for."""

    summary: TrainSummary
    profile: RunProfile | None


def train(
    path: str | Path, overrides: Sequence[str], observer: Observer, request: TrainRequest
) -> Trained:
    """Train as the config says.

    Raises UserError for what is wrong with config, data or run folder, before the first step, and
    Stopped when a signal asked for an end and everything is saved.
    """
    with Interruption() as interruption:
        built = load(path, overrides)
        if built.config.missing:
            raise UserError(built.config.missing)
        run = _opened(built)
        try:
            return _Training(run, observer, request, interruption).run()
        finally:
            run.close()


def prepare(built: Built) -> Run:
    """A run with its first values; raises UserError when data or memory do not allow it."""
    run = _opened(built)
    run.initialise()
    return run


def _opened(built: Built) -> Run:
    """Open the data, plan, and allocate."""
    datasets = open_datasets(built.data, built.model.records)
    check_labels(built, datasets)
    plan = plan_for(built, training=True)
    check_fits(plan)
    return Run(built, plan, datasets)


class _Training:
    """One run of the training command."""

    def __init__(
        self, run: Run, observer: Observer, request: TrainRequest, interruption: Interruption
    ) -> None:
        self._run, self._observer = run, observer
        self._request, self._interruption = request, interruption
        self._profile = RunProfile(run.executor) if request.profile else None

    def run(self) -> Trained:
        """Train to the end, then write the summary."""
        run, training = self._run, self._run.built.training
        opened = self._open()
        for note in opened.notes:
            self._observer.note(note)
        directory, checkpoint = opened.directory, opened.checkpoint
        loop = run.loop(self._observer, run=None if self._profile is None else self._profile.run)
        run.restore(checkpoint, loop)
        keeper = CheckpointKeeper(directory.path, training.policy)
        held = None if checkpoint is None else loop.progress
        saver = RunSaver(directory, keeper, partial(run.snapshot, loop=loop), held)
        resumed_from = None if checkpoint is None else checkpoint.manifest.progress.step
        self._observer.run_started(
            RunStarted(
                name=run.built.config.name,
                epochs=training.epochs,
                steps_per_epoch=loop.steps_of(1),
                batch_size=run.built.model.batch_size,
                parameters=sum(spec.elements for spec in run.built.model.parameters.values()),
                planned_bytes=run.plan.planned_bytes,
                resumed_from=resumed_from,
            )
        )
        try:
            saver.after_step(loop.progress, self._interrupted())
            result = loop.run(saver, self._interrupted)
        except Diverged:
            raise self._explanation(directory) from None
        progress = result.progress
        rss_peak_bytes = peak_resident_bytes()
        waited = run.iterators["train"].waited_seconds
        summary = TrainSummary(
            steps=progress.step,
            eval=progress.evaluation,
            step_ms=percentiles(result.step_ms),
            first_step_s=result.first_step_at - self._request.started_at,
            memory={
                "planned_bytes": run.plan.planned_bytes,
                "touched_bytes": run.executor.touched_bytes(run.exercise),
                "lower_bound_bytes": run.plan.lower_bound_bytes,
                "rss_peak_bytes": rss_peak_bytes,
            },
            run_dir=str(directory.path),
            epochs=progress.epoch - 1,
            stopped_early=result.stopped_early,
            resumed_from=resumed_from,
            best=None if progress.best is None else progress.best.model_dump(),
            started_from=run.started_from,
            data_wait_share=waited / max(result.step_ms.sum() / 1e3, 1e-9),
        )
        directory.write_summary(summary.to_json())
        return Trained(summary, self._profile)

    def _interrupted(self) -> bool:
        return self._interruption.signal is not None

    def _open(self) -> Resumed:
        """The run's folder, and where to go on from."""
        if self._request.existing == "resume":
            return resume(self._run, self._request.allow_changes)
        # Read before the folder is touched: it may be wrong, or lie in that very folder.
        self._run.read_starting_point()
        config = self._run.built.config
        overwrite = self._request.existing == "overwrite"
        created = RunDirectory.create(config.name, config.resolved(), overwrite)
        return Resumed(created, None, ())

    def _explanation(self, directory: RunDirectory) -> UserError:
        """Take the steps since the last checkpoint again, in checked mode."""
        self._observer.note("numbers are no longer finite: looking for the first that was not")
        found = newest_checkpoint(directory.path)
        loop = self._run.loop(Silent(), CheckedLoop)
        self._run.restore(found.checkpoint, loop)
        try:
            loop.run(NoSaver(), self._interrupted)
        except Located as located:
            return UserError(located.diagnostic)
        return UserError("training has diverged: a number was not finite, but not when repeated")
