"""Implementation of `evaluate`: loss, metrics, figures of each class and the worst records."""

from __future__ import annotations

from pathlib import Path

from mxrun.commands.infer import opened
from mxrun.session.data_part import DataPart
from mxrun.session.evaluation import (
    EvaluateRequest,
    Evaluation,
    EvaluationRun,
    prepare_evaluation,
)
from mxrun.session.notes import Notify, ignore_note

__all__ = ["DataPart", "EvaluateRequest", "Evaluation", "EvaluationRun", "evaluate"]


def evaluate(
    run: str | Path, request: EvaluateRequest, notify: Notify = ignore_note
) -> EvaluationRun:
    """Prepare the evaluation of a run on the records that `request` names.

    run: the path of a run or of a checkpoint, or the name of a run in the folder of runs. notify:
    receives notes about long waits. Raises UserError for errors in the run, the checkpoint, names
    or records.
    """
    return prepare_evaluation(opened(run, request), request, notify)
