"""`mxrun pack`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from mxrun.cli.registry import COMMANDS
from mxrun.options.pack import PackOptions

if TYPE_CHECKING:
    from mxrun.commands import pack as command


@COMMANDS.register("pack", order=90, foreign={"pack": "im2rec shard recordio"})
def pack(options: PackOptions) -> None:
    """Pack images into few large files, which are faster to read than many small ones.

    RecordIO files are those of MXNet, with an index (.idx), a list (.lst) and the names of the
    classes (.classes); tar files have the layout of WebDataset. Images are decoded to check them.
    At the end everything is read back and compared. A pack that was stopped or killed continues
    with the same command, and its files have the same bytes. Exit code 75 after Ctrl-C.

    \b
    Examples:
      mxrun pack photos photos.rec
      mxrun pack photos val.rec --split val --resize 256 --quality 90
      mxrun pack labels.csv train.tar --shard-size '256 MiB' --shuffle
      mxrun pack net.yaml train.rec --shards 16 data.train.path=photos
      mxrun pack digits_lenet digits.rec --encoding raw
    """
    from mxrun.commands import pack as command
    from mxrun.report.status import status

    if options.channels not in (None, 1, 3):
        raise typer.BadParameter(
            f"--channels {options.channels} is neither 1 (grey) nor 3 (colour)"
        )
    form = command.form_of(options.out, options.form)
    with status(f"reading {options.source}"):
        job = command.prepare(options, form)
    _run(job, options.json)


def _run(job: command.PackJob, json: bool) -> None:
    """Pack, and write the report."""
    from mxrun.report.infer import progress_callback
    from mxrun.report.notes import write_notes
    from mxrun.report.pack import pack_parts
    from mxrun.report.result import write_json, write_tables

    write_notes(job.notes)
    with progress_callback(job.total, True) as advance:
        report = job.run(advance).to_json()
    if json:
        write_json(report)
    else:
        write_tables(pack_parts(report))
