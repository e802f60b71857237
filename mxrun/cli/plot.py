"""`mxrun plot`."""

from __future__ import annotations

from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError
from mxrun.cli.registry import COMMANDS
from mxrun.options.runs import PlotOptions


@COMMANDS.register("plot", order=130, foreign={"plot": "draw visualize"})
def plot(options: PlotOptions) -> None:
    """Draw a network, an operator, or the learning curves of runs.

    In the terminal each row of a network is a node. The lines to its left are tensors that lead to
    the nodes that read them. Large networks are drawn with their blocks folded, equal blocks in a
    row as one. KEY=VALUE overrides the config, or sets parameters of the operator.
    Figures with the same values share a panel of curves, and the learning rate has one if it
    changes.

    \b
    Examples:
      mxrun plot digits_lenet
      mxrun plot net.yaml data.batch_size=1 --svg net.svg
      mxrun plot net.yaml --dot net.dot
      mxrun plot resnet50_imagenet --depth 1
      mxrun plot resnet50_imagenet --depth all --svg resnet50.svg
      mxrun plot runs/digits_lenet
      mxrun plot runs/digits_lenet --svg curves.svg --log
      mxrun plot runs/first runs/second
      mxrun plot Convolution no_bias=true
      mxrun plot net-symbol.json
    """
    from mxrun.base.files import check_outputs
    from mxrun.commands import plot as command
    from mxrun.report.notes import write_notes
    from mxrun.report.plot import dot_text, drawing, parts
    from mxrun.report.result import write_json, write_tables

    settings = [text for text in options.more if "=" in text and not Path(text).exists()]
    targets = [options.target, *(text for text in options.more if text not in settings)]
    svg, dot, depth = options.svg, options.dot, options.depth
    check_outputs({Path(each): "TARGET" for each in targets}, {"--svg": svg, "--dot": dot})
    report = command.plot(targets, settings, options.runs)
    if depth is not None and report["kind"] != "network":
        raise UserError(Diagnostic("--depth is for networks", hint="--log changes curves"))
    write_notes(report.get("notes", ()))
    if svg is not None:
        _write(svg, drawing(report, options.log, depth))
    if dot is not None:
        _write(dot, dot_text(report, depth))
    if options.json:
        write_json(report)
    elif svg is None and dot is None:
        write_tables(parts(report, options.log, depth))


def _write(file: Path, text: str) -> None:
    """Write a drawing and report its file."""
    from mxrun.base.files import write_text
    from mxrun.report.notes import write_note

    write_text(file, text)
    write_note(f"wrote {file}")
