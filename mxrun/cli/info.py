"""`mxrun info`."""

from __future__ import annotations

from mxrun.cli.registry import COMMANDS
from mxrun.options.reference import InfoOptions


@COMMANDS.register("info", order=160, foreign={"info": "version doctor cache env"})
def info(options: InfoOptions) -> None:
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

    report = command.clear_caches() if options.clear_cache else command.info()
    if options.json:
        write_json(report)
    else:
        write_tables([cleared_text(report)] if options.clear_cache else info_parts(report))
