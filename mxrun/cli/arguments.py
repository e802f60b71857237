"""Arguments and options that several commands have."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

Config = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A YAML file, or the name of a bundled config.")
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
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=1024, metavar="N", help="Compute team.", show_default="config"),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]


class PhaseName(str, Enum):
    """What a run does: `train` evaluates too, `infer` has no gradients."""

    TRAIN = "train"
    INFER = "infer"
