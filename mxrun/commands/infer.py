"""Implementation of `infer`: a trained network on files, standard input or a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mxrun.base.errors import Diagnostic, UserError
from mxrun.frontend import ModelDefinition
from mxrun.inference.array_records import ArraySource, named_arrays
from mxrun.inference.data_part import DataPart, data_set_file, open_part
from mxrun.inference.forecasts import Forecasts, outlook
from mxrun.inference.inference import Inference, InferenceSetup, SelectedOutputs, prepare
from mxrun.inference.outputs import OutputHead, heads, needed_inputs
from mxrun.inference.records import DatasetSource, FileSource, RecordSource
from mxrun.inference.result_arrays import result_arrays
from mxrun.inference.series_records import read_history, series_options
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.io.series.steps import SeriesSteps
from mxrun.options.infer import InferOptions
from mxrun.options.shared import divide_settings
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.run.trained_model import TrainedModel, opened

__all__ = ["Forecasts", "Inference", "infer", "prepare_inference", "result_arrays"]


def infer(options: InferOptions, notify: Notify = ignore_note) -> Inference | Forecasts:
    """Prepare a run's network for the records that the options name.

    A network of series predicts the steps after those in the files. notify: receives notes about
    long waits. Raises UserError for errors in the run, the checkpoint, names or the first records.
    """
    files, settings = divide_settings(options.inputs)
    part = DataPart(split=options.split, files=files, settings=settings)
    trained = opened(options, options.batch)
    encoding = trained.checkpoint.manifest.encoding
    if isinstance(encoding, SeriesEncoding) and options.split is None:
        steps = read_history(trained.built, encoding, part)
        return forecast(trained, encoding, steps, options, notify)
    if options.steps is not None:
        problem = "--steps is for files of a series, whose next steps are predicted"
        raise UserError(Diagnostic(problem, hint="leave it out"))
    return prepare_inference(trained, part, options, notify)


def forecast(
    trained: TrainedModel,
    encoding: SeriesEncoding,
    steps: SeriesSteps,
    options: InferOptions,
    notify: Notify = ignore_note,
) -> Forecasts:
    """Predict the steps after those of a table; a horizon, or as many as the options say."""
    of_records = {"outputs": options.outputs, "top": options.top, "classes": options.classes}
    if given := [f"--{name}" for name, value in of_records.items() if value is not None]:
        problem = f"{', '.join(given)} cannot be combined with a forecast"
        raise UserError(Diagnostic(problem, hint="--split reads windows of the run's data"))
    view = outlook(steps, encoding, series_options(trained.built), options.steps)

    def select(built: ModelDefinition) -> SelectedOutputs:
        return SelectedOutputs(heads(built, ()))

    def open_source(model: TrainedModel, selected: Sequence[OutputHead]) -> RecordSource:
        del model, selected
        return view.source

    inference = prepare(trained, options, InferenceSetup(select, open_source), notify)
    found = view.run(inference.prepared)
    return replace(found, notes=(*trained.notes, *found.notes))


def prepare_inference(
    trained: TrainedModel, part: DataPart, options: InferOptions, notify: Notify = ignore_note
) -> Inference:
    """Prepare a network for records.

    Only inference is planned, for a batch no larger than the records of the files. notify: receives
    notes about long waits. Raises UserError for names that do not exist and unreadable records.
    """
    names = options.outputs or ()
    measured = part.split is not None and not names

    def select(built: ModelDefinition) -> SelectedOutputs:
        return SelectedOutputs(heads(built, names), measured, options.top, options.classes)

    def open_source(model: TrainedModel, selected: Sequence[OutputHead]) -> RecordSource:
        return record_source(model, part, needed_inputs(model.built, selected), measured)

    return prepare(trained, options, InferenceSetup(select, open_source), notify)


def record_source(
    trained: TrainedModel,
    part: DataPart,
    needed: tuple[Sequence[str], Sequence[str]],
    measured: bool = False,
) -> RecordSource:
    """Return the source of the records.

    needed: the inputs of data, and of labels, on which the outputs depend. measured: whether the
    loss and the metrics of a part of the data are computed.
    """
    built = trained.built
    data, labels = needed
    if part.split is not None:
        opened = open_part(trained, part)
        metrics = built.training.metrics if measured else None
        if measured and opened.dataset.series is not None:
            # Of a series they would be of scaled numbers, unlike the results.
            metrics = ()
        return DatasetSource(built, opened.dataset, metrics, opened.notes, path=opened.path)
    names = " and ".join(map(repr, labels or data))
    if part.arrays is not None and not labels:
        return ArraySource(trained.samples, named_arrays(part.arrays, data))
    if labels:
        raise UserError(
            Diagnostic(
                f"the outputs depend on labels ({names}), which files do not contain",
                hint="--outputs names layers before the loss; --split reads records with labels",
            )
        )
    if trained.vocabulary is not None and part.arrays is None:
        # Other networks need none of what reads texts.
        from mxrun.inference.text_records import TextSource

        return TextSource(trained, part.files, part.settings)
    if (file := data_set_file(part.files)) is not None:
        opened = open_part(trained, replace(part, path=file), data)
        return DatasetSource(built, opened.dataset, notes=opened.notes, path=opened.path)
    if len(data) > 1:
        raise UserError(
            Diagnostic(
                f"the network has several inputs ({names}), but a file has records of one",
                hint=f"write all with numpy.savez(FILE, {'=..., '.join(data)}=...), or use --split",
            )
        )
    return FileSource(trained, part.files, data[0], part.settings)
