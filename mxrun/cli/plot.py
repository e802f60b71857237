"""`mxrun plot`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mxrun.cli.arguments import Json, Overrides


def plot(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A config (file or bundled name) for its network, a run's folder for its learning "
            "curves, or the name of an operator.",
        ),
    ],
    overrides: Overrides = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an SVG file instead of drawing in the terminal."),
    ] = None,
    json: Json = False,
) -> None:
    """Draw a network, an operator, or the learning curves of a run.

    In the terminal each row is a node. The lines to its left are tensors that lead to the nodes
    that read them. KEY=VALUE overrides the config, or sets parameters of the operator.

    \b
    Examples:
      mxrun plot digits_lenet
      mxrun plot net.yaml data.batch_size=1 --svg net.svg
      mxrun plot runs/digits_lenet
      mxrun plot runs/digits_lenet --svg curves.svg
      mxrun plot Convolution no_bias=true
    """
    from mxrun.base.files import check_writable
    from mxrun.commands import plot as command
    from mxrun.report.notes import write_notes
    from mxrun.report.result import write_json

    check_writable(svg)
    report = command.plot(what, overrides or ())
    write_notes(report.get("notes", ()))
    if svg is not None:
        from mxrun.base.files import write_text
        from mxrun.report.plot import drawing

        write_text(svg, drawing(report))
        write_notes([f"wrote {svg}"])
    if json:
        write_json(report)
    elif svg is None:
        from mxrun.report.plot import parts
        from mxrun.report.result import write_tables

        write_tables(parts(report))
