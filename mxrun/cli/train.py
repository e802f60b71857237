"""`mxrun train`."""

from __future__ import annotations

from typing import Annotated

import typer

from mxrun.cli.arguments import Config, Json, Overrides
from mxrun.cli.clock import process_start


def train(
    config: Config,
    overrides: Overrides = None,
    json: Json = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run of the same name.")
    ] = False,
) -> None:
    """Train a network into runs/NAME.

    The folder gets the resolved config, metrics, a checkpoint and a summary.

    \b
    Examples:
      mxrun train digits_lenet
      mxrun train net.yaml train.epochs=3 name=short
      mxrun train net.yaml --json --overwrite > summary.json
    """
    from mxrun import session
    from mxrun.config.bundled import find_config
    from mxrun.report.notes import write_notes
    from mxrun.report.progress import watching
    from mxrun.report.result import write_json, write_tables

    started_at = process_start()
    path = find_config(config)
    write_notes(session.notes())
    with watching() as observer:
        summary = session.train(path, overrides or (), observer, overwrite, started_at).to_json()
    if json:
        write_json(summary)
    else:
        from mxrun.report.tables import train_table

        write_tables([train_table(summary)])
