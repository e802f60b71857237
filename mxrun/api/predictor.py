"""Predictions in a loop: a network that is planned once for each shape, and then only run."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence

from mxrun import library
from mxrun.api.arguments import Layout, Records, count, records
from mxrun.api.results import Prediction
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.limits import MAX_GENERATED
from mxrun.base.recently_used import RecentlyUsed
from mxrun.base.tensor import TensorSpec
from mxrun.commands.infer import record_source
from mxrun.inference.data_part import DataPart
from mxrun.inference.forecasts import outlook
from mxrun.inference.inference import Inference, SelectedOutputs, available_records, bind_network
from mxrun.inference.outputs import heads, needed_inputs
from mxrun.inference.prepared_inference import PreparedInference
from mxrun.inference.result_arrays import result_arrays
from mxrun.inference.series_records import history_of_columns, read_history, series_options
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.options.infer import InferOptions
from mxrun.preparation.notes import ignore_note
from mxrun.run.trained_model import TrainedModel

# Bound networks that are kept, each with its own copy of the parameters.
_MAX_SHAPES = 4


class Predictor:
    """Network that is bound for predictions again and again, made by `LoadedModel.predictor`.

    It has the weights that the model had when it was made. Threads may share it: records are read
    and prepared at the same time, and the network computes one call after the other.
    """

    def __init__(
        self, model: TrainedModel, outputs: Sequence[str] = (), batch_size: int | None = None
    ) -> None:
        """Use `mxrun.load(...).predictor`.

        batch_size: of all calls, for which the network is bound at once; by default that of each
        call, at most the config's.
        """
        self._model = model if batch_size is None else model.with_batch_size(batch_size)
        self._batch_size = batch_size
        self._selection = SelectedOutputs(heads(self._model.built, outputs))
        self._needed = needed_inputs(self._model.built, self._selection.heads)
        self._options = InferOptions(run=model.checkpoint.folder, outputs=tuple(outputs))
        self._bound = RecentlyUsed[Hashable, PreparedInference](_MAX_SHAPES)
        if batch_size is not None:
            with library.plugin_errors():
                self._find_or_bind(batch_size, lambda batch_size: {})

    def predict(
        self, data: Records, *, layout: Layout = "CHW", steps: int | None = None
    ) -> Prediction:
        """Run the network on records; the arguments are those of `LoadedModel.predict`."""
        model = self._model
        encoding = model.checkpoint.manifest.encoding
        if isinstance(encoding, SeriesEncoding):
            steps = steps if steps is None else count("steps", steps, 1, MAX_GENERATED)
            with library.plugin_errors():
                return self._forecast(data, encoding, steps)
        if steps is not None:
            problem = "steps are for networks that were trained on a series"
            raise UserError(Diagnostic(problem, hint="leave them out"))
        with library.plugin_errors():
            arrays, files = records(data, model.checkpoint.manifest.encoding, layout)
            source = record_source(model, DataPart(arrays=arrays, files=files), self._needed)
            available = available_records(source, model.built)
            prepared = self._find_or_bind(self._batch_size or available, source.staged)
            batches = list(prepared.batches(source))
        first = prepared.outputs[0]
        inference = Inference(prepared, source)
        return Prediction(
            result_arrays(batches),
            [name for batch in batches for name in batch.records.names],
            first.classes if first.top else (),
            (*inference.notes, *inference.closing_notes),
        )

    def _forecast(self, data: Records, encoding: SeriesEncoding, count: int | None) -> Prediction:
        """Return the steps after those of a table, which is a path, or columns by name."""
        built = self._model.built
        options = series_options(built)
        given = [data] if isinstance(data, (str, os.PathLike)) else data
        several = given if isinstance(given, (list, tuple)) else []
        files = [os.fspath(each) for each in several if isinstance(each, (str, os.PathLike))]
        if files and len(files) == len(several):
            read = read_history(built, encoding, DataPart(files=tuple(files)))
        else:
            read = history_of_columns(data, options, encoding)
        view = outlook(read, encoding, options, count)
        total = view.source.available(built.model.batch_size)
        prepared = self._find_or_bind(self._batch_size or total, view.source.staged)
        found = view.run(prepared)
        return Prediction(
            {target: found.values[..., at] for at, target in enumerate(found.targets)},
            [(name, 0) for name in found.names],
            notes=found.notes,
            times=tuple(tuple(found.times(at)) for at in range(len(found.names))),
        )

    def _find_or_bind(
        self, available: int, staged: Callable[[int], Mapping[str, TensorSpec]]
    ) -> PreparedInference:
        """Return the network for batches of one shape; it is bound when the first one comes."""
        shape = (available, tuple(staged(available).items()))
        about = (self._model, self._options, self._selection, available, staged, ignore_note)
        return self._bound.get(shape, lambda: bind_network(*about))
