"""`mxrun docs`."""

from __future__ import annotations

from mxrun.cli.registry import COMMANDS
from mxrun.options.reference import DocsOptions


@COMMANDS.register("docs", order=190)
def docs(options: DocsOptions) -> None:
    """Read the documentation.

    A page is formatted for the terminal, where it opens in $PAGER (q leaves it). In a pipe and in a
    file it is Markdown.

    \b
    Examples:
      mxrun docs
      mxrun docs first_network
      mxrun docs memory > memory.md
    """
    from mxrun.commands import docs as command
    from mxrun.report.docs import page_list, write_page
    from mxrun.report.result import write_json, write_tables

    if options.page is not None:
        found = command.page(options.page)
        if options.json:
            write_json(found.to_json())
        else:
            write_page(found.text)
        return
    rows = [(each.name, each.title) for each in command.pages()]
    if options.json:
        write_json({"pages": [{"name": name, "title": title} for name, title in rows]})
    else:
        write_tables([page_list(rows)])
