"""The program: its commands, global options and exit codes.

A command is imported when it runs, and imports its dependencies then, so that `--help` stays fast.
"""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from functools import partial
from typing import Annotated

import typer

from mxrun import __version__
from mxrun.base import flags
from mxrun.base.cache_files import distrusted
from mxrun.base.docstrings import docstring
from mxrun.base.errors import MxrunError, OperatorRaised, UserError
from mxrun.cli import json_errors
from mxrun.cli.command_group import CommandGroup
from mxrun.library import BEFORE_PLUGINS, plugin_errors
from mxrun.report.streams import reserve

app = typer.Typer(
    name="mxrun",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Help rendered by rich takes twice as long.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2
_OUT_OF_MEMORY = (
    "mxrun: out of memory: this process can get no more memory; files saved so far stay\n"
    "  hint: allow the process more memory, or use less at a time: a smaller batch, fewer "
    "records\n"
)
# Address space in KiB below which training cannot start: NumPy's and LLVM's libraries end the
# process in words of their own where they get none. A small network trains with 5 % more.
_MIN_ADDRESSES_KIB = 416_000
_TOO_LITTLE_MEMORY = (
    f"mxrun: out of memory: at least {_MIN_ADDRESSES_KIB:,} KiB of address space are needed\n"
    "  hint: allow the process more (ulimit -v)\n"
)


def run() -> int:
    """Run the command named on the command line, and return its exit code.

    A failed write to a standard stream and a failed memory allocation are reported to the user,
    like any UserError. With --json errors are also written to standard output (`json_errors`).
    """
    wants_json = json_errors.is_requested(sys.argv[1:])
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _MIN_ADDRESSES_KIB << 10:
        return _end_without_memory(_TOO_LITTLE_MEMORY, wants_json)
    try:
        return _run(wants_json)
    except (MemoryError, OperatorRaised) as error:
        if not isinstance(error.__cause__ or error, MemoryError):
            raise
    # The exception's objects are free by now.
    return _end_without_memory(_OUT_OF_MEMORY, wants_json)


def _end_without_memory(text: str, wants_json: bool) -> int:
    """Write a constant text and import nothing: there may be no memory for more."""
    with suppress(OSError):
        os.write(_STANDARD_ERROR, text.encode())
        if wants_json:
            os.write(_STANDARD_OUTPUT, json_errors.OUT_OF_MEMORY.encode())
    return UserError.exit_code


def _run(wants_json: bool) -> int:
    """Run the command and report MxrunErrors; other exceptions propagate."""
    try:
        try:
            flags.processor()
            # A plugin may print what it likes.
            BEFORE_PLUGINS.append(partial(reserve, sys.stdout))
            with plugin_errors():
                app()
        except OSError as error:
            from mxrun.report.result import output_failed

            output_failed(error)
    except MxrunError as error:
        from mxrun.report.console import print_error

        print_error(error)
        if wants_json:
            json_errors.write_error(error)
        return error.exit_code
    finally:
        _report_unused_cache_files()
    return 0


def _report_unused_cache_files() -> None:
    """Report the cache files that were not used, with the reasons."""
    if distrusted():
        from mxrun.report.notes import write_notes

        write_notes(distrusted())


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"mxrun {__version__}")
        raise typer.Exit


def _mxrun(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Train, run, measure and inspect neural networks from a YAML file.

    Everything is decided before the first step: every shape, kernel, byte and address.

    Begin with: mxrun train digits_lenet
    """


app.callback(help=docstring(_mxrun))(_mxrun)
