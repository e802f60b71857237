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
    ConfigOrNone,
    Json,
    LargestBatch,
    Overrides,
    PhaseName,
    Threads,
    batch_size,
)
from mxrun.cli.memory_problem import memory_problem

# The exit code for an arena above the limit: the report is good, and the network is not.
_ABOVE = 1
# What says something of networks, and nothing of a file of blocks.
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
            help="What is planned: training with evaluation, or inference.",
            show_default=PhaseName.TRAIN.value,
        ),
    ] = None,
    batch: LargestBatch = None,
    threads: Threads = None,
    allow_plugins: AllowPlugins = False,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if", help="Plan other settings too: what they save, and what they take."
        ),
    ] = False,
    diff: Annotated[
        str | None,
        typer.Option(metavar="CONFIG", help="Another config to hold against this one."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the arena over the steps.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The drawing as a page that tells what one points at."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The blocks as a problem in MiniMalloc's format."),
    ] = None,
    fail_above: Annotated[
        int | None,
        typer.Option(
            parser=_size,
            metavar="SIZE",
            help="Exit with 1 where CONFIG's arena is larger, such as 2GiB.",
        ),
    ] = None,
    problem: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Place the blocks of such a problem, and nothing else."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="With --problem: search on for so long, for the smallest arena. Ctrl-C ends it "
            "with the best found.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show to the byte what memory a run takes.

    Needs no data: what a run touches is what is planned here. Says how much is alive at each step,
    what at the peak and why, which memory could not be shared, and, measured, what the process
    takes outside of the plan. KEY=VALUE, --phase, --batch and --threads are for --diff's config
    too. Drawings and problem are those of the phase that sets the arena's size.

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
        raise UserError("--time-limit goes with --problem")
    _check_networks(config, diff, what_if)
    names = [name for name in (config, diff) if name is not None]
    paths = [find_config(name) for name in names]
    if allow_plugins:
        for path in paths:
            planning.allow_plugins(path, overrides or ())
    _check_files(paths, {"--svg": svg, "--html": html, "--csv": csv})
    write_notes(notes())
    # A process that has bound one network's kernels shows nothing of what another's take.
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
        from mxrun.report.memory import too_large

        write_note(too_large(report, fail_above))
        raise typer.Exit(_ABOVE)


def _check_networks(config: str | None, diff: str | None, what_if: bool) -> None:
    """Raise UserError where no network is given, or two ways to compare it."""
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
    """The report of one config; with a name, what is wrong with it says whose fault it is."""
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
    """Raise UserError for a file that would take the place of a config, or of another one's, and
    for one that cannot be written.

    Before anything is planned, for that may take long.
    """
    from mxrun.base.files import check_writable

    seen = {config.resolve(): "CONFIG" for config in configs}
    for option, path in asked.items():
        if path is not None:
            first = seen.setdefault(path.resolve(), option)
            if first != option:
                raise UserError(f"{first} and {option} name one file, {path}: give each its own")
    check_writable(*asked.values())


def _write_files(
    report: Mapping[str, Any], svg: Path | None, html: Path | None, csv: Path | None
) -> None:
    """What was asked for beside the report, each as a file."""
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
