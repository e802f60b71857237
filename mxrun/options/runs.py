"""Options of `mxrun runs` and `mxrun plot`."""

import sys
from dataclasses import field
from pathlib import Path
from typing import Annotated

from mxrun.base.dataclass import dataclass
from mxrun.base.flags import runs_folder
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import Json, RunsFolder

_ALL = "all"


@dataclass(frozen=True, kw_only=True)
class RunsOptions:
    """Options of the list of runs, and of their comparison."""

    names: Annotated[
        tuple[str, ...], Positional("Runs to compare: their names or folders.", "RUN")
    ] = ()
    runs: RunsFolder = field(default_factory=runs_folder)
    sort: Annotated[
        str | None,
        Option(
            "Sort by the best value of a metric, the best run first.",
            "METRIC",
            usual="by time, newest last",
        ),
    ] = None
    json: Json = False


def _depth(text: str) -> int:
    """Return a number of levels; no network has as many as stand for `all`."""
    if text == _ALL:
        return sys.maxsize
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(f"{text!r} is neither a number from 1 on nor {_ALL!r}")
    return int(text)


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """Options of a drawing."""

    target: Annotated[
        str,
        Positional(
            "A config (file or bundled name) for its network, the folder or the name of a run "
            "for its learning curves, the name of an operator, or a symbol in MXNet's JSON "
            "(net-symbol.json).",
            "WHAT",
        ),
    ]
    more: Annotated[
        tuple[str, ...],
        Positional(
            "More runs to draw with the first, or overrides of the config, such as train.epochs=3.",
            "RUN|KEY=VALUE",
        ),
    ] = ()
    svg: Annotated[
        Path | None, Option("Write an SVG file instead of drawing in the terminal.", "FILE")
    ] = None
    dot: Annotated[Path | None, Option("Write a network in Graphviz's DOT language.", "FILE")] = (
        None
    )
    depth: Annotated[
        int | None,
        Option(
            "Levels of a network's blocks to draw unfolded: of stage1/unit2/conv, 1 folds "
            "all of stage1 into one box, 2 folds stage1/unit2.",
            "N|all",
            usual="all in small networks, in large ones as many as fit a page or two",
            parse=_depth,
        ),
    ] = None
    log: Annotated[
        bool | None,
        Option(
            "Axis of the curves' values.",
            usual="logarithmic from two decades on",
            flags=("--log/--linear",),
        ),
    ] = None
    runs: RunsFolder = field(default_factory=runs_folder)
    json: Json = False
