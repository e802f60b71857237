"""`mxrun evaluate`."""

from __future__ import annotations

from typing import Annotated

import typer

from mxrun.cli.arguments import (
    AllowChanges,
    AllowPlugins,
    BatchOrMax,
    CheckpointName,
    Json,
    Precision,
    RunFolder,
    RunsFolder,
    Threads,
    batch_size,
    divide_settings,
)

Records = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH|KEY=VALUE",
        help="Other records than the run's: a folder or file in place of the data set's path, and "
        "other keys of the data section. A text file of rows file,label lists images.",
        show_default="the run's data.eval",
    ),
]
SplitName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Another part of the data: train, eval, or a split of the data set.",
        show_default="eval",
    ),
]
Errors = Annotated[
    int,
    typer.Option(
        min=0, max=100_000, metavar="N", help="Show the N records with the worst results."
    ),
]


def evaluate(
    run: RunFolder,
    records: Records = None,
    split: SplitName = None,
    errors: Errors = 0,
    checkpoint: CheckpointName = None,
    batch: BatchOrMax = None,
    threads: Threads = None,
    precision: Precision = None,
    allow_changes: AllowChanges = False,
    allow_plugins: AllowPlugins = False,
    json: Json = False,
    runs: RunsFolder = None,
) -> None:
    """Measure a trained network on records with labels.

    Shows the loss, the metrics of the config and the usual ones, precision, recall and F1 of each
    class, and which classes are confused; for regressions the errors of each output. Records are
    prepared as in the run's own evaluations. Classes are those of training, by name.

    \b
    Examples:
      mxrun evaluate digits_lenet
      mxrun evaluate runs/digits_lenet --split train --errors 10
      mxrun evaluate photos photos/test
      mxrun evaluate photos labels.csv
      mxrun evaluate flowers dataset=csv path=new.csv label=kind header=true
    """
    from mxrun.base.flags import runs_folder
    from mxrun.commands import evaluate as command
    from mxrun.report.evaluation import evaluation_tables
    from mxrun.report.infer import progress_callback, work_text
    from mxrun.report.notes import write_note, write_notes
    from mxrun.report.result import write_json, write_tables

    paths, settings = divide_settings(records or ())
    if len(paths) > 1:
        raise typer.BadParameter(
            f"one path can be evaluated at a time, not {len(paths)}: {', '.join(paths)}"
        )
    data = command.DataPart(split, paths[0] if paths else None, tuple(settings))
    request = command.EvaluateRequest(
        data,
        errors,
        checkpoint,
        batch_size(batch),
        threads,
        precision=precision.value if precision else None,
        allow_changes=allow_changes,
        allow_plugins=allow_plugins,
        runs=runs_folder(runs),
    )
    prepared = command.evaluate(run, request, write_note)
    write_notes(prepared.notes)
    with progress_callback(prepared.total, True) as advance:
        evaluation = prepared.run(advance)
    if json:
        write_json(evaluation.to_json())
    else:
        write_tables(evaluation_tables(evaluation.to_json()))
    write_notes([note for note in evaluation.notes if note not in prepared.notes])
    write_notes([work_text({**evaluation.to_json(), "metrics": None})])
