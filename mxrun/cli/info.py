"""`mxrun info`."""

from __future__ import annotations

from typing import Annotated

import typer

from mxrun.cli.arguments import Json


def info(
    clear_cache: Annotated[
        bool,
        typer.Option(
            "--clear-cache",
            help="Remove compiled code, measurements and plans; they are computed again.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Show versions, the processor, libraries and caches.

    \b
    Examples:
      mxrun info
      mxrun info --json
      mxrun info --clear-cache
    """
    from mxrun.commands import info as command
    from mxrun.report.info import cleared_text, info_parts
    from mxrun.report.result import write_json, write_tables

    report = command.clear_caches() if clear_cache else command.info()
    if json:
        write_json(report)
    else:
        write_tables([cleared_text(report)] if clear_cache else info_parts(report))
