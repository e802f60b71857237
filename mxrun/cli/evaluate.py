"""`mxrun evaluate`."""

from __future__ import annotations

import typer

from mxrun.cli.registry import COMMANDS
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.shared import divide_settings


@COMMANDS.register("evaluate", order=30, foreign={"evaluate": "eval test score metrics confusion"})
def evaluate(options: EvaluateOptions) -> None:
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
    from mxrun.commands import evaluate as command
    from mxrun.report.evaluation import evaluation_tables
    from mxrun.report.infer import progress_callback, work_text
    from mxrun.report.notes import write_note, write_notes
    from mxrun.report.result import write_json, write_tables

    paths, _ = divide_settings(options.records)
    if len(paths) > 1:
        raise typer.BadParameter(
            f"one path can be evaluated at a time, not {len(paths)}: {', '.join(paths)}"
        )
    prepared = command.evaluate(options, write_note)
    write_notes(prepared.notes)
    with progress_callback(prepared.total, True) as advance:
        evaluation = prepared.run(advance)
    if options.json:
        write_json(evaluation.to_json())
    else:
        write_tables(evaluation_tables(evaluation.to_json()))
    write_notes([note for note in evaluation.notes if note not in prepared.notes])
    write_notes([work_text({**evaluation.to_json(), "metrics": None})])
