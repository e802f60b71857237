"""`mxrun check`."""

from __future__ import annotations

from mxrun.cli.registry import COMMANDS
from mxrun.options.check import CheckOptions


@COMMANDS.register("check", order=50, foreign={"check": "validate lint summary"})
def check(options: CheckOptions) -> None:
    """Check a config and show its layers.

    Needs no data. Reports all errors at once, each with its line and column. A correct config gives
    a table of the layers with their shapes, parameters and FLOPs.

    \b
    Examples:
      mxrun check digits_lenet
      mxrun check net.yaml data.batch_size=256
      mxrun check net.yaml --json
    """
    from mxrun.report.status import status

    with status(f"checking {options.config}"):
        from mxrun.commands import check as command
        from mxrun.report.result import write_json, write_tables

        report = command.check(
            options.config, overrides=options.overrides, allow_plugins=options.allow_plugins
        ).to_json()
    if options.json:
        write_json(report)
    else:
        from mxrun.report.tables import layer_table

        frozen = f"{report['trainable']:,} trainable, {report['frozen']:,} frozen"
        lines = [frozen] if report["frozen"] else []
        lines += [report["values"]] if report["values"] else []
        for figure, (layer, label) in report["metrics"].items():
            lines.append(f"{figure}: {layer} compared with {label}")
        if report["carried"]:
            states = (f"{name} {list(shape)}" for name, shape in report["carried"].items())
            lines.append(f"carried from batch to batch: {', '.join(states)}")
        write_tables([layer_table(report), *lines])
