"""Options of `mxrun evaluate`."""

from dataclasses import field
from typing import Annotated

from mxrun.base.dataclass import dataclass
from mxrun.base.flags import runs_folder
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import (
    AllowChanges,
    AllowPlugins,
    BatchOrMax,
    CheckpointName,
    Json,
    Precision,
    RunFolder,
    RunsFolder,
    Threads,
)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Options of an evaluation."""

    run: RunFolder
    records: Annotated[
        tuple[str, ...],
        Positional(
            "Other records than the run's: a folder or file in place of the data set's path, and "
            "other keys of the data section. A text file of rows file,label lists images.",
            "PATH|KEY=VALUE",
            usual="the run's data.eval",
        ),
    ] = ()
    split: Annotated[
        str | None,
        Option(
            "Another part of the data: train, eval, or a split of the data set.",
            "NAME",
            usual="eval",
        ),
    ] = None
    errors: Annotated[
        int, Option("Show the N records with the worst results.", "N", minimum=0, maximum=100_000)
    ] = 0
    checkpoint: CheckpointName = None
    batch: BatchOrMax = None
    threads: Threads = None
    precision: Precision = None
    allow_changes: AllowChanges = False
    allow_plugins: AllowPlugins = False
    json: Json = False
    runs: RunsFolder = field(default_factory=runs_folder)
