"""Implementation of `evaluate`: loss, metrics, figures of each class and the worst records."""

from __future__ import annotations

from pathlib import Path

from mxrun.session.data_part import DataPart
from mxrun.session.evaluation import (
    EvaluateRequest,
    Evaluation,
    EvaluationRun,
    prepare_evaluation,
)
from mxrun.session.max_batch_size import MAX
from mxrun.session.notes import Notify, ignore_note
from mxrun.session.planning import trust_plugins
from mxrun.session.trained_model import TrainedModel
from mxrun.train.run_directory import find_run

__all__ = ["DataPart", "EvaluateRequest", "Evaluation", "EvaluationRun", "evaluate"]


def evaluate(
    run: str | Path, request: EvaluateRequest, notify: Notify = ignore_note
) -> EvaluationRun:
    """Prepare the evaluation of a run on the records that `request` names.

    run: the path of a run or of a checkpoint, or the name of a run in the folder of runs. notify:
    receives notes about long waits. Raises UserError for errors in the run, the checkpoint, names
    or records.
    """
    path = find_run(run, request.runs)
    if request.allow_plugins:
        trust_plugins(path)
    batch = 1 if request.batch == MAX else request.batch
    trained = TrainedModel.open(path, request.checkpoint, batch, request.allow_changes)
    return prepare_evaluation(trained, request, notify)
