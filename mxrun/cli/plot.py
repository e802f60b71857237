"""`mxrun plot`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mxrun.base.errors import Diagnostic, UserError
from mxrun.cli.arguments import Json, RunsFolder

_ALL = "all"


def _depth(text: str) -> int:
    """Return a number of levels; no network has as many as stand for `all`."""
    if text == _ALL:
        return sys.maxsize
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise typer.BadParameter(f"{text!r} is neither a number from 1 on nor {_ALL!r}")
    return int(text)


Target = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="A config (file or bundled name) for its network, the folder or the name of a run "
        "for its learning curves, the name of an operator, or a symbol in MXNet's JSON "
        "(net-symbol.json).",
    ),
]
More = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN|KEY=VALUE",
        help="More runs to draw with the first, or overrides of the config, such as "
        "train.epochs=3.",
    ),
]
Svg = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write an SVG file instead of drawing in the terminal."),
]
Dot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a network in Graphviz's DOT language."),
]
Depth = Annotated[
    int | None,
    typer.Option(
        parser=_depth,
        metavar="N|all",
        help="Levels of a network's blocks to draw unfolded: of stage1/unit2/conv, 1 folds "
        "all of stage1 into one box, 2 folds stage1/unit2.",
        show_default="all in small networks, in large ones as many as fit a page or two",
    ),
]
Log = Annotated[
    bool | None,
    typer.Option(
        "--log/--linear",
        help="Axis of the curves' values.",
        show_default="logarithmic from two decades on",
    ),
]


def plot(
    target: Target,
    more: More = None,
    svg: Svg = None,
    dot: Dot = None,
    depth: Depth = None,
    log: Log = None,
    runs: RunsFolder = None,
    json: Json = False,
) -> None:
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

    settings = [text for text in more or () if "=" in text and not Path(text).exists()]
    targets = [target, *(text for text in more or () if text not in settings)]
    check_outputs({Path(each): "TARGET" for each in targets}, {"--svg": svg, "--dot": dot})
    report = command.plot(targets, settings, runs)
    if depth is not None and report["kind"] != "network":
        raise UserError(Diagnostic("--depth is for networks", hint="--log changes curves"))
    write_notes(report.get("notes", ()))
    if svg is not None:
        _write(svg, drawing(report, log, depth))
    if dot is not None:
        _write(dot, dot_text(report, depth))
    if json:
        write_json(report)
    elif svg is None and dot is None:
        write_tables(parts(report, log, depth))


def _write(file: Path, text: str) -> None:
    """Write a drawing and report its file."""
    from mxrun.base.files import write_text
    from mxrun.report.notes import write_note

    write_text(file, text)
    write_note(f"wrote {file}")
