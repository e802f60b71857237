"""`mxrun bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mxrun.cli.arguments import Batch, Config, Json, Overrides, PhaseName, Threads
from mxrun.cli.clock import process_start

Phase = Annotated[PhaseName, typer.Option(help="What a step is: training, or inference.")]
Steps = Annotated[int, typer.Option(min=1, metavar="N", help="Steps that are timed.")]
Warmup = Annotated[int, typer.Option(min=0, metavar="N", help="Steps before, beside the first.")]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the profiled steps for ui.perfetto.dev."),
]


def bench(
    config: Config,
    overrides: Overrides = None,
    phase: Phase = PhaseName.TRAIN,
    batch: Batch = None,
    threads: Threads = None,
    steps: Steps = 100,
    warmup: Warmup = 10,
    trace: Trace = None,
    json: Json = False,
) -> None:
    """Measure a network's steps and operators.

    On made-up records: no data is needed and nothing is saved. Whole steps are timed first; further
    steps, each with a clock beside every call, then say where the time goes. To measure a run on
    its own data, profile it: mxrun train CONFIG --profile.

    \b
    Examples:
      mxrun bench digits_lenet
      mxrun bench net.yaml --phase infer --batch 1 --threads 1
      mxrun bench net.yaml --steps 20 --trace step.json
      mxrun bench net.yaml --json
    """
    from mxrun import session
    from mxrun.config.bundled import find_config
    from mxrun.report.notes import write_notes
    from mxrun.report.result import write_json, write_tables
    from mxrun.report.trace import check_trace, write_trace

    started_at = process_start()
    path = find_config(config)
    if trace is not None:
        check_trace(trace)
    write_notes(session.notes())
    request = session.BenchRequest(phase.value, batch, threads, steps, warmup)
    report = session.bench(path, overrides or (), request, _say, started_at)
    if trace is not None:
        write_trace(trace, report.events())
    if json:
        write_json(report.to_json())
    else:
        from mxrun.report.profile import bench_tables

        write_tables(bench_tables(report.to_json()))


def _say(text: str) -> None:
    from mxrun.report.notes import write_notes

    write_notes((text,))
