"""`mxrun init`."""

from __future__ import annotations

from mxrun.cli.registry import COMMANDS
from mxrun.options.init import InitOptions


@COMMANDS.register("init", order=10, foreign={"init": "new create"})
def init(options: InitOptions) -> None:
    """Look at data and write a config that trains on it.

    Images are in a folder for each class, or in train and val (or test) with these folders. A table
    has one record a row, or is a series if its rows are in order of time. Network, image size,
    batch size and epochs follow from the data; comments in the config say why, and what to change.
    The same data gives the same config.

    \b
    Examples:
      mxrun init photos
      mxrun init measurements.csv --label species
      mxrun init export.csv decimal=, encoding=cp1252
      mxrun init load.csv --as series season=24
      mxrun init messages.tsv --as text
      mxrun init book.txt
      mxrun init digits --to try.yaml
      mxrun init photos --from resnet50_imagenet --weights resnet50.safetensors
      mxrun init photos --name second --overwrite
    """
    from mxrun.commands import init as command
    from mxrun.report.result import write_json, write_tables

    report = command.init(options).to_json()
    if options.json:
        write_json(report)
    else:
        from mxrun.report.init import init_tables

        write_tables(init_tables(report))
