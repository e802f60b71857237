"""The composition root: config → model → plan → executor → run, read top to bottom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mxrun import library
from mxrun.backend.onednn.library import reason as why_no_onednn
from mxrun.backend.onednn.library import version as library_version
from mxrun.backend.team import available_cores, largest_team
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.build import Built, build, check_labels
from mxrun.config import json_schema, parse
from mxrun.executor.executor import Executor
from mxrun.graph.compile import EVALUATE, TRAIN, CompileRequest, compile_plan
from mxrun.graph.graph import MemoryClass
from mxrun.graph.node import NodeEntry
from mxrun.graph.passes.updates import SCHEDULE
from mxrun.graph.plan import Plan
from mxrun.io.dataset import DATASETS, Dataset, open_datasets
from mxrun.io.iterator import ArrayIterator
from mxrun.operator.register import OPERATORS
from mxrun.runtime.storage import memory_limit, peak_resident_bytes
from mxrun.train.checkpoint import PlanRecord, RunState, save_checkpoint
from mxrun.train.initializer import INITIALIZERS, initial_value
from mxrun.train.loop import Phase, TrainingLoop, percentiles, slots
from mxrun.train.metric import METRICS
from mxrun.train.observer import Observer, RunStarted
from mxrun.train.optimizer import OPTIMIZERS
from mxrun.train.run_directory import RunDirectory


@dataclass(frozen=True)
class LayerRow:
    """One line of the layer table; FLOPs are those of a whole batch, forward."""

    name: str
    operator: str
    output_shapes: tuple[Shape, ...]
    parameters: int
    flops: int


@dataclass(frozen=True)
class CheckReport:
    """A valid config's layers and totals."""

    name: str
    batch_size: int
    rows: tuple[LayerRow, ...]
    parameters: int
    flops: int

    def to_json(self) -> dict[str, Any]:
        """The report for machines."""
        return asdict(self)


@dataclass(frozen=True)
class MemoryReport:
    """What a run's arena would hold; every figure in bytes counts the whole arena."""

    name: str
    phase: str
    plan: Plan

    def to_json(self) -> dict[str, Any]:
        """The report for machines."""
        plan = self.plan
        return {
            "planned_bytes": plan.planned_bytes,
            "lower_bound_bytes": plan.lower_bound_bytes,
            "naive_bytes": plan.naive_bytes,
            "in_place_only_bytes": plan.in_place_only_bytes,
            "proved_optimal": plan.proved_optimal,
            "classes": {name: asdict(figures) for name, figures in plan.classes().items()},
            "hints": [asdict(hint) for phase in plan.phases.values() for hint in phase.hints],
            "planning_ms": plan.planning_ms,
        }


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


def load(path: str | Path, overrides: Sequence[str] = (), batch: int | None = None) -> Built:
    """Read and build a config; raises UserError with everything that is wrong."""
    library.load()
    return build(parse(path, overrides), batch)


def check(path: str | Path, overrides: Sequence[str] = ()) -> CheckReport:
    """Validate config and shapes without data; raises UserError."""
    built = load(path, overrides)
    rows = tuple(_layer_rows(built))
    return CheckReport(
        name=built.config.name,
        batch_size=built.config.data.batch_size,
        rows=rows,
        parameters=sum(row.parameters for row in rows),
        flops=sum(row.flops for row in rows),
    )


def inspect_memory(
    path: str | Path,
    overrides: Sequence[str] = (),
    phase: str = "train",
    batch: int | None = None,
    threads: int | None = None,
) -> MemoryReport:
    """Plan a run without data; `phase` is train (which evaluates too) or infer."""
    built = load(path, overrides, batch)
    plan = plan_for(built, training=phase == "train", threads=threads)
    return MemoryReport(built.config.name, phase, plan)


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


def check_fits(plan: Plan) -> None:
    """Raise UserError, before anything is allocated, for an arena beyond the memory there is."""
    limit = memory_limit()
    if plan.planned_bytes > limit:
        raise UserError(
            Diagnostic(
                "the run does not fit into the memory that this process may use",
                expected=f"at most {limit:,} bytes",
                got=f"{plan.planned_bytes:,} bytes planned",
                hint="lower data.batch_size; `mxrun inspect-memory` says what needs how much",
            )
        )


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


def plan_for(built: Built, training: bool, threads: int | None = None) -> Plan:
    """The plan of a training run (with its evaluation) or of inference alone."""
    phases = [TRAIN] if training else []
    if not training or built.config.data.eval is not None:
        phases.append(EVALUATE)
    request = CompileRequest(
        inputs=built.model.inputs,
        shapes=built.model.shapes,
        rules=built.training.rules if training else {},
        phases=tuple(phases),
        threads=team_size(built, threads),
        backward=built.config.backward,
    )
    return compile_plan(built.model.symbol, request)


def team_size(built: Built, threads: int | None = None) -> int:
    """The compute team of a run: `threads`, else the config's, else the cores.

    Raises UserError for a larger team than the OpenMP runtime gives: kernels prepared for it would
    wait for threads that never come.
    """
    wanted = threads or built.config.threads
    if wanted is None:
        return min(available_cores(), largest_team())
    if wanted > largest_team():
        raise UserError(
            Diagnostic(
                f"a compute team of {wanted} threads cannot be had",
                place=None if threads else built.config.place("threads"),
                expected=f"at most {largest_team()}, what OMP_THREAD_LIMIT or libgomp allows",
                got=str(wanted),
            )
        )
    return wanted


def schema() -> dict[str, Any]:
    """The JSON Schema of config files, operators, data sets and optimisers included."""
    library.load()
    return json_schema(
        operators={
            name: OPERATORS.get(name).parameter_type.model_json_schema() for name in OPERATORS
        },
        datasets={name: DATASETS.get(name).options.model_json_schema() for name in DATASETS},
        optimizers={name: OPTIMIZERS.get(name).model_json_schema() for name in OPTIMIZERS},
        initializers={name: INITIALIZERS.get(name).model_json_schema() for name in INITIALIZERS},
        metrics=tuple(METRICS),
    )


def notes() -> tuple[str, ...]:
    """What whoever runs something should know of this machine; empty where nothing is missing."""
    why = why_no_onednn()
    return (f"{why}; the layers run on NumPy, which is slower",) if why else ()


def _layer_rows(built: Built) -> Iterator[LayerRow]:
    """One row per operator; a shared parameter counts where it is read first."""
    model = built.model
    specs = model.parameters
    counted: set[str] = set()
    for node in model.symbol.nodes:
        if node.prop is None:
            continue
        own = [entry.name for entry in node.inputs if entry.name in specs]
        parameters = sum(specs[name].elements for name in own if name not in counted)
        counted.update(own)
        arguments = [model.inference.spec(entry).shape for entry in node.argument_entries()]
        outputs = [
            model.inference.spec(NodeEntry(node, index)).shape for index in range(node.num_outputs)
        ]
        yield LayerRow(
            name=node.name,
            operator=node.operator,
            output_shapes=tuple(outputs[: node.prop.num_visible_outputs]),
            parameters=parameters,
            flops=node.prop.flops(arguments, outputs),
        )
