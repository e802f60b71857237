"""`mxrun inspect-memory`."""

from __future__ import annotations

from typing import Annotated

import typer

from mxrun.cli.arguments import Batch, Config, Json, Overrides, PhaseName, Threads


def inspect_memory(
    config: Config,
    overrides: Overrides = None,
    phase: Annotated[
        PhaseName, typer.Option(help="What is planned: training with evaluation, or inference.")
    ] = PhaseName.TRAIN,
    batch: Batch = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Show to the byte what memory a run takes.

    Needs no data: what a run touches is what is planned here. Says how much is alive at each step,
    what at the peak and why, which memory could not be shared, and, measured, what the process
    takes outside of the plan.

    \b
    Examples:
      mxrun inspect-memory digits_lenet
      mxrun inspect-memory net.yaml --phase infer --batch 1
      mxrun inspect-memory net.yaml data.batch_size=256 --threads 4
      mxrun inspect-memory net.yaml --json
    """
    from mxrun import session
    from mxrun.config.bundled import find_config
    from mxrun.report.notes import write_note, write_notes
    from mxrun.report.result import write_json, write_tables

    path = find_config(config)
    write_notes(session.notes())
    found = session.inspect_memory(path, overrides or (), phase.value, batch, threads, write_note)
    report = found.to_json()
    if json:
        write_json(report)
    else:
        from mxrun.report.memory import memory_tables

        write_tables(memory_tables(report))
