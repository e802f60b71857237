"""`mxrun inspect-memory`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.sizes import SIZE_FORM, parse_size
from mxrun.cli.arguments import (
    AllowPlugins,
    BatchOrMax,
    ConfigOrNone,
    Json,
    Overrides,
    PhaseName,
    Threads,
    batch_size,
)
from mxrun.cli.memory_problem import memory_problem

# Exit code for an arena above the limit: the command succeeded, the network is too large.
_ABOVE = 1
# Options that apply to networks, not to a file of blocks.
_FOR_NETWORKS = (
    *("CONFIG", "--phase", "--batch", "--threads", "--diff"),
    *("--svg", "--html", "--csv", "--fail-above", "--what-if"),
)


def _size(text: str) -> int:
    size = parse_size(text)
    if size is None:
        raise typer.BadParameter(f"{text!r} is not {SIZE_FORM}")
    return size


def inspect_memory(
    config: ConfigOrNone = None,
    overrides: Overrides = None,
    phase: Annotated[
        PhaseName | None,
        typer.Option(
            help="Plan training with evaluation, or inference.",
            show_default=PhaseName.TRAIN.value,
        ),
    ] = None,
    batch: BatchOrMax = None,
    threads: Threads = None,
    allow_plugins: AllowPlugins = False,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if", help="Plan other settings too: bytes saved and time added by each."
        ),
    ] = False,
    diff: Annotated[
        str | None,
        typer.Option(metavar="CONFIG", help="Compare with another config."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the arena over the steps.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The drawing as a page that describes each block."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The blocks as an allocation problem in MiniMalloc's format."
        ),
    ] = None,
    fail_above: Annotated[
        int | None,
        typer.Option(
            parser=_size,
            metavar="SIZE",
            help="Exit with 1 if CONFIG's arena is larger than SIZE, such as 2GiB.",
        ),
    ] = None,
    problem: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Place the blocks of such a file instead of planning a network."
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="With --problem: search this long for the smallest arena. Ctrl-C ends the search "
            "with the best one found.",
        ),
    ] = None,
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
      mxrun inspect-memory net.yaml --what-if
      mxrun inspect-memory net.yaml --html arena.html --svg arena.svg
      mxrun inspect-memory old.yaml --diff new.yaml
      mxrun inspect-memory net.yaml --fail-above 2GiB
      mxrun inspect-memory net.yaml --json
      mxrun inspect-memory --problem blocks.csv --time-limit 60
    """
    from mxrun.config.bundled import find_config
    from mxrun.report.notes import write_note, write_notes
    from mxrun.report.result import write_json, write_tables
    from mxrun.session import planning
    from mxrun.session.planning import notes

    if problem is not None:
        given = (config, phase, batch, threads, diff, svg, html, csv, fail_above, what_if or None)
        options = zip(_FOR_NETWORKS, given, strict=True)
        unfit = [name for name, value in options if value is not None]
        memory_problem(problem, unfit, time_limit, json)
        return
    if time_limit is not None:
        raise UserError("--time-limit requires --problem FILE")
    _check_networks(config, diff, what_if)
    names = [name for name in (config, diff) if name is not None]
    paths = [find_config(name) for name in names]
    if allow_plugins:
        for path in paths:
            planning.allow_plugins(path, overrides or ())
    _check_files(paths, {"--svg": svg, "--html": html, "--csv": csv})
    write_notes(notes())
    # Memory outside the plan is measured for one network only: the kernels of a second one would
    # already be bound in this process.
    alone, planned = diff is None, (phase or PhaseName.TRAIN).value
    asked = (overrides or (), planned, batch_size(batch), threads, write_note, alone, what_if)
    named = names if diff is not None else [""]
    report, *others = (_inspected(*each, asked) for each in zip(paths, named, strict=True))
    _write_files(report, svg, html, csv)
    if others:
        from mxrun.report.memory_difference import difference_tables, memory_difference

        report["diff"] = memory_difference(report, others[0])
    if json:
        write_json(report)
    elif others:
        write_tables(difference_tables(report))
    else:
        from mxrun.report.memory import memory_tables

        write_tables(memory_tables(report))
    if fail_above is not None and report["planned_bytes"] > fail_above:
        from mxrun.report.memory import above_limit_message

        write_note(above_limit_message(report, fail_above))
        raise typer.Exit(_ABOVE)


def _check_networks(config: str | None, diff: str | None, what_if: bool) -> None:
    """Raise UserError if no network is given, or two comparisons are requested at once."""
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


def _inspected(config: Path, name: str, asked: Sequence[Any]) -> dict[str, Any]:
    """Return the report of one config. A non-empty `name` is added to the context of its errors."""
    from mxrun.commands import inspect_memory as command

    try:
        return command.inspect_memory(config, *asked).to_json()
    except UserError as error:
        if not name:
            raise
        first, *others = error.diagnostics
        because = (f"{name} is planned", *first.chain)
        raise UserError([replace(first, chain=because), *others]) from error


def _check_files(configs: Sequence[Path], asked: Mapping[str, Path | None]) -> None:
    """Raise UserError for an output file that is a config, another output file, or not writable.

    Runs before planning, which may take long.
    """
    from mxrun.base.files import check_writable

    seen = {config.resolve(): "CONFIG" for config in configs}
    for option, path in asked.items():
        if path is not None:
            first = seen.setdefault(path.resolve(), option)
            if first != option:
                raise UserError(
                    f"{first} and {option} name the same file, {path}: use different files"
                )
    check_writable(*asked.values())


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
