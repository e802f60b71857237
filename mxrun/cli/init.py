"""`mxrun init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mxrun.cli.arguments import Json


def init(
    source: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="A folder of images, a table (.csv, .tsv), an .npz archive, a text, lines of a "
            "label, a tab and a text, a folder with the files of MNIST or CIFAR, or digits, the "
            "bundled ones.",
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Config to write.", show_default="NAME.yaml"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the run.", show_default="that of the data"),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Label column of a table, by name or number from 0; of an archive, its array.",
            show_default="guessed",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the config.")] = False,
    json: Json = False,
) -> None:
    """Look at data and write a config that trains on it.

    Images are in a folder for each class, or in train and val (or test) with these folders. A table
    has one record a row. Network, image size, batch size and epochs follow from the data; comments
    in the config say why, and what to change. The same data gives the same config.

    \b
    Examples:
      mxrun init photos
      mxrun init measurements.csv --label species
      mxrun init book.txt
      mxrun init digits --to try.yaml
      mxrun init photos --name second --overwrite
    """
    from mxrun.commands import init as command
    from mxrun.report.result import write_json, write_tables

    request = command.InitRequest(source, to, name, label, overwrite)
    report = command.init(request).to_json()
    if json:
        write_json(report)
    else:
        from mxrun.report.init import init_tables

        write_tables(init_tables(report))
