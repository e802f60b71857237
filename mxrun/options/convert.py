"""Options of `mxrun convert`."""

from dataclasses import field
from pathlib import Path
from typing import Annotated

from mxrun.base.dataclass import dataclass
from mxrun.base.flags import runs_folder
from mxrun.base.limits import MAX_BATCH
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import AllowChanges, AllowPlugins, Json, Overrides, RunsFolder


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """Source of a conversion to ONNX, and the file to write."""

    source: Annotated[
        str,
        Positional("A config, the folder of a run or checkpoint, or a run's name.", "CONFIG|RUN"),
    ]
    overrides: Overrides = ()
    output: Annotated[Path, Option("ONNX file to write.", "FILE", flags=("--output", "-o"))]
    checkpoint: Annotated[
        str | None,
        Option("Checkpoint of a run: best, newest or a step.", "WHICH", usual="best"),
    ] = None
    batch: Annotated[
        int | None, Option("Fix the batch size.", "N", minimum=1, maximum=MAX_BATCH)
    ] = None
    allow_changes: AllowChanges = False
    allow_plugins: AllowPlugins = False
    json: Json = False
    runs: RunsFolder = field(default_factory=runs_folder)
