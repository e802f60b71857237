"""`mxrun convert`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from mxrun.cli.arguments import AllowChanges, AllowPlugins, Json, Overrides, RunsFolder


class TargetFormat(str, Enum):
    """Target formats of a conversion."""

    ONNX = "onnx"


Source = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG|RUN", help="A config, the folder of a run or checkpoint, or a run's name."
    ),
]
To = Annotated[TargetFormat, typer.Option(help="Target format.")]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")]
CheckpointName = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH", help="Checkpoint of a run: best, newest or a step.", show_default="best"
    ),
]
OnlyBatch = Annotated[
    int | None,
    typer.Option(min=1, max=(1 << 31) - 1, metavar="N", help="Fix the batch size."),
]


def convert(
    source: Source,
    overrides: Overrides = None,
    *,
    to: To = TargetFormat.ONNX,
    output: Output,
    checkpoint: CheckpointName = None,
    batch: OnlyBatch = None,
    allow_changes: AllowChanges = False,
    allow_plugins: AllowPlugins = False,
    json: Json = False,
    runs: RunsFolder = None,
) -> None:
    """Write a network for other programs.

    Writes the inference graph with its parameters as ONNX, for batches of any size. A loss becomes
    its output in inference; Dropout is removed. From a config, the parameters are the initial ones.

    \b
    Examples:
      mxrun convert runs/digits_lenet --to onnx -o lenet.onnx
      mxrun convert net.yaml --to onnx -o net.onnx --batch 1
    """
    from mxrun.base.flags import runs_folder
    from mxrun.commands import convert as command
    from mxrun.report.notes import write_notes
    from mxrun.report.result import write_json, write_tables

    del to
    request = command.ConvertRequest(
        *(source, output, tuple(overrides or ()), checkpoint, batch, allow_changes, allow_plugins),
        runs=runs_folder(runs),
    )
    converted = command.convert(request)
    write_notes(converted.notes)
    if json:
        write_json(converted.to_json())
    else:
        from mxrun.report.convert import convert_tables

        write_tables(convert_tables(converted.to_json()))
