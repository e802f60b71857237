"""Training run: plan, device and data, and its state in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.array_file import Arrays
from mxrun.base.context import Context
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import UserError
from mxrun.base.once import cached_property
from mxrun.base.tensor import TensorSpec
from mxrun.base.validation import Path as KeyPath
from mxrun.executor.executor import Executor
from mxrun.executor.library_plans import library_plans
from mxrun.frontend import ModelDefinition
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import ACCUMULATE, EVALUATE, TRAIN, UPDATE, base_phase
from mxrun.graph.update_rule import averaged
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fingerprint import fingerprint
from mxrun.io.loading.bad_records import BadRecords
from mxrun.io.loading.iterator import DataIterator
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.staging import Staging
from mxrun.io.vocabulary.vocabulary import Vocabulary
from mxrun.planner.plan import Plan
from mxrun.preparation.parameter_init import initialise_pinned
from mxrun.preparation.planning import last_batch, staged_names, staged_specs
from mxrun.preparation.plugins import plugin_hashes
from mxrun.preparation.prepared import Prepared
from mxrun.preparation.record_order import shuffle_of
from mxrun.run.data_workers import python_transforms
from mxrun.run.save_copy import SaveCopy
from mxrun.run.warm_start import WarmStartSource
from mxrun.runtime.engine.default import engine_of
from mxrun.runtime.memory_limits import remaining_bytes
from mxrun.runtime.ranks import OneRank, RankGroup
from mxrun.train.agreement import Agreement
from mxrun.train.background import BackgroundWriter
from mxrun.train.checkpoint import (
    AUXILIARY_FILE,
    CARRIED_FILE,
    MEASURED_FILE,
    OPTIMIZER_FILE,
    PARAMETERS_FILE,
    Checkpoint,
    PlanRecord,
    RunState,
    StartedFrom,
)
from mxrun.train.host_arrays import LEARNED, pinned, slots, staged_arrays
from mxrun.train.loop import TrainingLoop
from mxrun.train.measure import Phase
from mxrun.train.observer import Observer
from mxrun.train.progress import Progress

_LENGTH: tuple[KeyPath, ...] = (("train", "epochs"), ("train", "max_steps"))
_FILE_OF = {
    MemoryClass.PARAMETERS: PARAMETERS_FILE,
    MemoryClass.OPTIMIZER: OPTIMIZER_FILE,
    MemoryClass.AUXILIARY: AUXILIARY_FILE,
    MemoryClass.CARRIED: CARRIED_FILE,
}


class Run:
    """Plan with its device and its data."""

    def __init__(
        self,
        built: ModelDefinition,
        plan: Plan,
        datasets: Mapping[str, Dataset],
        runs: Path,
        ranks: RankGroup | None = None,
    ) -> None:
        """`runs`: the folder of the runs that `train.start_from` can name. ranks: the processes
        that train together; this one alone by default.

        Raises UserError for class weights of classes that the training data do not have.
        """
        self.built = built
        self.plan = plan
        self.datasets = datasets
        # Before memory is allocated.
        self._has_room_for_copy = SaveCopy.of(plan, built.contexts, built.sliced_states).fits(
            remaining_bytes()
        )
        self._prepared = Prepared.of(built, plan)
        self._group = self._prepared.group
        self.executors, self.executor = self._group.executors, self._prepared.executor
        weighting = built.training.class_weights
        self.class_weights = None if weighting is None else weighting.of(datasets["train"])
        # Every arena has room for some of the batches, each of which any context may compute.
        specs = staged_specs(built)
        self._staged = [
            staged_arrays(executor, batch, specs)
            for batch in staged_names(built.options, specs)
            for executor in self.executors
        ]
        self.engine = engine_of(built.options.engine)
        self._staging = Staging(self._staged)
        # By section, the records that may be left out.
        self.bad_records = {
            role: BadRecords.of(dataset, built.options.data.max_bad_records)
            for role, dataset in datasets.items()
            if built.options.data.on_bad_record == "skip"
        }
        self.agreement: Agreement | None = None
        if built.batch_parts > 1:
            self.agreement = Agreement(ranks or OneRank(), self.bad_records)
        self.python = python_transforms(
            built.options, [dataset.pipeline for dataset in datasets.values()]
        )
        self.iterators = {role: self._iterator(role) for role in datasets}
        self._fingerprints: dict[str, str] = {}
        # Hashes of the code that was loaded: the files may change during the run.
        self._plugins = plugin_hashes(built.options)
        # Warm start of the run; it is saved in checkpoints, so that resuming does not read it
        # again.
        self.started_from: StartedFrom | None = None
        self._warm_start: WarmStartSource | None = None
        self._runs = runs

    def read_warm_start(self) -> WarmStartSource:
        """Return the warm start of `train.start_from`, read once.

        Raises UserError if it cannot be read.
        """
        if self._warm_start is None:
            self._warm_start = WarmStartSource.read(self.built, self._runs)
        return self._warm_start

    def start_from(self, source: WarmStartSource) -> None:
        """Begin the run with these parameters, whatever `train.start_from` says."""
        self._warm_start = source

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Tokens of the text that the run is trained on, if it is one."""
        return self.datasets["train"].vocabulary

    def _iterator(self, role: str) -> DataIterator:
        """Return the iterator of a data set.

        Training batches are split into micro-batches; evaluation batches have a micro-batch's size.
        Both come in batch parts, of which each rank reads its own.
        """
        options, built = self.built.options, self.built
        parts = built.parts if role == "train" else built.batch_parts
        rank = 0 if self.agreement is None else self.agreement.ranks.rank
        return open_iterator(
            self.datasets[role],
            built.model.batch_size * parts,
            shuffle=shuffle_of(getattr(options.data, role), self.datasets[role]),
            seed=options.seed,
            last_batch=last_batch(self.built, role),
            loops=self.executor.device.host_loop,
            workers=options.data.loader_threads,
            staging=self._staging,
            parts=parts,
            rank=rank,
            ranks=built.ranks,
            engine=self.engine.kind,
            bad_records=self.bad_records.get(role),
            python=self.python,
        )

    def initialise(self, start: bool = True) -> None:
        """Set every parameter to its initial value and every other pinned tensor to zero.

        start: if false, the warm start is left out.
        """
        arrays = self.read_warm_start().arrays if start else {}

        def fill(executor: Executor) -> None:
            initialise_pinned(executor, self.built)
            for name, value in arrays.items():
                executor.tensor(name).write(value)
            for name in self.built.training.rules:
                if averaged(name) in self.plan.specs:
                    executor.tensor(averaged(name)).write(executor.tensor(name).values())

        self._prepared.begin(fill)

    def loop(
        self,
        observer: Observer,
        kind: type[TrainingLoop] = TrainingLoop,
        run: Callable[[str], None] | None = None,
    ) -> TrainingLoop:
        """Return a training loop over this run, at its beginning; `run` runs its programs."""
        evaluation = self.phase(EVALUATE, "eval") if "eval" in self.iterators else None
        train = self.phase(TRAIN, "train", (ACCUMULATE,))
        return kind(
            self.executor,
            self.built.model.measured,
            train,
            evaluation,
            self.built.training,
            observer,
            self.engine,
            run,
            self._group if self.built.updates_apart else None,
            self.agreement,
            {length: model.measured for length, model in self.built.buckets.items()},
        )

    def phase(self, name: str, role: str, partial: tuple[str, ...] = ()) -> Phase:
        """Return one phase with its iterator and metrics."""
        weights = self.class_weights if role == "train" else None
        training = self.built.training
        return Phase(name, self.iterators[role], training.metrics, partial, weights, training.scale)

    def read_batches(self) -> None:
        """Read the first batch of each data set. Raises UserError if that fails."""
        for iterator in self.iterators.values():
            iterator.reset(1)
            iterator.next_into(slots(self.executor, iterator).arrays)

    @property
    def contexts(self) -> Sequence[Context]:
        """Contexts that compute parts of each batch, one or more."""
        return self._group.contexts

    @property
    def planned_bytes(self) -> int:
        """Bytes of the arenas of all contexts."""
        return self.plan.planned_bytes * len(self.executors)

    def touched_bytes(self) -> int:
        """Measure how much of the arenas a run uses (`Executor.touched_bytes`).

        The contents are lost. The batches in the arenas are reused, so a finished run does not need
        its data.
        """
        loaded = [
            slots(executor, iterator)
            for executor in self.executors
            for iterator in self.iterators.values()
        ]
        arrays = [*self._staged, *(batch.arrays for batch in loaded)]
        contents = [{name: array.copy() for name, array in each.items()} for each in arrays]

        def exercise(executor: Executor) -> None:
            """Write to an arena as a run does, once: initial values, batches, and every phase."""
            self.initialise(start=False)
            for each, content in zip(arrays, contents, strict=True):
                for name, array in each.items():
                    np.copyto(array, content[name])
            for batch in loaded:
                batch.store()
            for phase in self.plan.phases:
                if base_phase(phase) != EVALUATE or "eval" in self.iterators:
                    executor.run(phase)

        return sum(
            executor.touched_bytes(partial(exercise, executor)) for executor in self.executors
        )

    def close(self) -> None:
        """Stop the loaders."""
        # Wakes threads that wait for a process.
        self.python.close()
        for iterator in self.iterators.values():
            iterator.close()

    def state(self, progress: Progress, due: bool) -> RunState:
        """Return the state of the run for a checkpoint's manifest."""
        options = self.built.options
        return RunState(
            progress=progress,
            due=due,
            seed=options.seed,
            plan=PlanRecord(
                device=self.plan.device.family,
                library=self.plan.device.library,
                micro_batches=self.built.micro_batches,
                contexts=self.built.contexts,
                batch_parts=self.built.batch_parts,
                implementations=self.plan.phases[TRAIN].implementations(),
                others={
                    phase: self._implementations(phase)
                    for phase in self.plan.phases
                    if phase != TRAIN
                },
                kernel_plans=self._kernel_plans,
            ),
            config_sha256=options.sha256(self.keys_of_length),
            inference_sha256=options.inference_sha256(),
            data=self.fingerprints(),
            classes=self.datasets["train"].classes,
            columns=self.datasets["train"].columns,
            label_column=self.datasets["train"].label_column,
            encoding=self.datasets["train"].encoding,
            vocabulary=None if self.vocabulary is None else self.vocabulary.sha256,
            plugins=self._plugins,
            whites=self.datasets["train"].whites,
            started_from=self.started_from,
        )

    def _implementations(self, phase: str) -> dict[str, str]:
        """Return the implementations of a phase's steps, those of all ranks."""
        found = self.plan.phases[phase].implementations()
        if phase != UPDATE or self.built.shard is None:
            return found
        # Parameters of which this rank has no slice are updated as the others are.
        updates = (f"{name}:update" for name in self.built.training.rules)
        kinds = [kind for name, kind in found.items() if name.endswith(":update")]
        return dict.fromkeys(updates, kinds[0]) | found if kinds else found

    @cached_property
    def _kernel_plans(self) -> dict[str, str]:
        return library_plans(self.plan, self.executors[0].device)

    @property
    def keys_of_length(self) -> tuple[KeyPath, ...]:
        """Keys that change the length of the run, but none of the steps before its end.

        Empty if the learning rates depend on the length.
        """
        return () if self.built.training.schedule.depends_on_length else _LENGTH

    def fingerprints(self) -> dict[str, str]:
        """Return the SHA-256 of each data set, computed once."""
        if not self._fingerprints:
            self._fingerprints = {role: fingerprint(data) for role, data in self.datasets.items()}
        return self._fingerprints

    def background_writer(self, loop: TrainingLoop) -> BackgroundWriter | None:
        """Return a writer of this run's checkpoints; None without memory for a copy of the state.

        Checkpoints are then written between two steps.
        """
        if not self._has_room_for_copy:
            return None
        _, groups = self.snapshot(loop.progress, due=False, loop=loop)
        return BackgroundWriter(self.engine, loop.saved, groups)

    def snapshot(
        self, progress: Progress, due: bool, loop: TrainingLoop
    ) -> tuple[RunState, dict[str, Arrays]]:
        """Return the contents of a checkpoint."""
        groups: dict[str, Arrays] = {file: self._learned(kind) for kind, file in _FILE_OF.items()}
        groups[MEASURED_FILE] = loop.measure.state()
        if loop.carried:
            groups[CARRIED_FILE] = loop.carried
        if loop.sliced:
            groups[OPTIMIZER_FILE] = loop.sliced
        return self.state(progress, due), groups

    def _learned(self, kind: MemoryClass) -> Arrays:
        """Return the values of all pinned tensors of a memory class."""
        return {name: self.executor.tensor(name).values() for name in pinned(self.executor, kind)}

    def _specs(self, kind: MemoryClass) -> dict[str, TensorSpec]:
        """Return the specs in checkpoints of all pinned tensors of a memory class.

        Of states that are carried there is one for each batch part; of those of which each rank has
        a slice, the whole.
        """
        sliced = self.built.sliced_states
        if kind is MemoryClass.OPTIMIZER and sliced is not None:
            return sliced
        specs = {name: self.plan.specs[name] for name in pinned(self.executor, kind)}
        parts = self.built.batch_parts
        if kind is not MemoryClass.CARRIED or parts == 1:
            return specs
        return {name: TensorSpec((parts, *spec.shape), spec.dtype) for name, spec in specs.items()}

    def with_states(self, checkpoint: Checkpoint) -> tuple[Checkpoint, list[str]]:
        """Return the checkpoint with states of this run, and notes about those that are not its.

        States of another optimizer, and carried states of other shapes, are replaced by zeros.
        """
        notes = []
        adapted = self._with_optimizer_states(checkpoint)
        if adapted is not checkpoint:
            notes.append("the checkpoint has no states of this optimizer: they are initialised")
        targets = self._specs(MemoryClass.CARRIED)
        if _described(targets) != _described(_specs_of(checkpoint.carried)):
            notes.append("the checkpoint carries no states of these shapes: they are zero")
            adapted = replace(adapted, carried=_zeros(targets))
        return adapted, notes

    def _with_optimizer_states(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with states of this run's optimizer.

        Moving averages are retained, or initialised with the parameters.
        """
        targets, saved = self._specs(MemoryClass.OPTIMIZER), checkpoint.optimizer
        if _described(targets) == _described(_specs_of(saved)):
            return checkpoint
        states = _zeros(targets)
        for name, value in checkpoint.parameters.items():
            if averaged(name) in targets:
                states[averaged(name)] = saved.get(averaged(name), value)
        return replace(checkpoint, optimizer=states)

    def share(self, loop: TrainingLoop) -> None:
        """Give the state of the first rank to all ranks, and the records that it has left out."""
        if self.built.ranks == 1 or self.agreement is None:
            return
        ranks = self.agreement.ranks
        sliced = self.built.sliced_states is not None
        kinds = [kind for kind in LEARNED if not sliced or kind is not MemoryClass.OPTIMIZER]
        for name in pinned(self.executor, *kinds):
            mirror = self.executor.tensor(name).mirror()
            mirror.load()
            ranks.broadcast(mirror.array)
            mirror.store()
        for array in loop.measure.state().values():
            ranks.broadcast(array)
        loop.share_states()
        self.agreement.share_bad_records()
        progress = ranks.gather_texts(loop.progress.model_dump_json())[0]
        loop.progress = Progress.model_validate_json(progress)

    def restore(self, checkpoint: Checkpoint | None, loop: TrainingLoop) -> None:
        """Restore the state of a checkpoint, or the beginning of the run.

        Raises UserError if its arrays do not fit this network.
        """
        loop.measure.reset()
        loop.progress = Progress()
        for states in loop.sliced.values():
            states.fill(0)
        if checkpoint is None:
            self.initialise()
            self.started_from = self.read_warm_start().record()
            return
        self.started_from = checkpoint.manifest.started_from
        groups = (
            checkpoint.parameters,
            checkpoint.optimizer,
            checkpoint.auxiliary,
            checkpoint.carried,
        )

        def fill(executor: Executor) -> None:
            for kind, arrays in zip(_FILE_OF, groups, strict=True):
                _require_fit(checkpoint, arrays, self._specs(kind))
                for name, array in arrays.items():
                    apart = {**loop.carried, **loop.sliced}
                    if name in apart:
                        np.copyto(apart[name], array)
                    else:
                        executor.tensor(name).write(array)

        self._prepared.begin(fill)
        measured = loop.measure.state()
        _require_fit(checkpoint, checkpoint.measured, _specs_of(measured))
        for name, array in checkpoint.measured.items():
            np.copyto(measured[name], array)
        loop.progress = checkpoint.manifest.progress


def _require_fit(checkpoint: Checkpoint, arrays: Arrays, targets: Mapping[str, TensorSpec]) -> None:
    """Raise UserError unless a checkpoint's arrays are those of a network."""
    saved, wanted = _described(_specs_of(arrays)), _described(targets)
    for name in sorted({*saved, *wanted}):
        there, here = saved.get(name, "missing"), wanted.get(name, "missing")
        if there != here:
            raise UserError(
                f"{checkpoint.folder} is of another network: {name!r} is {there} there and "
                f"{here} here"
            )


def _zeros(specs: Mapping[str, TensorSpec]) -> dict[str, npt.NDArray[Any]]:
    return {name: np.zeros(spec.shape, numpy_dtype(spec.dtype)) for name, spec in specs.items()}


def _specs_of(arrays: Arrays) -> dict[str, TensorSpec]:
    return {name: TensorSpec(array.shape, array.dtype.name) for name, array in arrays.items()}


def _described(specs: Mapping[str, TensorSpec]) -> dict[str, str]:
    return {name: f"{spec.dtype} {list(spec.shape)}" for name, spec in specs.items()}
