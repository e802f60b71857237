"""`mxrun help`."""

from __future__ import annotations

import inspect

import typer

from mxrun.options.reference import HelpOptions


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

    group = context.parent.command.commands  # type: ignore[union-attr]
    commands = {
        name: inspect.cleandoc(each.help or "").split("\n")[0] for name, each in group.items()
    }
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
        parent = context.parent
        typer.echo(group[name].get_help(type(context)(group[name], info_name=name, parent=parent)))
