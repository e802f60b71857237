"""Models whose weights are in no checkpoint: initial values, and saving of such a model."""

from __future__ import annotations

from pathlib import Path

from mxrun.base.array_file import Arrays
from mxrun.config import Parsed, RunOptions
from mxrun.frontend import ModelDefinition
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.dataset.request import open_datasets
from mxrun.preparation.device import describe
from mxrun.preparation.parameter_init import initial_arrays
from mxrun.preparation.plugins import plugin_hashes
from mxrun.run.trained_model import TrainedModel
from mxrun.run.warm_start import WarmStartSource
from mxrun.train.checkpoint import (
    AUXILIARY_FILE,
    FORMAT,
    PARAMETERS_FILE,
    Checkpoint,
    Manifest,
    PlanRecord,
    RunState,
    save_checkpoint,
)
from mxrun.train.progress import Progress
from mxrun.train.run_directory import RunDirectory


def start_values(built: ModelDefinition, runs: Path) -> Arrays:
    """Return the values with which a run of the config begins, by name, in the network's order.

    Raises UserError if the run that `train.start_from` names in the folder `runs` cannot be read.
    """
    values = {**initial_arrays(built), **WarmStartSource.read(built, runs).arrays}
    return {name: values[name] for name in built.model.learned}


def unsaved_model(
    parsed: Parsed, built: ModelDefinition, arrays: Arrays, folder: Path
) -> TrainedModel:
    """Return the model of a config with these weights, as if a run had saved them in `folder`.

    Classes, columns and the white of images are those of the config's training data, which are read
    unless the config lacks their path. Raises UserError if they cannot be read.
    """
    dataset = None
    if not built.missing:
        dataset = open_datasets({"train": built.data["train"]}, built.model.records)["train"]
    state = _state(built, dataset)
    manifest = Manifest(**dict(state), format=FORMAT, files={})
    parameters, auxiliary = _groups(built, arrays)
    checkpoint = Checkpoint(
        folder,
        manifest,
        parameters=parameters,
        optimizer={},
        auxiliary=auxiliary,
        carried={},
        measured={},
    )
    vocabulary = None if dataset is None else dataset.vocabulary
    return TrainedModel(parsed, built, checkpoint, arrays, False, (), vocabulary)


def _state(built: ModelDefinition, dataset: Dataset | None) -> RunState:
    """Return the state of a run before its first step."""
    options = built.options
    vocabulary = None if dataset is None else dataset.vocabulary
    device = describe(options, 1)
    return RunState(
        progress=Progress(),
        due=True,
        seed=options.seed,
        plan=PlanRecord(device=device.family, library=device.library, implementations={}),
        config_sha256=options.sha256(),
        inference_sha256=options.inference_sha256(),
        data={},
        classes=() if dataset is None else dataset.classes,
        columns=() if dataset is None else dataset.columns,
        label_column="" if dataset is None else dataset.label_column,
        encoding=None if dataset is None else dataset.encoding,
        vocabulary=None if vocabulary is None else vocabulary.sha256,
        plugins=plugin_hashes(options),
        whites=_usual_whites(options) if dataset is None else dataset.whites,
    )


def _usual_whites(options: RunOptions) -> dict[str, float]:
    """Return white of training's images without its data: of the kind of its data set."""
    return dict(DATASETS.get(options.data.train.dataset).images)


def _groups(built: ModelDefinition, arrays: Arrays) -> tuple[Arrays, Arrays]:
    """Return the parameters and the auxiliary states among `arrays`."""
    parameters = built.model.parameters
    return (
        {name: array for name, array in arrays.items() if name in parameters},
        {name: array for name, array in arrays.items() if name not in parameters},
    )


def save_model(model: TrainedModel, folder: Path, overwrite: bool = False) -> None:
    """Save a model as a run's folder: its config, and a checkpoint of its weights alone.

    Raises UserError if the folder has a run, unless `overwrite` is set, and if it cannot be
    written.
    """
    hint = "overwrite=True replaces it"
    directory = RunDirectory.create(folder, model.built.options.resolved(), overwrite, hint)
    if model.vocabulary is not None:
        directory.write_vocabulary(model.vocabulary)
    manifest = model.checkpoint.manifest
    progress = manifest.progress.with_(best=None)
    fields = {name: getattr(manifest, name) for name in RunState.model_fields}
    state = RunState(**{**fields, "progress": progress, "due": True})
    parameters, auxiliary = _groups(model.built, model.arrays)
    groups = {PARAMETERS_FILE: parameters} | ({AUXILIARY_FILE: auxiliary} if auxiliary else {})
    save_checkpoint(directory.path, state, groups)
