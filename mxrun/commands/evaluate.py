"""Implementation of `evaluate`: loss, metrics, figures of each class and the worst records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.regression import Regression
from mxrun.frontend import ModelDefinition
from mxrun.inference.data_part import DataPart, OpenedPart, open_part
from mxrun.inference.forecast_statistics import ForecastStatistics
from mxrun.inference.head_statistics import HeadEvaluation, statistics_of
from mxrun.inference.inference import Inference, InferenceSetup, SelectedOutputs, prepare
from mxrun.inference.outputs import OutputHead, predictions
from mxrun.inference.prepared_inference import InferenceBatch
from mxrun.inference.records import DatasetSource
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.shared import divide_settings
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.run.trained_model import TrainedModel, opened
from mxrun.train.measure import LossTensors, figure_prefixes

Row = dict[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """Result of an evaluation.

    checkpoint: the folder of the weights; step: the step of training; averaged: whether they are
    moving averages. source: where the `records` come from. loss: the mean, with several losses the
    sum of their means. metrics: by name, prefixed by the losses' names if there are several. heads:
    one for each loss with labels. columns: missing and unknown values of a table's columns that
    have any, by name; None for other records. notes: notes for the user about weights and records.
    bad_records: those that were left out.
    """

    run: str
    checkpoint: str
    step: int
    averaged: bool
    source: str
    records: int
    seconds: float
    loss: float
    metrics: Mapping[str, float]
    heads: tuple[HeadEvaluation, ...]
    columns: Mapping[str, Any] | None
    notes: tuple[str, ...]
    bad_records: tuple[Row, ...] = ()

    def to_json(self) -> Row:
        """Return the evaluation as JSON."""
        return {
            "run": self.run,
            "checkpoint": self.checkpoint,
            "step": self.step,
            "averaged": self.averaged,
            "source": self.source,
            "records": self.records,
            "seconds": self.seconds,
            "records_per_s": self.records / max(self.seconds, 1e-9),
            "loss": self.loss,
            "metrics": dict(self.metrics),
            "heads": [head.to_json() for head in self.heads],
            "columns": self.columns,
            "notes": list(self.notes),
            "bad_records": list(self.bad_records),
        }


def evaluate(options: EvaluateOptions, notify: Notify = ignore_note) -> EvaluationRun:
    """Prepare the evaluation of a run on the records that the options name.

    notify: receives notes about long waits. Raises UserError for errors in the run, the checkpoint,
    names or records.
    """
    paths, settings = divide_settings(options.records)
    part = DataPart(split=options.split, path=paths[0] if paths else None, settings=settings)
    return prepare_evaluation(opened(options, options.batch), part, options, notify)


class EvaluationRun:
    """Evaluation that is ready to run, once; `total` is the number of its records."""

    def __init__(self, inference: Inference, opened: OpenedPart, errors: int) -> None:
        self._inference, self._source = inference, opened.source
        self.total, self.notes = inference.total, inference.notes
        built = inference.trained.built
        self._outputs = {name: head.name for name, head in predictions(built).items()}
        self._losses = [each for each in built.model.measured if each.name in self._outputs]
        layers = built.model.measured
        named = zip(layers, figure_prefixes(layers), strict=True)
        self._prefixes = {layer.name: prefix for layer, prefix in named}
        about = (inference.batch_size, errors)
        self._heads = {
            loss.name: self._forecasts(loss, opened, errors) or statistics_of(loss, *about)
            for loss in self._losses
        }

    def _forecasts(
        self, loss: LossTensors, opened: OpenedPart, errors: int
    ) -> ForecastStatistics | None:
        """Return the statistics of a loss whose predictions are forecasts; None for others."""
        series, encoding = opened.dataset.series, opened.dataset.encoding
        is_forecast = isinstance(loss.task, Regression) and loss.label == "label"
        if series is None or not isinstance(encoding, SeriesEncoding) or not is_forecast:
            return None
        assert isinstance(loss.task, Regression)
        about = (loss, loss.task, self._inference.batch_size, errors)
        return ForecastStatistics(*about, series, encoding)

    def run(self, advance: Callable[[int], None] = lambda records: None) -> Evaluation:
        """Run all batches; `advance` receives the number of finished records."""
        trained, inference = self._inference.trained, self._inference
        for head in self._heads.values():
            head.measure(trained.built.training.metrics)
        for batch in inference.batches(advance):
            self._add(batch)
        summary = inference.summary()
        measured = dict(summary["metrics"])
        loss = measured.pop("loss")
        heads = tuple(
            head.evaluation(self._own(measured, name), trained.names_of_outputs)
            for name, head in self._heads.items()
        )
        metrics = {
            f"{self._prefixes[head.name]}{name}": value
            for head in heads
            for name, value in head.metrics.items()
        }
        return Evaluation(
            run=summary["run"],
            checkpoint=summary["checkpoint"],
            step=summary["step"],
            averaged=summary["averaged"],
            source=self._source,
            records=summary["records"],
            seconds=summary["seconds"],
            loss=loss,
            metrics=metrics,
            heads=heads,
            columns=summary["columns"],
            notes=(*inference.notes, *inference.closing_notes),
            bad_records=tuple(inference.bad_records),
        )

    def _add(self, batch: InferenceBatch) -> None:
        """Add a batch to the statistics of every head."""
        for loss in self._losses:
            outputs, head = batch.arrays[self._outputs[loss.name]], self._heads[loss.name]
            records = batch.records
            if isinstance(head, ForecastStatistics):
                assert records.numbers is not None
                head.add_windows(records.names, records.numbers, outputs)
            else:
                head.add(records.names, records.targets[loss.label], outputs)

    def _own(self, measured: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Return the metrics of one loss, which have its name as prefix if there are several."""
        prefix = self._prefixes[name]
        return {
            key.removeprefix(prefix): value
            for key, value in measured.items()
            if key.startswith(prefix)
        }


def prepare_evaluation(
    trained: TrainedModel, part: DataPart, options: EvaluateOptions, notify: Notify = ignore_note
) -> EvaluationRun:
    """Open the records and prepare the network; nothing is evaluated yet. Raises UserError."""
    parts: list[OpenedPart] = []

    def select(built: ModelDefinition) -> SelectedOutputs:
        return SelectedOutputs(list(predictions(built).values()), measured=True)

    def open_source(model: TrainedModel, selected: Sequence[OutputHead]) -> DatasetSource:
        del selected
        opened = open_part(model, part)
        parts.append(opened)
        metrics, notes = model.built.training.metrics, opened.notes
        return DatasetSource(
            model.built, opened.dataset, metrics, notes, targets=True, path=opened.path
        )

    setup = InferenceSetup(select, open_source)
    return EvaluationRun(prepare(trained, options, setup, notify), parts[-1], options.errors)
