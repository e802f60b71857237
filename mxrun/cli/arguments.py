"""Arguments and options that several commands have."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

import typer

Config = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A YAML file, or the name of a bundled config.")
]
ConfigOrNone = Annotated[
    str | None,
    typer.Argument(metavar="CONFIG", help="A YAML file, or the name of a bundled config."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE", help="Values in place of the file's, such as train.epochs=3."
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        min=1, max=(1 << 31) - 1, metavar="N", help="Samples per step.", show_default="config"
    ),
]


def _is_batch(text: str | None) -> str | None:
    number = text is not None and text.isascii() and text.isdecimal() and len(text) <= 10
    if text not in (None, "max") and not (number and 1 <= int(text) < 1 << 31):
        raise typer.BadParameter(f"{text!r} is neither a number from 1 to 2147483647 nor max")
    return text


def batch_size(given: str | None) -> int | Literal["max"] | None:
    """What `--batch` says where it may say `max`."""
    return "max" if given == "max" else None if given is None else int(given)


LargestBatch = Annotated[
    str | None,
    typer.Option(
        callback=_is_batch,
        metavar="N|max",
        help="Samples per step; max: as many as fit into memory.budget, or else into the machine's "
        "free memory.",
        show_default="config",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=1024, metavar="N", help="Compute team.", show_default="config"),
]
AllowPlugins = Annotated[
    bool,
    typer.Option(
        "--allow-plugins",
        help="Run the plugins that a run's folder names, now and later: they can do whatever you "
        "can.",
    ),
]
AllowOtherCode = Annotated[
    bool,
    typer.Option(
        "--allow-changes", help="Go on where config or plugins have changed since the run."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]


class PhaseName(str, Enum):
    """What a run does: `train` evaluates too, `infer` has no gradients."""

    TRAIN = "train"
    INFER = "infer"
