"""`mxrun convert`."""

from __future__ import annotations

from mxrun.cli.registry import COMMANDS
from mxrun.options.convert import ConvertOptions


@COMMANDS.register("convert", order=80, foreign={"convert": "export save"})
def convert(options: ConvertOptions) -> None:
    """Write a network for other programs, as ONNX.

    Writes the inference graph with its parameters, for batches of any size. A loss becomes
    its output in inference; Dropout is removed. From a config, the parameters are the initial ones.

    \b
    Examples:
      mxrun convert runs/digits_lenet -o lenet.onnx
      mxrun convert net.yaml -o net.onnx --batch 1
    """
    from mxrun.commands import convert as command
    from mxrun.report.notes import write_notes
    from mxrun.report.result import write_json, write_tables

    converted = command.convert(options)
    write_notes(converted.notes)
    if options.json:
        write_json(converted.to_json())
    else:
        from mxrun.report.convert import convert_tables

        write_tables(convert_tables(converted.to_json()))
