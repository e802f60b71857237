"""Trained model on disk: a run's config with the weights of one of its checkpoints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from mxrun.base.array_file import Arrays
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.once import cached_property
from mxrun.config import Overrides, Parsed
from mxrun.config.bundled import is_config
from mxrun.config.foreign_files import foreign_weights
from mxrun.executor.executor import Executor
from mxrun.frontend import ModelDefinition, build
from mxrun.frontend.data import evaluation_pipeline
from mxrun.graph.graph import MemoryClass
from mxrun.graph.update_rule import averaged
from mxrun.io.images.options import reads_as_stored
from mxrun.io.sample import Sample
from mxrun.io.vocabulary.saved import read_vocabulary
from mxrun.io.vocabulary.vocabulary import Vocabulary
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.infer import InferOptions
from mxrun.options.shared import MAX, BatchSize
from mxrun.preparation.planning import parse_config, trust_plugins
from mxrun.preparation.plugins import plugin_differences, plugin_hashes
from mxrun.preparation.synthetic_data import synthetic_notes_of
from mxrun.train.advice import ON_COMMAND_LINE, Advice
from mxrun.train.checkpoint import (
    MANIFEST_FILE,
    Checkpoint,
    checkpoint_folder,
    load_checkpoint,
    read_manifest,
)
from mxrun.train.checkpoint_manager import RestoredCheckpoint, newest_checkpoint, saved_steps
from mxrun.train.run_directory import CONFIG_FILE, find_run, run_of

BEST, NEWEST = "best", "newest"
# Options of the commands that run a trained network.
RunningOptions: TypeAlias = InferOptions | EvaluateOptions


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Network with trained weights, and notes for the user about their origin.

    arrays: every parameter and auxiliary state by name. averaged: whether weights are replaced by
    their moving averages, as in the run's own evaluations. vocabulary: the tokens of the text that
    it was trained on, if it was one.
    """

    parsed: Parsed
    built: ModelDefinition
    checkpoint: Checkpoint
    arrays: Arrays
    averaged: bool
    notes: tuple[str, ...]
    vocabulary: Vocabulary | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        requested: str | None = None,
        batch: int | None = None,
        allow_changes: bool = False,
        needs_device: bool = True,
        overrides: Overrides = (),
        advice: Advice = ON_COMMAND_LINE,
    ) -> TrainedModel:
        """Read a run's folder or one of its checkpoints.

        requested: `best`, `newest` or a step; by default the best if the run saves one, else the
        newest. batch: replaces the config's batch size. needs_device: whether the config's device
        must be there. overrides: change the run's config. advice: words for what to do next.
        Raises UserError for a folder of another kind, for an unusable checkpoint, and if config or
        plugins differ from those of training; with `allow_changes` the differences become notes.
        """
        run = run_of(path)
        if not os.path.isfile(run / CONFIG_FILE):
            raise _no_run(path, run)
        parsed = parse_config(run, overrides, needs_device)
        built = build(parsed, batch)
        selected = select_checkpoint(path, requested, advice)
        checkpoint = selected.checkpoint
        assert checkpoint is not None
        means = averages(checkpoint)
        arrays = {**checkpoint.parameters, **checkpoint.auxiliary, **means}
        # The hint to use another checkpoint is already followed.
        notes = [f"{problem.problem}; another checkpoint is used" for problem in selected.damaged]
        differences = _differences(built, checkpoint)
        if differences and not allow_changes:
            raise _changed(run, checkpoint, differences, advice)
        if differences:
            notes.append("this differs from the trained network: " + "; ".join(differences))
        notes.append(_described(checkpoint, bool(means)))
        notes += synthetic_notes_of(run, built.options)
        tokens = checkpoint.manifest.vocabulary
        vocabulary = None if tokens is None else read_vocabulary(run, tokens)
        return cls(parsed, built, checkpoint, arrays, bool(means), tuple(notes), vocabulary)

    def with_batch_size(self, batch: int) -> TrainedModel:
        """Return the same model, built for another batch size."""
        return replace(self, built=build(self.parsed, batch))

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes by number, as in training; empty if labels had no names."""
        return self.checkpoint.manifest.classes

    @property
    def names_of_outputs(self) -> tuple[str, ...]:
        """Names of the classes; of a network that continues texts, its tokens in quotes."""
        train = self.built.data.get("train")
        continues = train is not None and train.format.learns_vocabulary
        if self.classes or self.vocabulary is None or not continues:
            return self.classes
        return tuple(repr(self.vocabulary.token(each)) for each in range(len(self.vocabulary)))

    @cached_property
    def samples(self) -> dict[str, Sample]:
        """How records from outside of a data set are read, by input, as those of training were."""
        manifest, built, train = self.checkpoint.manifest, self.built, self.built.data.get("train")
        pipeline = evaluation_pipeline(built.options.data)
        return {
            field: Sample(
                spec,
                pipeline,
                field,
                manifest.whites.get(field),
                encoding=manifest.encoding if field == "data" else None,
                as_stored=train is not None and reads_as_stored(train.options),
            )
            for field, spec in built.model.records.items()
        }

    def copy_into(self, executor: Executor) -> None:
        """Copy the parameters and auxiliary states into a plan's arena.

        Raises UserError with all arrays that are missing or have another shape.
        """
        wrong = []
        kinds = (MemoryClass.PARAMETERS, MemoryClass.AUXILIARY)
        for block in executor.plan.pinned:
            if block.memory_class not in kinds:
                continue
            shape, array = executor.plan.specs[block.name].shape, self.arrays.get(block.name)
            if array is None:
                wrong.append(f"{block.name} {list(shape)}: not there")
            elif array.shape != shape:
                wrong.append(f"{block.name} {list(shape)}: {list(array.shape)} there")
            else:
                executor.tensor(block.name).write(array)
        if wrong:
            raise UserError(
                Diagnostic(
                    f"{self.checkpoint.folder} is of another network than "
                    f"{self.checkpoint.folder.parent / CONFIG_FILE}",
                    expected="every parameter and auxiliary state of the network, in its shape",
                    got="; ".join(wrong),
                    hint="use the config that the checkpoint was trained with",
                )
            )


def _differences(built: ModelDefinition, checkpoint: Checkpoint) -> list[str]:
    """Return the changes since training on which inference depends."""
    manifest, options = checkpoint.manifest, built.options
    found = []
    if manifest.inference_sha256 != options.inference_sha256():
        found.append("the config's network, precision or data are not those of the checkpoint")
    return found + plugin_differences(manifest.plugins, plugin_hashes(options))


def _changed(
    run: Path, checkpoint: Checkpoint, differences: Sequence[str], advice: Advice
) -> UserError:
    return UserError(
        Diagnostic(
            f"{checkpoint.folder} was trained with other settings than {run} has now",
            expected="the config and the plugins that the checkpoint was trained with",
            got="; ".join(differences),
            hint=f"undo the change, or use {advice.allow_changes}: the results are then not those "
            "of the run",
        )
    )


def averages(checkpoint: Checkpoint) -> Arrays:
    """Return the moving averages of weights in a checkpoint, by the weights' names."""
    return {
        name: checkpoint.optimizer[averaged(name)]
        for name in checkpoint.parameters
        if averaged(name) in checkpoint.optimizer
    }


