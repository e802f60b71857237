"""Options of `mxrun train`."""

from dataclasses import field
from pathlib import Path
from typing import Annotated

from mxrun.base.dataclass import dataclass
from mxrun.base.flags import runs_folder
from mxrun.options.declaration import Option
from mxrun.options.shared import BatchOrMax, Config, Json, Overrides, RunsFolder


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of a training run."""

    config: Config
    overrides: Overrides = ()
    batch: BatchOrMax = None
    json: Json = False
    overwrite: Annotated[bool, Option("Replace an existing run of the same name.")] = False
    resume: Annotated[bool, Option("Continue the run of the same name, to the same bits.")] = False
    allow_changes: Annotated[
        bool,
        Option(
            "With --resume: continue although config, data or library have changed; "
            "the result is that of a different run."
        ),
    ] = False
    profile: Annotated[bool, Option("Time every call, and show where the time goes.")] = False
    trace: Annotated[
        Path | None, Option("Write a trace of the first steps, for ui.perfetto.dev.", "FILE")
    ] = None
    runs: RunsFolder = field(default_factory=runs_folder)
