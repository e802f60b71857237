"""`mxrun inspect-memory`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.limits import MAX_GENERATED
from mxrun.base.sizes import SIZE_FORM, parse_size
from mxrun.cli.arguments import (
    AllowPlugins,
    BatchOrMax,
    ConfigOrNone,
    Json,
    Overrides,
    Threads,
    batch_size,
)
from mxrun.cli.memory_problem import memory_problem

# Exit code for an arena above the limit: the command succeeded, the network is too large.
_ABOVE = 1
# Options that apply to networks, not to a file of blocks.
_FOR_NETWORKS = (
    *("CONFIG", "--phase", "--length", "--batch", "--threads", "--diff"),
    *("--svg", "--html", "--csv", "--fail-above", "--what-if"),
)


class PlannedPhase(str, Enum):
    """Planned phase: training with evaluation, inference, or the generation of text."""

    TRAIN = "train"
    INFER = "infer"
    GENERATE = "generate"


def _size(text: str) -> int:
    size = parse_size(text)
    if size is None:
        raise typer.BadParameter(f"{text!r} is not {SIZE_FORM}")
    return size


Phase = Annotated[
    PlannedPhase | None,
    typer.Option(
        help="Plan training with evaluation, inference, or the generation of text.",
        show_default=PlannedPhase.TRAIN.value,
    ),
]
Length = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_GENERATED,
        metavar="N",
        help="With --phase generate: tokens of a text, its prompt included.",
        show_default="the context",
    ),
]
WhatIf = Annotated[
    bool,
    typer.Option("--what-if", help="Plan other settings too: bytes saved and time added by each."),
]
Diff = Annotated[str | None, typer.Option(metavar="CONFIG", help="Compare with another config.")]
Svg = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the arena over the steps.")]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The drawing as a page that describes each block."),
]
Csv = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The blocks as an allocation problem in MiniMalloc's format."
    ),
]
FailAbove = Annotated[
    int | None,
    typer.Option(
        parser=_size,
        metavar="SIZE",
        help="Exit with 1 if CONFIG's arena is larger than SIZE, such as 2GiB.",
    ),
]
Problem = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Place the blocks of such a file instead of planning a network."
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="With --problem: search this long for the smallest arena. Ctrl-C ends the search "
        "with the best one found.",
    ),
]


def inspect_memory(
    config: ConfigOrNone = None,
    overrides: Overrides = None,
    phase: Phase = None,
    batch: BatchOrMax = None,
    threads: Threads = None,
    length: Length = None,
    allow_plugins: AllowPlugins = False,
    what_if: WhatIf = False,
    diff: Diff = None,
    svg: Svg = None,
    html: Html = None,
    csv: Csv = None,
    fail_above: FailAbove = None,
    problem: Problem = None,
    time_limit: TimeLimit = None,
    json: Json = False,
) -> None:
    """Show the memory of a run, exact to the byte.

    Needs no data: a run uses exactly the memory planned here. Shows the live bytes at each step,
    the live tensors at the peak with the reasons, the memory that could not be shared, and the
    measured memory of the process outside the plan. KEY=VALUE, --phase, --batch and --threads apply
    to the config of --diff too. Drawings and CSV show the phase that sets the size of the arena.

    \b
    Examples:
      mxrun inspect-memory digits_lenet
      mxrun inspect-memory net.yaml --phase infer --batch 1
      mxrun inspect-memory net.yaml data.batch_size=256 --threads 4
      mxrun inspect-memory net.yaml "memory.budget=512 MiB" --batch max
      mxrun inspect-memory gpt_tiny --phase generate --length 64
      mxrun inspect-memory net.yaml --what-if
      mxrun inspect-memory net.yaml --html arena.html --svg arena.svg
      mxrun inspect-memory old.yaml --diff new.yaml
      mxrun inspect-memory net.yaml --fail-above 2GiB
      mxrun inspect-memory net.yaml --json
      mxrun inspect-memory --problem blocks.csv --time-limit 60
    """
    from mxrun.report.notes import write_note
    from mxrun.report.status import status

    if problem is not None:
        given = (config, phase, length, batch, threads, diff, svg, html, csv, fail_above, what_if)
        options = zip(_FOR_NETWORKS, given, strict=True)
        unusable = [name for name, value in options if value not in (None, False)]
        memory_problem(problem, unusable, time_limit, json)
        return
    if time_limit is not None:
        raise UserError("--time-limit requires --problem FILE")
    config = _checked_config(config, diff, what_if)
    _check_phase(phase, length, what_if)
    with status(f"planning {config}"):
        from mxrun.commands import inspect_memory as command

        request = command.InspectRequest(
            (phase or PlannedPhase.TRAIN).value,
            batch_size(batch),
            threads,
            length,
            diff,
            what_if,
            {"--svg": svg, "--html": html, "--csv": csv},
            allow_plugins,
        )
        reports = command.inspect_configs(config, overrides or (), request, write_note)
    report, *others = (each.to_json() for each in reports)
    _write_files(report, svg, html, csv)
    _write_report(report, others[0] if others else None, json)
    _check_limit(report, fail_above)


def _checked_config(config: str | None, diff: str | None, what_if: bool) -> str:
    """Return the config.

    Raises UserError if there is none, or if two comparisons are requested at once.
    """
    if config is None:
        raise UserError(
            Diagnostic(
                "nothing to inspect: neither CONFIG nor --problem FILE is given",
                hint="mxrun inspect-memory net.yaml, or mxrun inspect-memory --problem blocks.csv",
            )
        )
    if what_if and diff is not None:
        raise UserError(
            Diagnostic(
                "--what-if cannot be combined with --diff: both change the baseline of the "
                "comparison",
                hint="give them one after the other, in two commands",
            )
        )
    return config


def _check_phase(phase: PlannedPhase | None, length: int | None, what_if: bool) -> None:
    """Raise UserError for options that the phase does not have."""
    if phase is PlannedPhase.GENERATE:
        if what_if:
            raise UserError("--what-if plans other settings of training and inference alone")
    elif length is not None:
        raise UserError("--length requires --phase generate")


def _write_report(report: dict[str, Any], other: Mapping[str, Any] | None, json: bool) -> None:
    """Write the report, and its comparison with another."""
    from mxrun.report.result import write_json, write_tables

    if other is not None:
        from mxrun.report.memory_difference import difference_tables, memory_difference

        report["diff"] = memory_difference(report, other)
    if json:
        write_json(report)
    elif other is not None:
        write_tables(difference_tables(report))
    else:
        from mxrun.report.memory import memory_tables

        write_tables(memory_tables(report))


def _check_limit(report: Mapping[str, Any], limit: int | None) -> None:
    """Raise Exit if the arena is larger than the limit."""
    if limit is not None and report["planned_bytes"] > limit:
        from mxrun.report.memory import above_limit_message
        from mxrun.report.notes import write_note

        write_note(above_limit_message(report, limit))
        raise typer.Exit(_ABOVE)


def _write_files(
    report: Mapping[str, Any], svg: Path | None, html: Path | None, csv: Path | None
) -> None:
    """Write the requested drawing, page and CSV file."""
    from mxrun.base.files import write_text
    from mxrun.report.notes import write_notes

    if svg is not None:
        from mxrun.report.memory_svg import memory_svg

        write_text(svg, memory_svg(report))
    if html is not None:
        from mxrun.report.memory_html import memory_html

        write_text(html, memory_html(report))
    if csv is not None:
        from mxrun.report.memory_csv import memory_csv

        write_text(csv, memory_csv(report))
    write_notes([f"wrote {path}" for path in (svg, html, csv) if path is not None])
