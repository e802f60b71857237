"""Implementation of `train`: plan, data, training loop and summary of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import field, replace
from functools import partial
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.config import Parsed
from mxrun.config.bundled import find_config
from mxrun.frontend import ModelDefinition, build
from mxrun.inspection.profile import EngineProfile, RunProfile
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets
from mxrun.options.shared import MAX
from mxrun.options.train import TrainOptions
from mxrun.preparation.max_batch_size import max_batch_size
from mxrun.preparation.planning import parse_config
from mxrun.preparation.prepared import preparing
from mxrun.preparation.synthetic_data import NO_PATH, uses_synthetic_data, with_synthetic_data
from mxrun.preparation.variables import (
    groups_json,
    trainable_elements,
    variable_groups,
    warm_start,
)
from mxrun.run.data_wait import wait_advice
from mxrun.run.open_run import open_run
from mxrun.run.recomputation import measured_recompute
from mxrun.run.resume import RunStart, is_abandoned, resume, saved_manifest
from mxrun.run.run import Run
from mxrun.run.storage_counters import StorageCounters
from mxrun.run.together import (
    agreed,
    by_first,
    ending_together,
    group_for,
    launched_group,
    require_same,
    watched,
)
from mxrun.run.train_summary import MemoryUse, StepTimes, TrainSummary, saved_best
from mxrun.run.warm_start import WarmStartSource
from mxrun.runtime.contention import CoreWaits
from mxrun.runtime.memory_limits import peak_rss_bytes
from mxrun.runtime.ranks import RankGroup
from mxrun.train.advice import ON_COMMAND_LINE, Advice
from mxrun.train.bad_record_list import begin_list
from mxrun.train.checkpoint_manager import CheckpointManager, newest_checkpoint
from mxrun.train.divergence import Diverged, EvaluationDiverged, Located
from mxrun.train.interruption import Interruption, WaitEnded
from mxrun.train.loop import LoopResult, TrainingLoop
from mxrun.train.measure import figure_prefixes
from mxrun.train.observer import Observer, RunStarted
from mxrun.train.quantiles import percentiles
from mxrun.train.rank_saver import RankSaver
from mxrun.train.replay import CheckedLoop, NullCheckpointing, NullObserver
from mxrun.train.run_directory import RunDirectory
from mxrun.train.run_lock import RunLock, only_writer
from mxrun.train.saver import RunSaver

# Reading a batch is faster unless a disk or a network stalls.
_STALL_NOTICE_S = 3.0


@dataclass(frozen=True)
class TrainRequest:
    """Training of a run: the options, and what its caller adds to them.

    started_at: start of the program on the monotonic clock. interruption: ends the run early.
    initial: parameters that a run begins with, instead of those of its config; they are saved at
    once, because the config does not tell them. advice: words for what to do next.
    """

    options: TrainOptions
    started_at: float = 0.0
    interruption: Interruption = field(default_factory=Interruption)
    initial: WarmStartSource | None = None
    advice: Advice = ON_COMMAND_LINE


@dataclass(frozen=True)
class TrainingResult:
    """Summary of a finished run, and the profile if one was requested."""

    summary: TrainSummary
    profile: RunProfile | EngineProfile | None


def train(
    options: TrainOptions,
    observer: Observer,
    started_at: float = 0.0,
    before_end: Callable[[], None] = lambda: None,
) -> TrainingResult | None:
    """Train as the config describes that the options name; see `train_config`.

    Returns None on ranks other than the first, which reports for all; there what the first one
    raises as well becomes SystemExit. started_at: start of the program on the monotonic clock.
    before_end: called before a second SIGINT ends the process.
    """
    launched = launched_group()
    interruption = Interruption(before_end=before_end)
    request = TrainRequest(options, started_at=started_at, interruption=interruption)

    def trained() -> TrainingResult:
        parsed = agreed(
            launched, lambda: parse_config(find_config(options.config), options.overrides)
        )
        return train_config(parsed, observer, request)

    return by_first(launched, trained)


def train_config(parsed: Parsed, observer: Observer, request: TrainRequest) -> TrainingResult:
    """Train as a parsed config describes.

    Several processes that mpirun has started train together; only the first one writes and reports.

    Raises UserError for errors in config, data or run folder, before the first step, and Stopped
    when a signal requested an end and everything is saved.
    """
    launched = launched_group()
    with ending_together(launched):
        if launched is not None and launched.rank:
            observer = NullObserver()
        run, ranks = agreed(launched, lambda: _opened(parsed, observer, request, launched))
        try:
            require_same(ranks, run)
            with watched(ranks, run):
                return _Training(run, observer, request, ranks).run()
        finally:
            run.close()


def _opened(
    parsed: Parsed, observer: Observer, request: TrainRequest, launched: RankGroup | None
) -> tuple[Run, RankGroup | None]:
    """Return the run that a config describes, not initialised, and the ranks that train it."""
    batch, datasets = _batch_size(parsed, observer, request.options)
    if batch is not None:
        parsed = parsed.with_values({("data", "batch_size"): batch})
    configured = build(parsed)
    ranks = group_for(configured.options, launched)
    count, rank = (1, 0) if ranks is None else (ranks.size, ranks.rank)
    built = with_synthetic_data(configured.on_ranks(count, rank))
    with preparing(built.options, observer.note):
        if built.data is not configured.data:
            observer.note(NO_PATH)
        saved = None
        if request.options.resume:
            manifest = saved_manifest(request.options.runs / built.options.name)
            saved = None if manifest is None else manifest.plan
        run = open_run(built, request.options.runs, observer.note, saved, datasets, ranks)
    if request.initial is not None:
        run.start_from(request.initial)
    return run, ranks


def _batch_size(
    parsed: Parsed, observer: Observer, options: TrainOptions
) -> tuple[int | None, Mapping[str, Dataset] | None]:
    """Return the requested batch size; `max` is limited to the number of records.

    On several contexts it is a multiple of their number. Also returns the data sets that were
    opened to count the records, unless the number of these depends on the batch size.
    """
    largest = max_batch_size(options.batch, parsed, training=True, notify=observer.note)
    if largest is None or options.batch != MAX:
        return largest, None
    configured = build(parsed, 1)
    built = with_synthetic_data(configured)
    if "train" not in built.data:
        return largest, None
    datasets = open_datasets(built.data, built.model.records)
    opened = datasets if built is configured else None
    records = len(datasets["train"])
    if records >= largest:
        return largest, opened
    count = len(built.options.devices)
    records = max(records - records % count, count)
    observer.note(f"--batch max: {records} samples, because there are no more records")
    return records, opened


class _Training:
    """Execution of one run of the command."""

    def __init__(
        self, run: Run, observer: Observer, request: TrainRequest, ranks: RankGroup | None
    ) -> None:
        self._run, self._observer, self._request = run, observer, request
        self._ranks = ranks
        if run.agreement is not None:
            run.agreement.wants_stop = self._interrupted
        self._path = request.options.runs / run.built.options.name
        # Entered once there is state to save; until then a signal ends the process at once.
        self._interruption = request.interruption
        self._awaited_record = ""
        self._storage = StorageCounters()
        for iterator in run.iterators.values():
            iterator.watch_waits(self._wait)
        self._profile: RunProfile | EngineProfile | None = None
        if request.options.profile or request.options.trace is not None:
            self._profile = functions = EngineProfile(run.engine, run.iterators.values())
            if not run.built.updates_apart:
                self._profile = RunProfile(run.executor, functions)

    def run(self) -> TrainingResult:
        """Train to the end and write the summary, which other ranks are told."""
        if self._ranks is not None and self._ranks.rank:
            return TrainingResult(self._follow(self._ranks), self._profile)
        if not self._request.options.resume:
            # Read before the folder is changed: the warm start may be invalid, or be in that very
            # folder.
            train = self._run.datasets["train"]
            vocabulary = self._run.vocabulary
            own = None if vocabulary is None else vocabulary.sha256
            for note in self._run.read_warm_start().notes_for(train.classes, train.whites, own):
                self._observer.note(note)
        with only_writer(self._path, self._request.advice) as lock:
            start = agreed(self._ranks, self._run_start)
            for note in start.notes:
                self._observer.note(note)
            saved_summary = RunDirectory(self._path).summary() if start.finished else None
            summary = None if saved_summary is None else TrainSummary.from_json(saved_summary)
            self._tell(summary)
            if summary is None:
                with self._interruption:
                    return TrainingResult(self._train(start, lock), self._profile)
            self._observer.note(
                f"{summary.run_dir} is already finished ({summary.ended}): nothing is left to do"
                f"{self._continuation(start)}"
            )
            figures = _in_order(summary.eval, self._run.built)
            return TrainingResult(summary.model_copy(update={"eval": figures}), self._profile)

    def _tell(self, summary: TrainSummary | None) -> TrainSummary | None:
        """Return the summary that the first rank has, None if it has none."""
        if self._ranks is None:
            return summary
        text = "" if summary is None else json.dumps(summary.to_json())
        found = self._ranks.gather_texts(text)[0]
        return TrainSummary.from_json(json.loads(found)) if found else None

    def _follow(self, ranks: RankGroup) -> TrainSummary:
        """Train on a rank other than the first, from its state and to its end."""
        agreed(ranks, lambda: None)
        summary = self._tell(None)
        if summary is None:
            with self._interruption:
                run = self._run
                loop = run.loop(self._observer)
                run.initialise(start=False)
                run.share(loop)
                try:
                    loop.run(RankSaver(), self._wants_end)
                except Diverged:
                    raise self._divergence(ranks, loop) from None
            summary = self._tell(None)
        assert summary is not None
        return summary

    def _wants_end(self) -> bool:
        """Return whether a signal ends the run; of several ranks, one that all know of."""
        if self._ranks is None or self._run.agreement is None:
            return self._interrupted()
        return self._run.agreement.interrupted

    def _divergence(self, ranks: RankGroup, loop: TrainingLoop) -> UserError:
        """Return the error of ranks whose numbers are not finite."""
        ranks.ends_together = True
        step, advice = loop.position[0] + 1, self._request.advice
        return UserError(
            Diagnostic(
                f"training has diverged in step {step}: a number was not finite",
                hint="lower the learning rate (train.optimizer) or clip gradients "
                f"(clip_global_norm); in a single process {advice.resume_action} takes the same "
                "steps and names the operator and the records",
            )
        )

    def _continuation(self, start: RunStart) -> str:
        """Return what continues a run that early stopping has ended, as the end of a sentence."""
        watch = self._run.built.training.watch
        if start.checkpoint is None or not watch.is_over(start.checkpoint.manifest.progress):
            return ""
        advice = self._request.advice
        return f"; a larger train.early_stopping.patience with {advice.resume_changed} continues it"

    def _train(self, start: RunStart, lock: RunLock) -> TrainSummary:
        run, checkpoint = self._run, start.checkpoint
        observed = self._profile.run if isinstance(self._profile, RunProfile) else None
        loop = run.loop(self._observer, run=observed)
        run.restore(checkpoint, loop)
        directory = RunDirectory(start.commit().path, lock.check)
        begin_list(directory, run.bad_records)
        run.share(loop)
        if run.vocabulary is not None:
            directory.write_vocabulary(run.vocabulary)
        checkpoints = CheckpointManager(directory.path, run.built.training.policy, lock.check)
        saved_progress = None if checkpoint is None else loop.progress
        if checkpoint is not None and checkpoint.manifest.due:
            # A process killed after saving may not have removed the other checkpoints.
            checkpoints.remove_others(checkpoint.manifest.progress)
        snapshot = partial(run.snapshot, loop=loop)
        note, advice = self._observer.note, self._request.advice
        writer = run.background_writer(loop)
        saver = RunSaver(directory, checkpoints, snapshot, saved_progress, note, advice, writer)
        resumed_from = None if checkpoint is None else checkpoint.manifest.progress.step
        self._report_start(loop, resumed_from)
        with closing(saver):
            try:
                if self._request.initial is not None and checkpoint is None:
                    saver.save(loop.progress)
                saver.after_step(loop.progress, self._wants_end())
                waits = CoreWaits()
                result = loop.run(saver, self._wants_end)
                wait_share = waits.share()
                saver.wait()
            except Diverged:
                saver.wait()
                if self._ranks is not None and self._ranks.size > 1:
                    raise self._divergence(self._ranks, loop) from None
                raise self._explanation(directory, start) from None
            except EvaluationDiverged as error:
                saver.save(loop.progress)
                hint = self._request.advice.for_diverged_evaluation
                raise UserError(replace(error.diagnostic, hint=hint)) from None
        summary = self._summary(result, directory, resumed_from, wait_share)
        directory.write_summary(summary.to_json())
        self._tell(summary)
        return summary

    def _report_start(self, loop: TrainingLoop, resumed_from: int | None) -> None:
        run = self._run
        self._observer.run_started(
            RunStarted(
                name=run.built.options.name,
                epoch=loop.progress.epoch,
                epochs=loop.total_epochs(),
                total_steps=loop.total_steps(),
                steps_per_epoch=loop.steps_of(1),
                batch_size=run.built.batch_size,
                parameters=sum(spec.elements for spec in run.built.model.parameters.values()),
                planned_bytes=run.planned_bytes,
                contexts=run.built.contexts,
                threads=run.plan.device.host_threads,
                resumed_from=resumed_from,
                trainable=trainable_elements(run.built),
                warm_start=warm_start(run.built, run.started_from),
                synthetic_data=uses_synthetic_data(run.built.options),
                same_as_loss=frozenset(_same_as_loss(run.built)),
                train_numbers=loop.measure.numbers,
                eval_numbers=loop.evaluation_numbers,
                logs_steps=run.built.options.train.log_every is not None,
                values=run.datasets["train"].values_text,
            )
        )

    def _summary(
        self,
        result: LoopResult,
        directory: RunDirectory,
        resumed_from: int | None,
        core_wait_share: float | None,
    ) -> TrainSummary:
        run, progress = self._run, result.progress
        rss_peak_bytes = peak_rss_bytes()
        recompute = measured_recompute(run.executor, self._observer.note)
        wait_share = result.waited_seconds / max(result.step_ms.sum() / 1e3, 1e-9)
        work = run.iterators["train"].work()
        return TrainSummary(
            steps=progress.step,
            eval=progress.evaluation,
            step_ms=StepTimes(**percentiles(result.step_ms)),
            first_step_s=result.first_step_at - self._request.started_at,
            memory=MemoryUse(
                planned_bytes=run.planned_bytes,
                touched_bytes=run.touched_bytes(),
                lower_bound_bytes=run.plan.lower_bound_bytes * len(run.executors),
                rss_peak_bytes=rss_peak_bytes,
            ),
            storage=self._storage.report(run.contexts),
            run_dir=str(directory.path),
            epochs=progress.epoch - 1,
            stopped_early=result.stopped_early,
            ended=result.ended,
            resumed_from=resumed_from,
            best=saved_best(progress, directory.path),
            started_from=run.started_from,
            variables=groups_json(variable_groups(run.built, run.started_from)),
            data_wait_share=wait_share,
            data_wait_advice=wait_advice(
                wait_share,
                run.built.options.data,
                bool(run.datasets["train"].lazy),
                work,
                run.python.kind,
            ),
            data_stages={stage: done.to_json() for stage, done in work.items()},
            python_transforms=run.python.kind or None,
            bad_records={role: len(bad.found) for role, bad in run.bad_records.items()},
            synthetic_data=uses_synthetic_data(run.built.options),
            recompute=recompute,
            micro_batches=run.built.micro_batches,
            contexts=run.built.contexts,
            threads=run.plan.device.host_threads,
            core_wait_share=core_wait_share,
            classes=tuple(run.datasets["train"].classes),
            same_as_loss=tuple(_same_as_loss(run.built)),
        )

    def _interrupted(self) -> bool:
        return self._interruption.requested

    def _wait(self, seconds: float, record: str) -> None:
        """Handle a wait for a batch: raise WaitEnded after a stop signal, report a slow record."""
        if self._interrupted():
            raise WaitEnded
        if seconds >= _STALL_NOTICE_S and record != self._awaited_record:
            self._awaited_record = record
            self._observer.note(f"waiting for {record}, for {seconds:.0f} s so far")

    def _run_start(self) -> RunStart:
        """Return the start of the run; nothing is changed yet.

        Raises UserError if the run cannot start.
        """
        options, advice = self._request.options, self._request.advice
        if options.resume:
            return resume(self._run, self._path, options.allow_changes, advice)
        overwrite = options.overwrite
        notes: tuple[str, ...] = ()
        if overwrite:
            # An existing run is removed only for a run that can start.
            self._run.read_batches()
        elif is_abandoned(self._path):
            overwrite = True
            notes = (f"the run in {self._path} ended before its first checkpoint: it is replaced",)
        text = self._run.built.options.resolved()
        hint = advice.for_existing_run
        create = partial(RunDirectory.create, self._path, text, overwrite, hint)
        return RunStart(create, notes=notes)

    def _explanation(self, directory: RunDirectory, start: RunStart) -> UserError:
        """Replay the steps since the last checkpoint in checked mode and return the error found."""
        self._observer.note("numbers are no longer finite: looking for the first that was not")
        loop = self._run.loop(NullObserver(), CheckedLoop)
        first = start.checkpoint
        try:
            newest = newest_checkpoint(directory.path).checkpoint
            # The checkpoint at the start may have had its optimizer states replaced.
            same = first is not None and newest is not None and first.folder == newest.folder
            self._run.restore(first if same else newest, loop)
        except UserError as error:
            return UserError(
                [
                    Diagnostic(
                        "training has diverged: a number was not finite, and the steps that led "
                        "there cannot be repeated",
                        hint="lower the learning rate (train.optimizer)",
                    ),
                    *error.diagnostics,
                ]
            )
        try:
            loop.run(NullCheckpointing(), self._interrupted)
        except Located as located:
            return UserError(located.diagnostic)
        except WaitEnded:
            return UserError("training has diverged: a number was not finite; search stopped")
        return UserError("training has diverged: a number was not finite, but not when repeated")


def _same_as_loss(built: ModelDefinition) -> list[str]:
    """Return the metrics that are the loss by definition: of a single loss without class weights,
    which do not apply to metrics.
    """
    losses = () if built.training.class_weights else built.model.losses
    names = {loss.equal_metric for loss in losses} if len(losses) == 1 else set()
    kinds = losses[0].named(built.training.metrics) if names else ()
    return [kind.figure for kind in kinds if kind.figure in names]


def _in_order(figures: Mapping[str, Any], built: ModelDefinition) -> dict[str, Any]:
    """Return the figures of a summary, whose JSON is sorted by name, in the order of a training:
    the loss, then the metrics of each loss.
    """
    metrics, prefixes = built.training.metrics, figure_prefixes(built.model.measured)
    order = ["loss", *(f"{prefix}{kind.figure}" for prefix in prefixes for kind in metrics)]
    return {name: figures[name] for name in dict.fromkeys([*order, *figures]) if name in figures}