def select_checkpoint(
    run: Path, requested: str | None, advice: Advice = ON_COMMAND_LINE
) -> RestoredCheckpoint:
    """Return the checkpoint at `run`, or the one of a run's folder that `requested` selects.

    requested: `best`, `newest` or a step; by default the best if the run saves one, else the
    newest. Raises UserError if there is none or it is unusable.
    """
    if (run / MANIFEST_FILE).is_file():
        if requested is not None:
            hint = f"{advice.checkpoint} selects among the checkpoints of a run's folder"
            raise UserError(Diagnostic(f"{run} is one checkpoint already", hint=hint))
        return RestoredCheckpoint(load_checkpoint(run), ())
    if requested not in (None, BEST, NEWEST):
        return RestoredCheckpoint(load_checkpoint(_at_step(run, requested)), ())
    best = None if requested == NEWEST else _best_step(run)
    if best is not None:
        try:
            return RestoredCheckpoint(load_checkpoint(checkpoint_folder(run, best)), ())
        except UserError as error:
            if requested == BEST:
                raise
            newest = newest_checkpoint(run)
            return RestoredCheckpoint(newest.checkpoint, (*error.diagnostics, *newest.damaged))
    if requested == BEST:
        best_key = "`train: {checkpoint: {best: accuracy}}`"
        hint = f"train with {best_key}, or use {advice.newest_checkpoint}"
        raise UserError(Diagnostic(f"the run in {run} has no best checkpoint", hint=hint))
    newest = newest_checkpoint(run)
    if newest.checkpoint is None:
        raise UserError(Diagnostic(f"there is no checkpoint in {run}", hint="train the run first"))
    return newest


