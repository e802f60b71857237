"""Models: networks with weights, loaded from configs and runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy.typing as npt

from mxrun import library
from mxrun.api.arguments import Layout, Records, batch_size, count, data_part
from mxrun.api.events import (
    Callback,
    CallbackObserver,
    TextProgress,
    callback_functions,
    shows_progress,
)
from mxrun.api.generation import TextGenerator
from mxrun.api.html import section
from mxrun.api.inspection import MemoryPlan, Network
from mxrun.api.parameters import ModelParameters
from mxrun.api.predictor import Predictor
from mxrun.api.results import EvaluationResult, Prediction, RunResult
from mxrun.base.array_file import Arrays
from mxrun.base.errors import PYTHON, Diagnostic, Stopped, UserError
from mxrun.base.files import write_bytes
from mxrun.base.flags import runs_folder
from mxrun.base.recently_used import RecentlyUsed
from mxrun.commands.evaluate import prepare_evaluation
from mxrun.commands.train import TrainRequest, train_config
from mxrun.config import Parsed
from mxrun.config.bundled import find_config, is_config
from mxrun.frontend import ModelDefinition, build
from mxrun.inference.onnx_file import onnx_file
from mxrun.inspection.memory_report import memory_report
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.shared import MAX, BatchSize
from mxrun.options.train import TrainOptions
from mxrun.preparation.max_batch_size import max_batch_size
from mxrun.preparation.micro_batches import planned
from mxrun.preparation.planning import parse_config, trust_plugins
from mxrun.run.resume import saved_manifest
from mxrun.run.train_summary import TrainSummary
from mxrun.run.trained_model import TrainedModel
from mxrun.run.unsaved_model import save_model, start_values, unsaved_model
from mxrun.run.warm_start import WarmStartSource
from mxrun.train.advice import IN_PYTHON
from mxrun.train.interruption import Interruption
from mxrun.train.run_directory import METRICS_FILE, RunDirectory, find_run, is_run, run_of

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]

_ONNX = ".onnx"
# Names of outputs, and the batch size, for which `predict` keeps the network.
_Selected: TypeAlias = tuple[tuple[str, ...], BatchSize | None]
_MAX_PREDICTORS = 4
# What `load` takes besides the configs of the commands.
_ALSO = "a run's folder or name, a dictionary, "


def load(
    source: Source,
    overrides: Mapping[str, Any] | None = None,
    *,
    checkpoint: str | int | None = None,
    runs: str | os.PathLike[str] | None = None,
    allow_changes: bool = False,
    allow_plugins: bool = False,
) -> LoadedModel:
    """Load a model from a config or from a run.

    source: the path of a YAML file, the name of a bundled config, a dictionary that holds the
    config, the folder of a run or of one of its checkpoints, or the name of a run. The name of a
    bundled config goes before that of a run. Paths in a dictionary, and of `extends` there, are
    relative to the working folder; a dictionary without `name` is called `model`.

    overrides: values by dotted key, such as `{"train.epochs": 3}`, like KEY=VALUE of the commands.
    checkpoint: of a run, `best`, `newest` or a step; by default the best if the run saves it, else
    the newest. runs: the folder of runs, by default MXRUN_RUNS or `runs`. allow_changes: load a
    run's weights although its config or plugins have changed. allow_plugins: trust the plugins that
    the config names, from now on.

    A model of a config has its initial weights (or those of `train.start_from`), with the bits with
    which `mxrun train` begins; a model of a run has the weights that `mxrun infer` uses. Raises
    UserError with every problem of the config, or if there is no such config or run.
    """
    folder = runs_folder() if runs is None else Path(runs)
    changes = dict(overrides or {})
    with library.plugin_errors():
        run = _run(source, folder)
        if run is None:
            if checkpoint is not None:
                raise UserError(
                    Diagnostic("checkpoint selects a checkpoint of a run", got="a config")
                )
            config = _config(source)
            if allow_plugins:
                trust_plugins(config, changes)
            parsed = parse_config(config, changes)
            return LoadedModel(parsed, folder)
        if allow_plugins:
            trust_plugins(run, changes)
        requested = None if checkpoint is None else str(checkpoint)
        trained = TrainedModel.open(
            run, requested, allow_changes=allow_changes, overrides=changes, advice=IN_PYTHON
        )
        return LoadedModel(trained.parsed, folder, trained)


def _config(source: Source) -> Mapping[str, Any] | Path:
    """Return the dictionary, or the path of the config, that `source` is."""
    return source if isinstance(source, Mapping) else find_config(os.fspath(source), _ALSO)


def _run(source: Source, runs: Path) -> Path | None:
    """Return the folder of the run, or of the checkpoint, that `source` names; None for configs."""
    if isinstance(source, Mapping):
        return None
    if not isinstance(source, (str, os.PathLike)):
        expected, got = f"{_ALSO}a YAML file, or a bundled config", type(source).__name__
        raise UserError(Diagnostic("mxrun.load cannot read this", None, expected, got))
    path = Path(source)
    if is_run(path):
        return path
    if is_config(os.fspath(source)):
        return None
    found = find_run(path, runs)
    return found if found != path else None


class LoadedModel(TextGenerator):
    """Network with weights, made by `mxrun.load`.

    Everything is checked when the model is loaded; data are opened when they are needed. Models are
    independent of each other and may be used in several threads; `predict` during a `fit` in
    another thread uses the weights from before. Memory is freed with the model.
    """

    def __init__(self, parsed: Parsed, runs: Path, trained: TrainedModel | None = None) -> None:
        """Use `mxrun.load`. trained: the weights; by default the config's initial ones."""
        self._parsed, self._runs = parsed, runs
        self._built: ModelDefinition = trained.built if trained is not None else build(parsed)
        self._trained = trained
        # Networks for `predict`, with the weights of now; `predictor` makes others.
        self._predictors = RecentlyUsed[_Selected, Predictor](_MAX_PREDICTORS)
        # Weights with which `fit` begins, instead of the config's.
        self._start: WarmStartSource | None = None
        if trained is not None:
            self._start = _start_of(trained, trained.checkpoint.folder)
        # Whether weights were assigned since the last `fit`.
        self._assigned = False
        self._initial: Arrays | None = None
        self._result: RunResult | None = None

    @property
    def name(self) -> str:
        """Name of the config, and of the run that `fit` makes."""
        return self._built.options.name

    @property
    def config(self) -> dict[str, Any]:
        """The expanded config as a new dictionary, which `mxrun.load` reads again."""
        config: dict[str, Any] = _lists(self._built.options.plain())
        return config

    @property
    def network(self) -> Network:
        """Layers of the network, with a drawing in notebooks."""
        return Network(self._built)

    @property
    def parameters(self) -> ModelParameters:
        """Weights by name: reading gives read-only copies, assigning changes the model.

        If training computed moving averages of the weights, these are the averages.
        """
        return ModelParameters(self._built.model.learned, self._arrays, self._assign)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that were learned; empty if they have none or before training."""
        return () if self._trained is None else self._trained.classes

    @property
    def result(self) -> RunResult | None:
        """The run that trained this model, by `fit` or before it was loaded; None without one."""
        if self._result is None and self._trained is not None:
            folder = run_of(self._trained.checkpoint.folder)
            # A model that was saved by itself has no history.
            if (folder / METRICS_FILE).exists():
                self._result = _saved_result(folder, self._trained)
        return self._result

    def check(self) -> Network:
        """Return the layers of the network; problems are raised when a model is loaded."""
        return self.network

    def fit(
        self,
        callbacks: Callback | Iterable[Callback] = (),
        *,
        resume: bool = False,
        overwrite: bool = False,
        allow_changes: bool = False,
        profile: bool = False,
        batch: BatchSize | None = None,
        progress: bool | None = None,
    ) -> RunResult:
        """Train as `mxrun train` does, to the same bits, and save the run in the folder of runs.

        callbacks: a function, or several, called with each event, in order: RunStarted, StepDone
        (at most ten a second), EpochDone, Note. One that raises `mxrun.StopTraining` ends the run
        after the current step; it is saved and can be resumed. resume: continue the run of the same
        name; with more `train.epochs` a finished run goes on. overwrite: replace that run.
        allow_changes: resume although the config or the data have changed. profile: time every
        operator. batch: replaces data.batch_size; `max` is the largest that fits. progress: write a
        line for each epoch to standard error; by default on a terminal and in a notebook.

        Training begins with the weights that the model was loaded with, or that were assigned, and
        not with those of an earlier `fit`: `fit(overwrite=True)` gives the same run again. To train
        a result further as another run, load it: `mxrun.load(result.folder, {"name": "longer"})`.
        After an assignment to `parameters`, all weights of the model at that moment are the start.
        `resume=True` continues from the run's own checkpoint, and is refused with other weights.

        Afterwards the model has the weights that `mxrun infer` would use: the best if the config
        saves it, else the last. Ctrl-C and a notebook's stop button end the current step, save, and
        raise KeyboardInterrupt; a second one stops at once. SIGTERM and SIGHUP raise
        `mxrun.Stopped`. Signals reach only a training in the main thread. Raises UserError for
        errors in config, data or run folder, before the first step.
        """
        if resume and overwrite:
            problem = "resume continues the run and overwrite replaces it: give only one of them"
            raise UserError(problem)
        folder = self._runs / self.name
        if resume:
            self._require_weights_of(folder)
        functions = callback_functions(callbacks)
        request = TrainRequest(
            TrainOptions(
                config=self.name,
                batch=batch_size(batch),
                overwrite=overwrite,
                resume=resume,
                allow_changes=allow_changes,
                profile=profile,
                runs=self._runs,
            ),
            started_at=time.monotonic(),
            interruption=Interruption(ends_process=False),
            initial=self._start,
            advice=IN_PYTHON,
        )
        with ExitStack() as stack:
            if shows_progress(progress):
                functions = (stack.enter_context(closing(TextProgress())), *functions)
            return self._train(functions, request)

    def _train(self, functions: Sequence[Callback], request: TrainRequest) -> RunResult:
        """Train, load the weights of the run, and return its result."""
        folder, interruption = self._runs / self.name, request.interruption
        observer = CallbackObserver(functions, interruption)
        try:
            with library.plugin_errors():
                trained = train_config(self._parsed, observer, request)
        except Stopped as stop:
            self._reopen(folder, request.options.allow_changes)
            why = f"{interruption.reason}: {stop}" if interruption.reason else str(stop)
            self._result = RunResult(folder, "stopped", why, notes=tuple(observer.notes))
            if interruption.signal == "SIGINT":
                raise KeyboardInterrupt(str(stop)) from stop
            if interruption.signal is not None:
                raise
            return self._result
        self._reopen(folder, request.options.allow_changes)
        times = None if trained.profile is None else trained.profile.to_json()
        result = _finished_result(folder, trained.summary, tuple(observer.notes))
        self._result = replace(result, profile=times)
        return self._result

    def evaluate(
        self,
        data: str | os.PathLike[str] | Mapping[str, npt.ArrayLike] | tuple[Any, Any] | None = None,
        *,
        errors: int = 0,
        batch: BatchSize | None = None,
        **settings: Any,
    ) -> EvaluationResult:
        """Measure the loss and the metrics, as `mxrun evaluate` does.

        data: by default the config's data.eval. `"train"` and `"eval"` are the config's sections;
        another text is a path if something is there, else a split of the data set. Arrays are given
        as (data, labels) for a network with one input, or by input; labels may be class names.
        errors: number of the worst records to report. batch: replaces the config's batch size.
        settings: keys of the data section that differ, such as `header=True`.

        Raises UserError for records that cannot be read or do not fit the network.
        """
        part = data_part(self._built, data, settings)
        errors, batch = count("errors", errors, minimum=0), batch_size(batch)
        with library.plugin_errors():
            model = self._model(batch)
            options = EvaluateOptions(run=model.checkpoint.folder, errors=errors, batch=batch)
            return EvaluationResult(prepare_evaluation(model, part, options).run())

    def predict(
        self,
        data: Records,
        *,
        outputs: Sequence[str] = (),
        batch: BatchSize | None = None,
        layout: Layout = "CHW",
        steps: int | None = None,
    ) -> Prediction:
        """Run the network on records, as `mxrun infer` does.

        data: an array [records, ...] or one record, read like a .npy file (pixels are scaled as in
        training, then the transforms of evaluation are applied); a list of arrays of several sizes;
        an image of Pillow or a list of these, read like their files; a path of an image, a .npy
        file, a table or a folder; a list of paths; or a dictionary of arrays by input. Of a model
        that was trained on a table with `columns`, an array has its data columns as they are, words
        and dates too; they may also be a dictionary or a data frame of columns by name, a
        dictionary of one row, or a list of these, in which what a row lacks is missing; a series is
        a path or columns by name. outputs: layers whose outputs are returned instead of the
        network's. batch: replaces the config's. layout: `HWC` for arrays of images whose channels
        are last. steps: to predict after the last of a series; by default its horizon.

        The network is planned and bound for the first call of a number of records, and kept: the
        next ones only compute. Raises UserError for records that do not fit, and unknown layers.
        """
        names, batch = tuple(outputs), batch_size(batch)
        predictor = self._predictors.get((names, batch), lambda: self._predictor(names, batch))
        return predictor.predict(data, layout=layout, steps=steps)

    def predictor(self, batch: int | None = None, *, outputs: Sequence[str] = ()) -> Predictor:
        """Return the network prepared for calls in a loop, all of which run in batches of one size.

        batch: records in a batch; by default the config's. Calls with fewer records compute a whole
        batch, calls with more several. outputs: layers whose outputs are returned instead of the
        network's. The weights are those of now. Everything is planned and allocated here. Raises
        UserError for unknown layers, and if the network does not fit into memory.
        """
        batch = self._built.model.batch_size if batch is None else count("batch", batch, minimum=1)
        return Predictor(self._model(), tuple(outputs), batch)

    def _predictor(self, outputs: tuple[str, ...], batch: BatchSize | None) -> Predictor:
        """Return the network for `predict`, in batches of at most `batch` records."""
        with library.plugin_errors():
            model = self._model(max_batch_size(batch, self._parsed, training=False))
        return Predictor(model, outputs)

    def plan(
        self,
        phase: Literal["train", "infer"] = "train",
        *,
        batch: BatchSize | None = None,
        threads: int | None = None,
    ) -> MemoryPlan:
        """Return the plan of the memory of training (with its evaluation) or of inference.

        Nothing is allocated and no data are read. batch, threads: replace the config's. Raises
        UserError if the config's memory budget cannot be met.
        """
        training, batch = phase == "train", batch_size(batch)
        if not training and phase != "infer":
            raise UserError(Diagnostic("unknown phase", None, "train or infer", repr(phase)))
        with library.plugin_errors():
            built = build(self._parsed, max_batch_size(batch, self._parsed, training, threads))
            return MemoryPlan(memory_report(planned(built, training, threads), phase))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Save the config and the weights in a folder, and return its path.

        `mxrun.load`, `mxrun infer` and `mxrun evaluate` open the folder like a run. It has no
        optimizer states: `fit(resume=True)` needs the run itself. A path that ends in `.onnx` is
        written as an ONNX model for batches of any size. Raises UserError if something is there
        already, unless `overwrite` is set, or if it cannot be written.
        """
        target = Path(path)
        is_onnx = target.suffix == _ONNX
        if not overwrite and (os.path.exists(target) if is_onnx else is_run(target)):
            raise UserError(Diagnostic(f"{target} exists", hint="overwrite=True replaces it"))
        if is_onnx:
            _, content = onnx_file(self._built, self._arrays(), self._trained, any_batch=True)
            write_bytes(target, content)
        else:
            save_model(self._model(), target, overwrite)
        return target

    def __repr__(self) -> str:
        weights = "initial weights"
        if self._trained is not None:
            weights = f"weights of {self._trained.checkpoint.folder}"
        return f"<LoadedModel {self.name}: {self.network.parameters:,} parameters, {weights}>"

    def _repr_html_(self) -> str:
        return section(self.network._repr_html_())

    def _arrays(self) -> Arrays:
        """Return the weights by name; they must not be changed."""
        if self._trained is not None:
            return self._trained.arrays
        if self._initial is None:
            self._initial = start_values(self._built, self._runs)
        return self._initial

    def _assign(self, name: str, array: npt.NDArray[Any]) -> None:
        """Replace the values of a parameter."""
        arrays = {**self._arrays(), name: array}
        self._predictors.clear()
        self._assigned = True
        if self._trained is None:
            self._initial = arrays
            self._start = WarmStartSource(Path(PYTHON), arrays)
        else:
            self._trained = replace(self._trained, arrays=arrays)
            self._start = _start_of(self._trained, Path(PYTHON))

    def _model(self, batch: BatchSize | None = None) -> TrainedModel:
        """Return the model with what the data of training tell about records.

        batch: replaces the config's batch size; `max` is found later, for the records.
        """
        model = self._trained
        if model is None:
            folder = self._runs / self.name
            model = unsaved_model(self._parsed, self._built, self._arrays(), folder)
        return model if batch is None or batch == MAX else model.with_batch_size(batch)

    def _reopen(self, folder: Path, allow_changes: bool) -> None:
        """Take the weights of a run that has been trained."""
        self._trained = TrainedModel.open(folder, allow_changes=allow_changes, advice=IN_PYTHON)
        self._predictors.clear()
        self._assigned = False

    def _require_weights_of(self, folder: Path) -> None:
        """Raise UserError if a resumed run in `folder` would not have this model's weights.

        It would have those of a model that was loaded from the run, or that it started from.
        """
        saved = saved_manifest(folder)
        trained = self._trained
        if saved is None or (trained is None and not self._assigned):
            return
        other = '{"name": "other"}).fit()'
        if self._assigned:
            raise UserError(
                Diagnostic(
                    f"resume=True continues {folder} from its checkpoint, without the weights that "
                    "were assigned",
                    hint="save them, and train them as another run: "
                    f'model.save("changed"); mxrun.load("changed", {other}',
                )
            )
        assert trained is not None
        own = run_of(trained.checkpoint.folder)
        started = saved.started_from
        origins = [folder, *([] if started is None else [run_of(Path(started.run))])]
        if own.resolve() not in [each.resolve() for each in origins]:
            raise UserError(
                Diagnostic(
                    f"resume=True continues {folder} from its checkpoint, without the weights of "
                    f"{own}",
                    hint=f"train them as another run: mxrun.load({str(own)!r}, {other}",
                )
            )


def _start_of(trained: TrainedModel, source: Path) -> WarmStartSource:
    """Return the weights of a model as those with which a run begins."""
    return WarmStartSource(source, trained.arrays, classes=trained.classes)


def _saved_result(folder: Path, trained: TrainedModel) -> RunResult:
    """Return the result of a run on disk."""
    content = RunDirectory(folder).summary()
    summary = None if content is None else TrainSummary.from_json(content)
    if summary is not None:
        return _finished_result(folder, summary, ())
    step = trained.checkpoint.manifest.progress.step
    return RunResult(folder, "stopped", f"stopped, saved after step {step}")


def _finished_result(folder: Path, summary: TrainSummary, notes: tuple[str, ...]) -> RunResult:
    """Return the result of a run that came to its end."""
    ended = "early_stopping" if summary.stopped_early else "finished"
    return RunResult(folder, ended, summary.ended, summary.to_json(), notes=notes)


def _lists(value: Any) -> Any:
    """Return plain values with lists instead of tuples."""
    if isinstance(value, Mapping):
        return {key: _lists(part) for key, part in value.items()}
    return [_lists(part) for part in value] if isinstance(value, tuple) else value
