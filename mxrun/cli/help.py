"""`mxrun help`."""

from __future__ import annotations

import typer

from mxrun.base.docstrings import docstring
from mxrun.cli.command_group import command_of
from mxrun.cli.registry import COMMANDS, names_in
from mxrun.options.reference import HelpOptions


@COMMANDS.register("help", order=200, foreign={"help": "explain reference man"})
def help_(context: typer.Context, options: HelpOptions) -> None:
    """Explain a key of a config: what it means and accepts, its default, an example.

    The last part of a key is enough; if it has several meanings, they are listed, and for any other
    word the keys that have to do with it. `mxrun help COMMAND` shows the help of a command.

    \b
    Examples:
      mxrun help
      mxrun help data.train.transforms.normalize
      mxrun help momentum
      mxrun help learning_rate
      mxrun help optimizers
      mxrun help Convolution.num_filter
      mxrun help memory.budget --json
    """
    from mxrun.commands import help as command
    from mxrun.report.reference import overview_parts, report_parts
    from mxrun.report.result import write_json, write_tables

    commands = {name: docstring(COMMANDS.get(name)).split("\n")[0] for name in names_in("")}
    if not options.key:
        overview = {**command.overview(), "commands": commands}
        if options.json:
            write_json(overview)
        else:
            write_tables(overview_parts(overview))
        return
    report = command.explain(" ".join(options.key), commands)
    if options.json:
        write_json(report)
        return
    write_tables(report_parts(report))
    if report.get("candidates") == [] and len(report["commands"]) == 1:
        (name,) = report["commands"]
        named = command_of(name)
        typer.echo(named.get_help(type(context)(named, info_name=name, parent=context.parent)))