def _at_step(run: Path, requested: str | None) -> Path:
    steps = [str(step) for step in saved_steps(run)]
    if requested not in steps:
        raise UserError(
            Diagnostic(
                f"there is no checkpoint {requested!r} in {run}",
                expected=f"{BEST}, {NEWEST} or a step: {', '.join(steps) or 'none is saved'}",
                got=str(requested),
            )
        )
    return checkpoint_folder(run, int(requested))


def _best_step(run: Path) -> int | None:
    """Return the step of the best evaluation from the newest readable manifest, or None."""
    for step in reversed(saved_steps(run)):
        try:
            best = read_manifest(checkpoint_folder(run, step)).progress.best
        except UserError:
            # Loading the newest checkpoint reports the error of this one.
            continue
        return None if best is None else best.step
    return None


def _described(checkpoint: Checkpoint, averages: bool) -> str:
    """Describe the selected weights in one line."""
    progress = checkpoint.manifest.progress
    best = progress.best
    text = f"{checkpoint.folder}"
    if best is not None and best.step == progress.step:
        text += f", the run's best ({best.metric} {best.value:.4g})"
    return f"{text}, moving averages of its weights" if averages else text


def not_a_run(path: Path, problem: str, hint: str) -> Diagnostic:
    """Return the diagnostic for a path given in place of a run; `hint` unless it is foreign."""
    kind, advice = foreign_weights(path)
    got = (kind or "a file") if os.path.exists(path) else "nothing is there"
    try:
        os.stat(path / CONFIG_FILE)
    except PermissionError:
        got = "permission denied"
    except OSError:
        got = "a folder without it" if os.path.isdir(path) else got
    return Diagnostic(
        problem,
        expected=f"a run's folder, which holds {CONFIG_FILE}, or one of its checkpoints",
        got=got,
        hint=advice or hint,
    )


def _no_run(path: Path, run: Path) -> UserError:
    if run != path:
        problem = f"{path} is a checkpoint, but its run's {run / CONFIG_FILE} is not there"
        return UserError(Diagnostic(problem, hint="keep checkpoints in their run's folder"))
    hint = "`mxrun runs` lists runs, `mxrun train CONFIG` makes one"
    if is_config(str(path)):
        hint = f"{path} is a config: `mxrun train {path}` makes a run; `mxrun runs` lists runs"
    return UserError(not_a_run(path, f"{path} is not a run", hint))


def opened(options: RunningOptions, batch: BatchSize | None) -> TrainedModel:
    """Return the run's model that the options select, for a batch size, or for 1 if it is `max`."""
    path = find_run(options.run, options.runs)
    if options.allow_plugins:
        trust_plugins(path)
    samples = 1 if batch == MAX else batch
    return TrainedModel.open(path, options.checkpoint, samples, options.allow_changes)
