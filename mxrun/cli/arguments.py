"""Arguments and options shared by several commands."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import typer

Config = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A YAML file, or the name of a bundled config.")
]
ConfigOrNone = Annotated[
    str | None,
    typer.Argument(
        metavar="CONFIG", help="A YAML file, the name of a bundled config, or a run's folder."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE", help="Override values of the config, such as train.epochs=3."
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
    """Return the value of `--batch`: a number, `max`, or None if the option is absent."""
    return "max" if given == "max" else None if given is None else int(given)


BatchOrMax = Annotated[
    str | None,
    typer.Option(
        callback=_is_batch,
        metavar="N|max",
        help="Samples per step; max: the largest batch that fits into memory.budget or, without a "
        "budget, into free memory.",
        show_default="config",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, max=1024, metavar="N", help="Number of compute threads.", show_default="config"
    ),
]
AllowPlugins = Annotated[
    bool,
    typer.Option(
        "--allow-plugins",
        help="Trust the plugins that a run's folder or a config extended in another folder names, "
        "now and later. A plugin can do whatever you can.",
    ),
]
AllowChanges = Annotated[
    bool,
    typer.Option(
        "--allow-changes", help="Continue although config or plugins have changed since the run."
    ),
]
RunsFolder = Annotated[
    Path | None,
    typer.Option(
        "--runs",
        metavar="DIR",
        help="The folder of runs, by default the one that MXRUN_RUNS names.",
        show_default="runs",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print only the result, as one line of JSON.")]


class PhaseName(str, Enum):
    """Phase of a run: `train` includes evaluation, `infer` has no gradients."""

    TRAIN = "train"
    INFER = "infer"


# `key=`, `key.key=` or `key[0]=` at the beginning of an argument.
_SETTING = re.compile(r"[A-Za-z_][\w.\[\]]*=")


def divide_settings(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments that are paths, and those that are KEY=VALUE.

    A file of such a name is a path.
    """
    paths: list[str] = []
    settings: list[str] = []
    for argument in arguments:
        is_setting = _SETTING.match(argument) and not os.path.exists(argument)
        (settings if is_setting else paths).append(argument)
    return paths, settings


class PrecisionName(str, Enum):
    """Dtype of activations."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


Precision = Annotated[
    PrecisionName | None,
    typer.Option(
        help="Type of activations; any checkpoint can run in both.", show_default="the run's"
    ),
]
RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A run's folder, one of its checkpoints, or the name of a run."
    ),
]
CheckpointName = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="best, newest or a step; default: the best if the run saves it, else the newest.",
    ),
]
