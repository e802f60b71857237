"""`mxrun show`."""

from __future__ import annotations

import typer

from mxrun.cli.registry import COMMANDS
from mxrun.options.reference import ShowOptions


@COMMANDS.register("show", order=170, foreign={"show": "configs examples"})
def show(options: ShowOptions) -> None:
    """Print a bundled config, or list all of them.

    A bundled config is a start for one of your own: print it into a file and change that. With its
    name alone, `extends: NAME` builds on it without a copy.

    \b
    Examples:
      mxrun show
      mxrun show digits_lenet
      mxrun show resnet20_cifar10 > mine.yaml
      mxrun show resnet152_imagenet --resolved
    """
    from mxrun.commands import show as command
    from mxrun.report.result import write_json, write_tables, write_text

    if options.name is not None:
        text = command.text_of(options.name, options.resolved)
        if options.json:
            write_json({"name": options.name, "text": text})
        else:
            write_text(text)
        return
    if options.resolved:
        raise typer.BadParameter("--resolved needs the name of a config")
    rows = command.bundled()
    if options.json:
        write_json({"configs": [row.to_json() for row in rows]})
    else:
        from mxrun.report.bundled import bundled_table

        write_tables([bundled_table([row.to_json() for row in rows])])
