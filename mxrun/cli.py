"""The commands. Each imports what it needs when it runs, so that `--help` stays fast."""

from __future__ import annotations

import os
import time
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from mxrun import __version__
from mxrun.base.errors import MxrunError

app = typer.Typer(
    name="mxrun",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # rich's help would double the time that `--help` takes.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Config = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A YAML file, or the name of a bundled config.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE", help="Values in place of the file's, such as train.epochs=3."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]


class PhaseName(str, Enum):
    """What a run does: `train` evaluates too, `infer` has no gradients."""

    TRAIN = "train"
    INFER = "infer"


def run() -> int:
    """Run the command that the process's arguments name; its exit code.

    What cannot be written to a standard stream is the user's to know, as every UserError is.
    """
    try:
        try:
            app()
        except OSError as error:
            from mxrun.report.result import output_failed

            output_failed(error)
    except MxrunError as error:
        from mxrun.report.console import print_error

        print_error(error)
        return error.exit_code
    return 0


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mxrun {__version__}")
        raise typer.Exit


@app.callback()
def _mxrun(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Train, run, measure and inspect neural networks from a YAML file.

    Everything is known before the first step: every shape, kernel, byte and address.

    Begin with: mxrun train digits_lenet
    """


@app.command()
def train(
    config: Config,
    overrides: Overrides = None,
    json: Json = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run of the same name.")
    ] = False,
) -> None:
    """Train a network into runs/NAME.

    The folder gets the resolved config, metrics, a checkpoint and a summary.

    \b
    Examples:
      mxrun train digits_lenet
      mxrun train net.yaml train.epochs=3 name=short
      mxrun train net.yaml --json --overwrite > summary.json
    """
    from mxrun import session
    from mxrun.config.bundled import find_config
    from mxrun.report.notes import write_notes
    from mxrun.report.progress import watching
    from mxrun.report.result import write_json, write_tables

    started_at = process_start()
    path = find_config(config)
    write_notes(session.notes())
    with watching() as observer:
        summary = session.train(path, overrides or (), observer, overwrite, started_at).to_json()
    if json:
        write_json(summary)
    else:
        from mxrun.report.tables import train_table

        write_tables([train_table(summary)])


@app.command()
def check(config: Config, overrides: Overrides = None, json: Json = False) -> None:
    """Check a config and show its layers.

    Needs no data. All that is wrong is reported at once, each with its line and column; all that is
    right as a table of shapes, parameters and FLOPs.

    \b
    Examples:
      mxrun check digits_lenet
      mxrun check net.yaml data.batch_size=256
      mxrun check net.yaml --json
    """
    from mxrun import session
    from mxrun.config.bundled import find_config
    from mxrun.report.result import write_json, write_tables

    report = session.check(find_config(config), overrides or ()).to_json()
    if json:
        write_json(report)
    else:
        from mxrun.report.tables import layer_table

        write_tables([layer_table(report)])


@app.command()
def inspect_memory(
    config: Config,
    overrides: Overrides = None,
    phase: Annotated[
        PhaseName, typer.Option(help="What is planned: training with evaluation, or inference.")
    ] = PhaseName.TRAIN,
    batch: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Samples per step.", show_default="config"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Compute team.", show_default="config")
    ] = None,
    json: Json = False,
) -> None:
    """Show to the byte what memory a run takes.

    Needs no data: what a run touches is what is planned here.

    \b
    Examples:
      mxrun inspect-memory digits_lenet
      mxrun inspect-memory net.yaml --phase infer --batch 1
      mxrun inspect-memory net.yaml --json
    """
    from mxrun import session
    from mxrun.config.bundled import find_config
    from mxrun.report.notes import write_notes
    from mxrun.report.result import write_json, write_tables

    path = find_config(config)
    write_notes(session.notes())
    report = session.inspect_memory(path, overrides or (), phase.value, batch, threads).to_json()
    if json:
        write_json(report)
    else:
        from mxrun.report.tables import memory_tables

        write_tables(memory_tables(report))


@app.command()
def schema() -> None:
    """Print the JSON Schema of config files, for editors.

    \b
    Example:
      mxrun schema > mxrun.schema.json

    Then begin a config with # yaml-language-server: $schema=mxrun.schema.json
    """
    from mxrun import session
    from mxrun.report.result import write_json

    write_json(session.schema())


def process_start() -> float:
    """When this process was started, in seconds of `time.monotonic`'s clock.

    Linux counts a process's start in ticks since boot (proc(5): /proc/pid/stat, field 22), so the
    interpreter's own start-up is part of the time since; elsewhere the count begins here.
    """
    now = time.monotonic()
    try:
        status = Path("/proc/self/stat").read_text()
    except OSError:
        return now
    # The second field, the program's name in parentheses, may hold anything.
    ticks = int(status.rpartition(")")[2].split()[19])
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now - max(0.0, since_boot - ticks / os.sysconf("SC_CLK_TCK"))
