"""Opening of a training run: its data, its plan, and its memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mxrun.base.errors import UserError
from mxrun.frontend import ModelDefinition, check_labels
from mxrun.graph.phases import TRAIN
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets
from mxrun.preparation.budget import budget_notes
from mxrun.preparation.device import context_notes, describe, host_body_notes, kind_of
from mxrun.preparation.micro_batches import micro_batch_notes, planned
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.preparation.planning import is_timed
from mxrun.preparation.record_order import carried_notes
from mxrun.run.run import Run
from mxrun.runtime.ranks import RankGroup
from mxrun.train.checkpoint import PlanRecord


def open_run(
    built: ModelDefinition,
    runs: Path,
    notify: Notify = ignore_note,
    saved: PlanRecord | None = None,
    datasets: Mapping[str, Dataset] | None = None,
    ranks: RankGroup | None = None,
) -> Run:
    """Open the data, plan, and allocate; the run is not initialised.

    runs: the folder of runs. saved: the plan of a resumed run. On the same kind of device its
    kernels are used again if they were autotuned, because times may have changed, and so are the
    plans of its library. datasets: the data if they are open already. ranks: the processes that
    train together.
    """
    if built.missing:
        raise UserError(built.missing)
    if datasets is None:
        datasets = open_datasets(built.data, built.model.records)
    check_labels(built, datasets.values())
    if saved is not None and saved.device != describe(built.options, 1).family:
        saved = None
    autotuned = None
    if saved is not None and is_timed(built):
        autotuned = {TRAIN: saved.implementations, **saved.others}
    with kind_of(built.options).adopting({} if saved is None else saved.kernel_plans):
        planned_run = planned(built, training=True, notify=notify, autotuned=autotuned)
    read = dict.fromkeys(note for dataset in datasets.values() for note in dataset.notes)
    plan_notes = (
        *micro_batch_notes(planned_run),
        *budget_notes(planned_run.plan),
        *host_body_notes(planned_run.plan),
    )
    built_notes = (
        *context_notes(planned_run.built),
        *carried_notes(planned_run.built, datasets["train"]),
    )
    for note in (*read, *built_notes, *plan_notes):
        notify(note)
    run = Run(planned_run.built, planned_run.plan, datasets, runs, ranks)
    weighting = built.training.class_weights
    if weighting is not None and run.class_weights is not None:
        notify(weighting.note(run.class_weights, datasets["train"]))
    return run
