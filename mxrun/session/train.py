"""`train`: a plan, its data and the loop, down to the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mxrun.backend.onednn.library import version as library_version
from mxrun.base.errors import UserError
from mxrun.build import Built, check_labels
from mxrun.executor.executor import Executor
from mxrun.graph.compile import EVALUATE, TRAIN
from mxrun.graph.graph import MemoryClass
from mxrun.graph.passes.updates import SCHEDULE
from mxrun.graph.plan import Plan
from mxrun.io.dataset import Dataset, open_datasets
from mxrun.io.iterator import ArrayIterator
from mxrun.runtime.storage import peak_resident_bytes
from mxrun.session.build import check_fits, load, plan_for, team_size
from mxrun.train.checkpoint import PlanRecord, RunState, save_checkpoint
from mxrun.train.initializer import initial_value
from mxrun.train.loop import Phase, TrainingLoop, percentiles, slots
from mxrun.train.observer import Observer, RunStarted
from mxrun.train.run_directory import RunDirectory


@dataclass(frozen=True)
class TrainSummary:
    """What a training run came to."""

    steps: int
    eval: Mapping[str, float]
    step_ms: Mapping[str, float]
    first_step_s: float
    memory: Mapping[str, int]
    run_dir: str

    def to_json(self) -> dict[str, Any]:
        """The summary for machines."""
        return asdict(self)


def train(
    path: str | Path,
    overrides: Sequence[str],
    observer: Observer,
    overwrite: bool,
    started_at: float,
) -> TrainSummary:
    """Train as the config says; `started_at` is the process's start on the monotonic clock.

    Raises UserError for what is wrong with config, data or run folder, before the first step.
    """
    built = load(path, overrides)
    if built.config.missing:
        raise UserError(built.config.missing)
    return prepare(built).train(observer, overwrite, started_at)


def prepare(built: Built) -> Run:
    """Open the data, plan, and allocate; raises UserError when data or memory do not allow it."""
    datasets = open_datasets(built.data, built.model.records)
    check_labels(built, datasets)
    plan = plan_for(built, training=True)
    check_fits(plan)
    return Run(built, plan, datasets)


class Run:
    """A training run: plan, arena and data, ready to step."""

    def __init__(self, built: Built, plan: Plan, datasets: Mapping[str, Dataset]) -> None:
        self.built = built
        self.plan = plan
        self.executor = Executor(plan)
        self.iterators = {
            role: ArrayIterator(
                dataset,
                built.model.batch_size,
                shuffle=getattr(built.config.data, role).shuffle,
                seed=built.config.seed,
                threads=team_size(built),
            )
            for role, dataset in datasets.items()
        }
        self.initialise()

    def initialise(self) -> None:
        """Give every parameter its first value and every other pinned tensor zero."""
        for block in self.plan.pinned:
            self.executor.array(block.name)[...] = 0
        for name, spec in self.built.model.parameters.items():
            initializer = self.built.training.initializers[name]
            value = initial_value(initializer, name, spec.shape, self.built.config.seed)
            self.executor.array(name)[...] = value
        self.executor.array(SCHEDULE)[0] = self.built.training.optimizer.lr

    def train(self, observer: Observer, overwrite: bool, started_at: float) -> TrainSummary:
        """Run all epochs, then save the checkpoint and the summary."""
        config, training = self.built.config, self.built.training
        directory = RunDirectory.create(config.name, config.resolved(), overwrite)
        loop = TrainingLoop(
            executor=self.executor,
            losses=self.built.model.losses,
            train=self.phase(TRAIN, "train"),
            evaluation=self.phase(EVALUATE, "eval") if "eval" in self.iterators else None,
            observer=observer,
        )
        observer.run_started(
            RunStarted(
                name=config.name,
                epochs=training.epochs,
                steps_per_epoch=self.iterators["train"].batches(1),
                batch_size=self.built.model.batch_size,
                parameters=sum(spec.elements for spec in self.built.model.parameters.values()),
                planned_bytes=self.plan.planned_bytes,
            )
        )
        result = loop.run(training.epochs, directory.record)
        self._save(directory, result.steps)
        rss_peak_bytes = peak_resident_bytes()
        summary = TrainSummary(
            steps=result.steps,
            eval=result.evaluation,
            step_ms=percentiles(result.step_ms),
            first_step_s=result.first_step_at - started_at,
            memory={
                "planned_bytes": self.plan.planned_bytes,
                "touched_bytes": self.executor.touched_bytes(self.exercise),
                "lower_bound_bytes": self.plan.lower_bound_bytes,
                "rss_peak_bytes": rss_peak_bytes,
            },
            run_dir=str(directory.path),
        )
        directory.write_summary(summary.to_json())
        return summary

    def exercise(self) -> None:
        """Everything a run does to the arena, once: first values, a batch, and every phase."""
        self.initialise()
        for phase, role in ((TRAIN, "train"), (EVALUATE, "eval")):
            if role in self.iterators:
                iterator = self.iterators[role]
                iterator.reset(0)
                iterator.next_into(slots(self.executor, iterator))
                self.executor.run(phase)

    def phase(self, name: str, role: str) -> Phase:
        """One phase with its iterator and metrics."""
        return Phase(name, self.iterators[role], self.built.training.metrics)

    def _save(self, directory: RunDirectory, step: int) -> None:
        config = self.built.config
        arrays = {
            kind: {
                block.name: self.executor.array(block.name)
                for block in self.plan.pinned
                if block.memory_class is kind
            }
            for kind in (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER)
        }
        phase = self.plan.phases[TRAIN]
        state = RunState(
            step=step,
            epoch=self.built.training.epochs,
            seed=config.seed,
            plan=PlanRecord(
                threads=self.plan.threads,
                library=library_version(),
                implementations=phase.implementations(),
            ),
            config_sha256=config.sha256(),
        )
        save_checkpoint(
            directory.path, state, arrays[MemoryClass.PARAMETERS], arrays[MemoryClass.OPTIMIZER]
        )
