"""Implementation of `infer`: a trained network on files, standard input or a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mxrun.session.inference import Inference, InferRequest, prepare_inference
from mxrun.session.max_batch_size import MAX
from mxrun.session.notes import Notify, ignore_note
from mxrun.session.planning import trust_plugins
from mxrun.session.result_arrays import result_arrays
from mxrun.session.trained_model import TrainedModel
from mxrun.train.run_directory import find_run

if TYPE_CHECKING:
    from mxrun.session.evaluation import EvaluateRequest

__all__ = ["InferRequest", "Inference", "infer", "result_arrays"]


def infer(run: str | Path, request: InferRequest, notify: Notify = ignore_note) -> Inference:
    """Prepare a run's network for the records that `request` names.

    run: the path of a run or of a checkpoint, or the name of a run in the folder of runs. notify:
    receives notes about long waits. Raises UserError for errors in the run, the checkpoint, names
    or the first records.
    """
    return prepare_inference(opened(run, request), request, notify)


def opened(run: str | Path, request: InferRequest | EvaluateRequest) -> TrainedModel:
    """Return the run's model that `request` selects, for its batch size, or 1 if that is `max`."""
    path = find_run(run, request.runs)
    if request.allow_plugins:
        trust_plugins(path)
    batch = 1 if request.batch == MAX else request.batch
    return TrainedModel.open(path, request.checkpoint, batch, request.allow_changes)
