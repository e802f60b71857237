"""`mxrun info`."""

from __future__ import annotations

import typer

from mxrun.base.errors import UserError
from mxrun.cli.registry import COMMANDS
from mxrun.options.reference import InfoOptions

# The device does not do what mxrun needs.
_FAILED = 1


@COMMANDS.register("info", order=160, foreign={"info": "version doctor cache env"})
def info(options: InfoOptions) -> None:
    """Show versions, the processor, libraries and caches, or check a device.

    --check asks a device one thing after the other and compares the answers with the CPU's: first
    memory, copies, compiled loops, graphs and times, then every operator, then steps of whole
    networks. It takes some minutes. Its report has all that is needed to find a fault without the
    device, and exit code 1 says that there is one.

    \b
    Examples:
      mxrun info
      mxrun info --json
      mxrun info --check gpu:0
      mxrun info --check gpu:0 --output report.json
      mxrun info --clear-cache
    """
    from mxrun.commands import info as command
    from mxrun.report.info import cleared_text, info_parts
    from mxrun.report.result import write_json, write_tables

    if options.check is not None:
        _check(options, options.check)
        return
    if options.check_after is not None or options.output is not None:
        raise UserError("--check-after and --output require --check CONTEXT")
    report = command.clear_caches() if options.clear_cache else command.info()
    if options.json:
        write_json(report)
    else:
        write_tables([cleared_text(report)] if options.clear_cache else info_parts(report))


def _check(options: InfoOptions, context: str) -> None:
    """Check a device, write the report, and exit with 1 if the device failed."""
    from mxrun.base.files import check_outputs
    from mxrun.commands.device_check import check_device, write_report
    from mxrun.report.device_check import check_parts, check_progress
    from mxrun.report.result import write_json, write_tables

    check_outputs({}, {"--output": options.output})
    with check_progress() as progress:
        report = check_device(context, options.check_after, progress)
    if options.output is not None:
        write_report(report, options.output)
    if options.json:
        write_json(report)
    else:
        write_tables(check_parts(report))
    if not report["passed"]:
        raise typer.Exit(_FAILED)
