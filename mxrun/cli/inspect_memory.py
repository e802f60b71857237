"""`mxrun inspect-memory`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from mxrun.base.errors import Diagnostic, UserError
from mxrun.cli.registry import COMMANDS
from mxrun.options.inspect_memory import InspectOptions
from mxrun.options.shared import MAX

# Exit code for an arena above the limit: the command succeeded, the network is too large.
_ABOVE = 1
# Options that apply to networks, not to a file of blocks.
_FOR_NETWORKS = (
    *("config", "phase", "ranks", "length", "batch", "threads", "diff"),
    *("svg", "html", "csv", "fail_above", "what_if", "device_properties"),
)


@COMMANDS.register("inspect-memory", order=60, foreign={"inspect-memory": "memory"})
def inspect_memory(options: InspectOptions) -> None:
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
      mxrun inspect-memory net.yaml context=gpu --device-properties h100
      mxrun inspect-memory net.yaml kvstore=dist_sync shard=states --ranks 4
      mxrun inspect-memory net.yaml --what-if
      mxrun inspect-memory net.yaml --html arena.html --svg arena.svg
      mxrun inspect-memory old.yaml --diff new.yaml
      mxrun inspect-memory net.yaml --fail-above 2GiB
      mxrun inspect-memory net.yaml --json
      mxrun inspect-memory --problem blocks.csv --time-limit 60
    """
    from mxrun.report.notes import write_note
    from mxrun.report.status import status

    if options.problem is not None:
        _place_problem(options)
        return
    if options.time_limit is not None:
        raise UserError("--time-limit requires --problem FILE")
    _check_options(options)
    with status(f"planning {options.config}"):
        from mxrun.commands import inspect_memory as command

        reports = command.inspect_configs(options, write_note)
    report, *others = (each.to_json() for each in reports)
    _write_files(report, options)
    _write_report(report, others[0] if others else None, options.json)
    _check_limit(report, options.fail_above)


def _place_problem(options: InspectOptions) -> None:
    """Place the blocks of a file. Raises UserError for options that apply to networks only."""
    from mxrun.commands import memory_problem as command
    from mxrun.report.memory_search import search_progress
    from mxrun.report.result import write_json, write_tables

    path = options.problem
    assert path is not None
    given = [name for name in _FOR_NETWORKS if getattr(options, name) not in (None, False)]
    others = [f"--{name.replace('_', '-')}" if name != "config" else "CONFIG" for name in given]
    if others:
        raise UserError(
            Diagnostic(
                f"--problem reads blocks from a file, not a network: {', '.join(others)} "
                "cannot be combined with it",
                hint=f"--problem {path} accepts --time-limit and --json",
            )
        )
    with search_progress(options.time_limit) as advance:
        report = command.place_problem(path, options.time_limit, advance).to_json()
    if options.json:
        write_json(report)
    else:
        from mxrun.report.memory_problem import problem_tables

        write_tables(problem_tables(report))


def _check_options(options: InspectOptions) -> None:
    """Raise UserError if there is no config, and for options that cannot be combined."""
    if options.config is None:
        raise UserError(
            Diagnostic(
                "nothing to inspect: neither CONFIG nor --problem FILE is given",
                hint="mxrun inspect-memory net.yaml, or mxrun inspect-memory --problem blocks.csv",
            )
        )
    if options.what_if and options.diff is not None:
        raise UserError(
            Diagnostic(
                "--what-if cannot be combined with --diff: both change the baseline of the "
                "comparison",
                hint="give them one after the other, in two commands",
            )
        )
    if options.phase == "generate":
        if options.what_if:
            raise UserError("--what-if plans other settings of training and inference alone")
    elif options.length is not None:
        raise UserError("--length requires --phase generate")
    if options.ranks is not None:
        _check_ranks(options)


def _check_ranks(options: InspectOptions) -> None:
    """Raise UserError for what cannot be told of one of several ranks."""
    others = {
        f"--phase {options.phase}": options.phase not in (None, "train"),
        "--what-if": options.what_if,
        f"--batch {options.batch}": options.batch == MAX,
    }
    for other, is_given in others.items():
        if is_given:
            raise UserError(f"--ranks cannot be combined with {other}")


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


def _write_files(report: Mapping[str, Any], options: InspectOptions) -> None:
    """Write the requested drawing, page and CSV file."""
    from mxrun.base.files import write_text
    from mxrun.report.notes import write_notes

    if options.svg is not None:
        from mxrun.report.memory_svg import memory_svg

        write_text(options.svg, memory_svg(report))
    if options.html is not None:
        from mxrun.report.memory_html import memory_html

        write_text(options.html, memory_html(report))
    if options.csv is not None:
        from mxrun.report.memory_csv import memory_csv

        write_text(options.csv, memory_csv(report))
    write_notes([f"wrote {path}" for path in options.files.values() if path is not None])
