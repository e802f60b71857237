"""Parameters shared by several commands, and the form of their values."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from mxrun.base.limits import MAX_BATCH
from mxrun.base.sizes import SIZE_FORM, parse_size
from mxrun.options.declaration import Option, Positional

# Samples per step, or `max`.
BatchSize = int | Literal["max"]
MAX: Literal["max"] = "max"
# Digits of the largest batch.
_MAX_DIGITS = 10
# `key=`, `key.key=` or `key[0]=` at the beginning of an argument.
_SETTING = re.compile(r"[A-Za-z_][\w.\[\]]*=")


def parse_batch(text: str) -> BatchSize:
    """Return the value of `--batch N|max`. Raises ValueError for any other text."""
    if text == MAX:
        return MAX
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    if not (is_number and 1 <= int(text) <= MAX_BATCH):
        raise ValueError(f"{text!r} is neither a number from 1 to {MAX_BATCH} nor max")
    return int(text)


def parse_bytes(text: str) -> int:
    """Return a size in bytes. Raises ValueError for a text that is none."""
    size = parse_size(text)
    if size is None:
        raise ValueError(f"{text!r} is not {SIZE_FORM}")
    return size


def divide_settings(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the arguments that are paths, and those that are KEY=VALUE.

    A file of such a name is a path.
    """
    paths: list[str] = []
    settings: list[str] = []
    for argument in arguments:
        is_setting = _SETTING.match(argument) and not os.path.exists(argument)
        (settings if is_setting else paths).append(argument)
    return tuple(paths), tuple(settings)


Config = Annotated[str, Positional("A YAML file, or the name of a bundled config.", "CONFIG")]
Overrides = Annotated[
    tuple[str, ...],
    Positional("Override values of the config, such as train.epochs=3.", "KEY=VALUE"),
]
Batch = Annotated[
    int | None,
    Option("Samples per step.", "N", usual="config", minimum=1, maximum=MAX_BATCH),
]
BatchOrMax = Annotated[
    BatchSize | None,
    Option(
        "Samples per step; max: the largest batch that fits into memory.budget or, without a "
        "budget, into free memory.",
        "N|max",
        usual="config",
        parse=parse_batch,
    ),
]
Threads = Annotated[
    int | None,
    Option("Number of compute threads.", "N", usual="config", minimum=1, maximum=1024),
]
AllowPlugins = Annotated[
    bool,
    Option(
        "Trust the plugins that a run's folder or a config extended in another folder names, "
        "now and later. A plugin can do whatever you can."
    ),
]
AllowChanges = Annotated[
    bool, Option("Continue although config or plugins have changed since the run.")
]
RunsFolder = Annotated[
    Path,
    Option("The folder of runs, by default the one that MXRUN_RUNS names.", "DIR", usual="runs"),
]
Json = Annotated[bool, Option("Print only the result, as one line of JSON.")]
Precision = Annotated[
    Literal["float32", "bfloat16"] | None,
    Option("Type of activations; any checkpoint can run in both.", usual="the run's"),
]
RunFolder = Annotated[
    Path, Positional("A run's folder, one of its checkpoints, or the name of a run.", "RUN")
]
CheckpointName = Annotated[
    str | None,
    Option(
        "best, newest or a step; default: the best if the run saves it, else the newest.", "WHICH"
    ),
]
