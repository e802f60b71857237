"""Options of the commands that look something up: help, docs, ops, show and info."""

from pathlib import Path
from typing import Annotated

from mxrun.base.dataclass import dataclass
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import Json


@dataclass(frozen=True, kw_only=True)
class HelpOptions:
    """Options of `mxrun help`."""

    key: Annotated[
        tuple[str, ...],
        Positional(
            "A key of a config or its last part, a kind such as sgd or f1, an operator or a "
            "command; without it, an overview.",
            "KEY",
        ),
    ] = ()
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class DocsOptions:
    """Options of `mxrun docs`."""

    page: Annotated[
        str | None, Positional("Name of a page; without it, all are listed.", "PAGE")
    ] = None
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class OpsOptions:
    """Options of `mxrun ops`."""

    name: Annotated[
        str | None,
        Positional(
            "Name or alias of an operator, or FILE.py:NAME for one in a file; default: all.", "NAME"
        ),
    ] = None
    settings: Annotated[
        tuple[str, ...],
        Positional("Parameters of the description, such as no_bias=true.", "KEY=VALUE"),
    ] = ()
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Options of `mxrun show`."""

    name: Annotated[
        str | None,
        Positional("Name of a bundled config, or a config file; without it, all bundled.", "NAME"),
    ] = None
    resolved: Annotated[
        bool,
        Option("Print it with everything that it extends, and without blocks and expressions."),
    ] = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class InfoOptions:
    """Options of `mxrun info`."""

    clear_cache: Annotated[
        bool, Option("Remove compiled code, measurements and plans; they are computed again.")
    ] = False
    check: Annotated[
        str | None,
        Option(
            "Check a device, such as gpu:0: probes, all operators and steps of three networks, "
            "each against the CPU.",
            "CONTEXT",
        ),
    ] = None
    check_after: Annotated[
        str | None,
        Option("With --check: go on behind the check of that name, in a new process.", "NAME"),
    ] = None
    output: Annotated[
        Path | None, Option("With --check: write the report, as JSON, to a file.", "FILE")
    ] = None
    json: Json = False
